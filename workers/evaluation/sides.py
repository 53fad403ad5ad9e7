"""The sides of a comparison: the texts that are looked at, zero-shot, and real ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from accountant.core.errors import invalid
from workers.data.public_text import PublicText
from workers.evaluation.transfer import Labelled


@dataclass(frozen=True)
class Texts:
    """One side of a comparison; `labels` and `complete` are set if every text has one."""

    texts: Sequence[PublicText]
    labels: Sequence[str] | None = None
    complete: Sequence[bool] | None = None

    def labelled(self, metric: str, field: str) -> Labelled:
        """Return the texts with their labels. Raises InvalidRequest naming `field` without any."""
        if self.labels is None:
            raise invalid(
                field, f"its texts have no labels, and {metric} needs them", "labelled texts"
            )
        return Labelled(self.texts, self.labels)

    def part(self, chosen: slice) -> "Texts":
        """Return the texts at these places."""
        labels = None if self.labels is None else self.labels[chosen]
        complete = None if self.complete is None else self.complete[chosen]
        return Texts(self.texts[chosen], labels, complete)


@dataclass(frozen=True)
class Sides:
    """What is compared.

    Args:
        ours: the texts that are looked at.
        real: real texts that stand beside them. In a rehearsal the mechanism read them.
        held_out: real texts with which all others are compared.
        zero_shot: what the model writes without a record, or None if nobody asked it.
        why_no_zero_shot: why there are none.
    """

    ours: Texts
    real: Texts
    held_out: Texts
    zero_shot: Texts | None = None
    why_no_zero_shot: str = "no language model is named"

    @classmethod
    def of(cls, ours: Texts, reference: Texts) -> "Sides":
        """Return the sides of texts and a corpus, half of which stands beside them."""
        return cls(ours, reference.part(slice(1, None, 2)), reference.part(slice(0, None, 2)))

    def beside(self) -> dict[str, Texts | None]:
        """Return the sides that every figure stands beside."""
        return {"zero-shot": self.zero_shot, "real texts": self.real}

    @property
    def equal(self) -> int:
        """The number of texts that each side has at least."""
        all_sides = (self.ours, self.real, self.held_out, self.zero_shot)
        return min(len(side.texts) for side in all_sides if side is not None)
