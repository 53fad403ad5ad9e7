"""Reconstruction audit: whether planted keys are emitted more often than others (paper 001,
Appendix D.5.1).

n different five-digit keys, a random half of them planted ("My 5-digit key is 01234."). The
mechanism writes texts from the same opening words. Without memory of its records an emitted key is
no likelier to be planted than held out: given how many of the n keys were emitted, each counted
once, the number of planted ones among them is hypergeometric, and the test is exact and two-sided.
(Emissions of the same key are not independent, so repeated ones count once in the test; the table
shows all.)

The control draws from one record's logits alone, without clipping, and must be caught.
"""

import math
import re
import time
from dataclasses import dataclass
from typing import Any

from scipy import stats

from accountant.core.privacy.price import Terms
from workers.data.records import Records
from workers.interface import Text
from workers.models import LocalModel
from workers.privacy_audits import subjects
from workers.privacy_audits.subjects import Subject

LEVEL = 0.001
CAUGHT = 1e-6
POWER = 0.9
CONTROL_RECORDS = 1_000

_KEY = re.compile(r"\s*(\d{5})(?!\d)")


@dataclass(frozen=True)
class Outcome:
    """An arm's texts: their number, those with planted and held-out keys, distinct keys."""

    texts: int
    numbers: int
    source: int
    held_out: int
    source_keys: int
    held_out_keys: int
    planted: int
    kept: int

    @property
    def p(self) -> float:
        """Two-sided p-value that an emitted key is as likely to be held out as planted."""
        return two_sided(
            self.source_keys, self.source_keys + self.held_out_keys, self.planted, self.kept
        )

    @property
    def detects(self) -> float | None:
        """The share of planted keys among those emitted that the test finds with probability POWER.

        Without memory of the records the share is one half.
        """
        return detectable(self.source_keys + self.held_out_keys, self.planted, self.kept)


def two_sided(source: int, emitted: int, planted: int, held_out: int) -> float:
    """Return exact hypergeometric p-value: all outcomes that are no likelier than the one seen."""
    if emitted == 0:
        return 1.0
    counts = range(max(0, emitted - held_out), min(emitted, planted) + 1)
    chances = stats.hypergeom.pmf(counts, planted + held_out, planted, emitted)
    seen = stats.hypergeom.pmf(source, planted + held_out, planted, emitted)
    return float(min(1.0, chances[chances <= seen * (1 + 1e-9)].sum()))


def detectable(emitted: int, planted: int, held_out: int) -> float | None:
    """Return the least planted share above the null's that the test finds with probability POWER.

    By the normal approximation; None if no share would be found.
    """
    total = planted + held_out
    if emitted == 0:
        return None
    null = planted / total
    left = (total - emitted) / (total - 1) if total > 1 else 0.0
    spread = math.sqrt(null * (1 - null) * left / emitted)
    share = null + (stats.norm.isf(LEVEL / 2) + stats.norm.isf(1 - POWER)) * spread
    return share if share <= min(1.0, planted / emitted) else None


def count(texts: list[Text], source: list[int], held_out: list[int]) -> Outcome:
    """Return the keys that the texts contain, counted."""
    matches = [match for match in (_KEY.match(text.text) for text in texts) if match]
    keys = [int(match[1]) for match in matches]
    planted, held_back = set(source), set(held_out)
    return Outcome(
        texts=len(texts),
        numbers=len(keys),
        source=sum(key in planted for key in keys),
        held_out=sum(key in held_back for key in keys),
        source_keys=len(planted.intersection(keys)),
        held_out_keys=len(held_back.intersection(keys)),
        planted=len(planted),
        kept=len(held_back),
    )


def audit(
    model: LocalModel, arms: list[str], keys: int, texts: int, asked: dict[str, Any]
) -> dict[str, Any]:
    """Run all arms and the control on one planting, with `texts` from every batch."""
    source, held_out = subjects.planted(keys)
    records = tuple(map(subjects.record_of, source))
    secret = subjects.fresh_key()
    terms = Terms(delta=subjects.DELTA, public_size=len(source))
    key_parameters = subjects.key_parameters(model)
    key_parameters |= {
        "tokens_per_batch": key_parameters["max_text_tokens"] * texts,
        "texts_per_batch": texts,
    }
    audited = [subjects.subject(arm, model, key_parameters, asked, terms) for arm in arms]
    results = [
        _measure(arm, Records((None,), records, secret), source, held_out, planted_fails=True)
        for arm in audited
    ]
    few = min(CONTROL_RECORDS, len(records))
    control = subjects.without_protection(
        subjects.subject("mean", model, key_parameters, {}, terms), texts=1
    )
    one_each = subjects.OneEach((None,), records[:few], secret)
    # The test is about the records that the control reads and as many held-out ones.
    results.append(_measure(control, one_each, source[:few], held_out[:few], planted_fails=False))
    return {
        "audit": "reconstruction",
        "keys": keys,
        "planted": len(source),
        "level": LEVEL,
        "caught_below": CAUGHT,
        "power": POWER,
        "results": results,
        "passed": all(result["passed"] for result in results),
    }


def _measure(
    arm: Subject, records: Records, source: list[int], held_out: list[int], planted_fails: bool
) -> dict[str, Any]:
    """Return an arm's figures. `planted_fails`: if a difference, or its absence, fails."""
    meter = arm.meter()
    started = time.perf_counter()
    outcome = count(arm.run(records, meter), source, held_out)
    p = outcome.p
    passed = p >= LEVEL if planted_fails else p < CAUGHT
    return arm.describe() | {
        "control": not planted_fails,
        "texts": outcome.texts,
        "numbers": outcome.numbers,
        "source": outcome.source,
        "held_out": outcome.held_out,
        "source_keys": outcome.source_keys,
        "held_out_keys": outcome.held_out_keys,
        "p": p,
        "detects_share": outcome.detects,
        "realized_ex_post": subjects.ex_post(meter),
        "seconds": round(time.perf_counter() - started, 1),
        "passed": passed,
    }
