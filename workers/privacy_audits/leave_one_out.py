"""Leave-one-out audit: a batch's realized privacy loss for one record (paper 001, Appendix D.5.2).

The mechanism runs once and its draws are noted. Then it runs again without one record, and every
draw is answered with the token drawn the first time, while the log-likelihoods of those tokens then
and now are added up. The largest |ln P(texts) - ln P'(texts)| over a batch's records is a lower
bound on the privacy loss of its texts. It must lie below the stated cost: for the median the
batch's own ex-post cost, for the others the priced epsilon.

Batches are disjoint, so one run leaves out a record of every batch at once. It is the real runner
each time, and it sees nothing of the audit: a record that affected another batch, another candidate
set or another context's logits would show.
"""

import time
from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.core.privacy.events import Event, Exponential, releases
from accountant.core.privacy.price import Terms
from workers.data.records import Record, Records
from workers.models import LocalModel
from workers.noise.meter import Meter
from workers.privacy_audits import subjects
from workers.privacy_audits.noting import Call, Ints, NotingMeter
from workers.privacy_audits.subjects import Subject

Part = tuple[str | None, int]


def log_probability(scores: Ints, scale: Fraction, chosen: int) -> float:
    """ln of the probability of `chosen` under softmax(scores * scale)."""
    exponents = (scores - scores.max()) * float(scale)
    return float(exponents[chosen] - np.log(np.exp(exponents).sum()))


class Noting(NotingMeter):
    """A meter that also notes each part's draws, their log-likelihoods, and their ex-post costs."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.drawn: dict[Hashable, list[int]] = defaultdict(list)
        self.likely: dict[Hashable, float] = defaultdict(float)
        self.costs: dict[Hashable, Fraction] = defaultdict(Fraction)

    def note(self, part: Hashable | None, call: Call) -> Any:
        """Note a token, its likelihood and its cost."""
        self.drawn[part].append(call.answer)
        self.likely[part] += log_probability(call.values, call.per, call.answer)
        if call.costs is not None:
            self.costs[part] += Fraction(float(call.costs[call.answer]))
        return call.answer


class Answering(Meter):
    """A meter that draws nothing: it answers with the tokens drawn before, and notes their
    likelihoods now.

    For audits of planted records only: what it returns carries no noise.
    """

    drawn: dict[Hashable, list[int]]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.likely: dict[Hashable, float] = defaultdict(float)
        self.answered: dict[Hashable, int] = defaultdict(int)

    def sample_token(
        self, scores: Ints, scale: Fraction, event: Event, part: Hashable | None = None
    ) -> int:
        """Return the token that was drawn at this place."""
        self._record(event, part)
        return self._answer(scores, scale, part)

    def ex_post_token(
        self,
        scores: Ints,
        scale: Fraction,
        costs: NDArray[np.float64],  # noqa: ARG002
        part: Hashable | None = None,
    ) -> int:
        """Return the token that was drawn at this place."""
        return self._answer(scores, scale, part)

    def _answer(self, scores: Ints, scale: Fraction, part: Hashable) -> int:
        token = self.drawn[part][self.answered[part]]
        self.answered[part] += 1
        self.likely[part] += log_probability(scores, scale, token)
        return token


def audit(
    model: LocalModel,
    arms: list[str],
    records: tuple[Record, ...],
    given: dict[str, Any],
    asked: dict[str, Any],
) -> dict[str, Any]:
    """Run every arm on the planted records. Labels are those of the records."""
    labels = tuple(dict.fromkeys(record.label for record in records))
    terms = Terms(
        delta=subjects.DELTA,
        public_size=len(records),
        labels=tuple(label for label in labels if label is not None),
    )
    data = Records(labels, records, subjects.fresh_key())
    results = [_measure(subjects.subject(arm, model, given, asked, terms), data) for arm in arms]
    return {
        "audit": "leave-one-out",
        "records": len(records),
        "results": results,
        "passed": all(result["passed"] for result in results),
    }


def _measure(arm: Subject, data: Records) -> dict[str, Any]:
    started = time.perf_counter()
    noted = arm.meter(Noting)
    assert isinstance(noted, Noting)
    arm.run(data, noted)
    batches = members(data, arm.parameters)
    losses = dict.fromkeys(batches, 0.0)
    for place in range(max((len(batch) for batch in batches.values()), default=0)):
        left_out = {part: texts[place] for part, texts in batches.items() if place < len(texts)}
        again = likelihoods(arm, data, noted, set(left_out.values()))
        for part in left_out:
            losses[part] = max(losses[part], abs(noted.likely[part] - again.likely[part]))
    rows = []
    for part, texts in batches.items():
        cost = float(noted.costs[part]) if noted.has_ex_post else arm.epsilon
        assert cost is not None
        rows.append(
            {
                "label": part[0],
                "batch": part[1],
                "records": len(texts),
                "lower_bound": losses[part],
                "stated": cost,
                "passed": losses[part] <= cost,
            }
        )
    return arm.describe() | {
        "stated": "ex-post cost of the batch" if noted.has_ex_post else "priced epsilon",
        "pure_bound": pure_bound(arm),
        "batches": rows,
        "seconds": round(time.perf_counter() - started, 1),
        "passed": all(row["passed"] for row in rows),
    }


def members(data: Records, parameters: Any) -> dict[Part, list[Record]]:
    """Return each batch's records. Texts of planted records differ."""
    by_text = {record.text: record for record in data.records}
    if len(by_text) != len(data.records):
        raise ValueError("planted records must be different")
    count = parameters.batches_per_label or 1
    return {part: [by_text[text] for text in texts] for part, texts in data.batches(count).items()}


def likelihoods(arm: Subject, data: Records, noted: Noting, left_out: set[Record]) -> Answering:
    """Return the draws answered, with ln P of each batch's texts, had these records been absent."""
    rest = tuple(record for record in data.records if record not in left_out)
    meter = arm.meter(Answering)
    assert isinstance(meter, Answering)
    meter.drawn = noted.drawn
    arm.run(Records(data.labels, rest, data.key), meter)
    drawn = {part: len(tokens) for part, tokens in noted.drawn.items()}
    if dict(meter.answered) != drawn:
        raise RuntimeError("the run without a record made other draws")
    return meter


def pure_bound(arm: Subject) -> float | None:
    """Return the bound of every outcome: 2 * shift a token; None where there is none."""
    if arm.price.dp is None:
        return None
    counted = releases(arm.price.dp).items()
    if not all(isinstance(event, Exponential) for event, _ in counted):
        return None
    return sum(
        2 * event.shift * count for event, count in counted if isinstance(event, Exponential)
    )
