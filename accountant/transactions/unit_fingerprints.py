"""Dataset identity: each privacy unit has one account, however often it is registered.

Two registrations of the same people would be two allowances. So the units of all data found right are kept
as keyed fingerprints, and data that shares one with another dataset is refused; its steward registers it
as a new version of that dataset, which joins its account, or corrects it. docs/decisions/0005 says why.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core.errors import DataError
from accountant.transactions import registrations

#: The advisory lock under which one dataset at a time is compared with all others and added to them.
_LOCK = 0x65786368_75696431


@dataclass(frozen=True)
class Fingerprint:
    """16 bytes of a keyed hash. `is_unit`: of a privacy unit; else of a record of a unit by column."""

    value: bytes
    is_unit: bool


def claim(engine: Engine, version_id: UUID, proof: bytes, fingerprints: Iterable[Fingerprint]) -> None:
    """Make a version that waits for its check ready, or invalid where its units are another dataset's.

    One transaction, in memory that does not grow with `fingerprints`; what the iterable raises passes
    through and leaves the version as it was. `proof` is what the key of the fingerprints makes of a public
    text: fingerprints of another key would never meet those that are there. Raises DataError for such.
    """
    with engine.begin() as connection:
        _stage(connection, fingerprints)
        # Reading is over. From here on nobody else compares: who comes second sees what the first added.
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        _check_key(connection, proof)
        versions, accounts = tables.dataset_versions, tables.accounts
        checking = versions.c.id == version_id, versions.c.state == "checking"
        dataset_id = connection.execute(select(versions.c.dataset_id).where(*checking)).scalar()
        if dataset_id is None:
            return  # a second message: checked meanwhile
        problem = _overlap(connection, dataset_id)
        if problem is None:
            connection.execute(_ADD, {"dataset": dataset_id})
        # Only now the account's row, so that no job waits while a large file is compared; and before the
        # version's, as every writer takes them. The ledger says which data was found right.
        connection.execute(
            select(accounts.c.dataset_id).where(accounts.c.dataset_id == dataset_id).with_for_update()
        )
        if connection.execute(select(versions.c.id).where(*checking).with_for_update()).first() is None:
            connection.rollback()
            return  # it was settled or taken away meanwhile
        state = "ready" if problem is None else "invalid"
        connection.execute(
            update(versions).where(versions.c.id == version_id).values(state=state, error=problem)
        )
        if problem is None:
            registrations.found_right(connection, version_id)


def private_in(engine: Engine, proof: bytes, texts: Iterable[Fingerprint]) -> str | None:
    """Return the error text for a public corpus that contains records of a dataset; None: it has none.

    `texts`: as a dataset whose units are these records would have them, so they are compared as its units
    would be, with units and records of all data found right. Nothing of them is kept. Raises as `claim` does.
    """
    with engine.begin() as connection:
        _stage(connection, texts)
        _check_key(connection, proof)
        shares = _shares(connection, None)
    if not shares:
        return None
    return (
        f"texts of it are private records, of dataset {_named(shares)}. Whatever reads a public corpus is "
        "free: take them out, or register other data"
    )


def _stage(connection: Connection, fingerprints: Iterable[Fingerprint]) -> None:
    """Stream the fingerprints into a table that the end of the transaction drops."""
    connection.execute(
        text("CREATE TEMPORARY TABLE staged (fingerprint bytea, is_unit boolean) ON COMMIT DROP")
    )
    driver = connection.connection.driver_connection
    assert driver is not None
    with (
        driver.cursor() as cursor,
        cursor.copy("COPY staged (fingerprint, is_unit) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["bytea", "bool"])
        for each in fingerprints:
            copy.write_row((each.value, each.is_unit))
    connection.execute(text("ANALYZE staged"))


def _check_key(connection: Connection, proof: bytes) -> None:
    key = tables.fingerprint_key
    connection.execute(upsert(key).values(proof=proof).on_conflict_do_nothing())
    if connection.execute(select(key.c.proof)).scalar_one() != proof:
        raise DataError(
            "this worker's identity key is not the one that fingerprints were made with; every worker needs "
            "the same home/keys/identity or EXCHEQUER_KEY_IDENTITY"
        )


#: Sorted, so that two who insert the same ones without a lock would wait for one another in one order.
_ADD = text(
    "INSERT INTO fingerprints (fingerprint, dataset_id, is_unit) "
    "SELECT fingerprint, :dataset, bool_or(is_unit) FROM staged GROUP BY fingerprint ORDER BY fingerprint "
    "ON CONFLICT (fingerprint, dataset_id) DO NOTHING"
)

_SHARED = text(
    "SELECT d.name, count(DISTINCT s.fingerprint) AS shared, "
    "(SELECT count(DISTINCT fingerprint) FROM staged WHERE is_unit = s.is_unit) AS whole "
    "FROM staged s JOIN fingerprints f ON f.fingerprint = s.fingerprint "
    "JOIN datasets d ON d.id = f.dataset_id "
    "WHERE f.dataset_id IS DISTINCT FROM CAST(:dataset AS uuid) AND (s.is_unit OR f.is_unit) "
    "GROUP BY d.name, s.is_unit ORDER BY 2 DESC, 1"
)


def _overlap(connection: Connection, dataset_id: UUID) -> str | None:
    """Return the error text if a unit belongs to another dataset; None: every unit is new or its own."""
    shares = _shares(connection, dataset_id)
    if not shares:
        return None
    first = next(iter(shares))
    return (
        f"units of it have an account already, in dataset {_named(shares)}. Register it as a new version "
        f"there, which joins that account (exchequer dataset add-version {first} --uri ADDRESS), or correct "
        "the data so that nobody is in both"
    )


def _shares(connection: Connection, dataset_id: UUID | None) -> dict[str, float]:
    """Return the share of the staged units that each other dataset already has, largest first."""
    shares: dict[str, float] = {}
    for row in connection.execute(_SHARED, {"dataset": dataset_id}):
        shares[row.name] = max(shares.get(row.name, 0.0), row.shared / row.whole)
    return shares


def _named(shares: dict[str, float]) -> str:
    return ", ".join(f"{name!r} ({_roughly(share)})" for name, share in shares.items())


def _roughly(share: float) -> str:
    """A share in words: the steward needs to know whether it is a slip or the same data."""
    if share < 0.01:
        return "under 1 % of it"
    if share > 0.99:
        return "all of it, or nearly"
    return f"about {max(1, round(share * 100, -1 if share >= 0.1 else 0)):.0f} % of it"
