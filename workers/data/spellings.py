"""A look at how a dataset's privacy units are spelled, while it is registered.

Two spellings that may or may not be one person ("017" and "17") are refused unless the dataset's
`unit_spelling` decides. Neither choice is safe by itself: one person as two units pays half, and
two people as one unit change the records of each other.
"""

from accountant.core.errors import DataError
from accountant.core.files import cells
from workers.data.records import Layout
from workers.data.rows import Row


class Spellings:
    """The spellings of all units so far: two hashes of 64 bits for each unit."""

    def __init__(self, layout: Layout) -> None:
        self._column = layout.unit_column
        self._decided = layout.unit_spelling
        self._exact: dict[int, int] = {}
        self._kinds: dict[int, str] = {}
        self._families: set[str] = set()

    def check(self, row: Row) -> str | None:
        """Return the folded name of a readable row's unit, or None if the row is a unit by itself.

        Raises DataError for a spelling that the dataset's declaration does not decide.
        """
        identifier = None if self._column is None else cells.identifier(row[self._column])
        if identifier is None:
            return None
        if self._decided != "keep":
            self._check_family(row, identifier.family)
        if self._decided == "refuse":
            self._check_spelling(row, identifier)
        return identifier.folded

    def _check_family(self, row: Row, family: str) -> None:
        if family in self._families:
            return
        self._families.add(family)
        if not any(self._families <= together for together in cells.TOGETHER):
            earlier = ", ".join(sorted(self._families - {family}))
            raise DataError(
                f"unit_column: {row.place} has {family} in {self._column}, and rows before it "
                f"{earlier}. The "
                "same people may be written in two ways: write them in one, or set unit_spelling "
                "to 'keep' "
                "if these are different people"
            )

    def _check_spelling(self, row: Row, identifier: cells.Identifier) -> None:
        exact, key = hash(identifier.exact), hash(identifier.folded)
        if self._exact.setdefault(key, exact) == exact:
            if identifier.exact != identifier.folded and key not in self._kinds:
                self._kinds[key] = cells.spelling(identifier.exact)
            return
        earlier = self._kinds.get(key, "plainly")
        kind = (
            "plainly" if identifier.exact == identifier.folded else cells.spelling(identifier.exact)
        )
        raise DataError(
            f"unit_column: {row.place} spells a unit of {self._column} {kind}, a row before it "
            f"{earlier}, "
            "and nothing else differs. Correct the data, or set unit_spelling: 'merge' if these "
            "are one "
            "person, 'keep' if they are different people"
        )
