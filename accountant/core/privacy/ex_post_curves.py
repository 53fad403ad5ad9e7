"""The growth of a job's ex-post cost, per token and per batch (paper 001, Figures 3 to 6).

Every figure here depends on the data: stewards and auditors may see it, and an analyst may see none
of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

#: Places at which a batch's sum is looked at, at most.
POINTS = 100


@dataclass(frozen=True)
class CostCurve:
    """Sums of ex-post ε over the first tokens of each batch; every batch writes the same public
    number.

    `tokens`: the public token counts at which sums are taken. `sums`: the total over all batches
    there. `most`: the largest batch's sum there. `batches`: each batch's total, in no meaningful
    order.
    """

    tokens: tuple[int, ...]
    sums: tuple[float, ...]
    most: tuple[float, ...]
    batches: tuple[float, ...]

    @classmethod
    def of(cls, costs: Sequence[Sequence[float]]) -> "CostCurve | None":
        """Return the curve of the costs of all batches' tokens; None if there are none."""
        length = min(map(len, costs), default=0)
        if not length:
            return None
        points = min(POINTS, length)
        tokens = tuple(length * (place + 1) // points for place in range(points))
        sums, most = [0.0] * points, [0.0] * points
        batches = []
        for cost in costs:
            grown = list(accumulate(cost))
            batches.append(grown[-1])
            for place, token in enumerate(tokens):
                sums[place] += grown[token - 1]
                most[place] = max(most[place], grown[token - 1])
        return cls(tokens, tuple(sums), tuple(most), tuple(sorted(batches)))

    def joined(self, other: "CostCurve") -> "CostCurve":
        """Return the curve of this part's batches and those of another part of the job."""
        sums = (one + two for one, two in zip(self.sums, other.sums, strict=True))
        most = map(max, self.most, other.most)
        return CostCurve(
            self.tokens, tuple(sums), tuple(most), tuple(sorted((*self.batches, *other.batches)))
        )

    def to_json(self) -> dict[str, Any]:
        return {
            name: [(value if isinstance(value, int) else float(f"{value:.6g}")) for value in values]
            for name, values in asdict(self).items()
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Sequence[Any]]) -> "CostCurve":
        return cls(*(tuple(value[name]) for name in ("tokens", "sums", "most", "batches")))

    def plots(self) -> list[dict[str, Any]]:
        """Return the plots that a page draws, each as {name, series: {name: {x, y}}}."""
        count = len(self.batches)
        mean = [point / count for point in self.sums]
        before = zip((0, *self.tokens), (0.0, *mean), strict=False)
        slopes = [
            (cost - cost_before) / (token - token_before)
            for token, cost, (token_before, cost_before) in zip(
                self.tokens, mean, before, strict=False
            )
        ]
        share = [(place + 1) / count for place in range(count)]
        return [
            {
                "name": "ε of a batch after so many tokens",
                "series": {
                    "mean": {"x": [0, *self.tokens], "y": [0.0, *mean]},
                    "largest": {"x": [0, *self.tokens], "y": [0.0, *self.most]},
                },
            },
            {
                "name": "ε of a token at this place, on average",
                "series": {"mean": {"x": list(self.tokens), "y": slopes}},
            },
            {
                "name": "ε that this share of the batches stays within",
                "series": {"batches": {"x": [0.0, *share], "y": [0.0, *self.batches]}},
            },
        ]
