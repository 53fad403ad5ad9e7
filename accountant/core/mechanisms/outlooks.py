"""What a request buys, judged before anybody asks: public arithmetic, of which no record is read.

Tokens are drawn with weights e^(score / temperature), and a clip keeps every score within 2 c of
the best one's. So the likeliest of V tokens has a share of 1 / (1 + (V - 1) e^(-2c / temperature))
at most, and the floor takes the rest. Noise is held against what a record or a group adds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from accountant.core.mechanisms import aug_pe, dp_kps, epsvec, group_means, noisy_count
from accountant.core.mechanisms.base import Mechanism, Yield
from accountant.core.mechanisms.batches import STUB_TOKENS
from accountant.core.mechanisms.noise_fields import amount, resolved
from accountant.core.mechanisms.summary_oneshot import STATE_LENGTHS, SummaryOneshot
from accountant.core.privacy.price import Terms

Verdict = Literal["good", "thin", "not enough"]
#: From the worst to the best.
VERDICTS: tuple[Verdict, ...] = ("not enough", "thin", "good")

#: Texts are good from so many of so many tokens on; a shorter one than the last is a stub.
GOOD_TEXTS, GOOD_TOKENS, LEAST_TOKENS = 40, 40, STUB_TOKENS
#: Texts are thin up to here, and good up to the first: the share of draws that the floor takes.
GOOD_FLOOR, MOST_FLOOR = 0.05, 0.15
#: The same of noise, as a part of what it hides.
GOOD_NOISE, MOST_NOISE = 0.25, 1.0
#: Key phrases are good from so many terms on.
GOOD_TERMS = 200
#: Summaries are good from groups of so many records on.
GOOD_GROUP = 100
#: Tokens of a vocabulary, where the model's facts don't say.
ASSUMED_VOCABULARY = 50_000
#: Texts of models below this size are thin at best: of 40 texts of SmolLM2-135M that somebody read,
#: on two corpora, 22 were both readable and about their label.
LEAST_PARAMETERS = 500_000_000
#: Numbers of a hidden state, likewise.
ASSUMED_HIDDEN = 2_048


@dataclass(frozen=True)
class Outlook:
    """A verdict on what a request writes, and why. `instead` says what would be more.

    `floor`: the share of every draw that the floor of the clip takes, at least; `noise`: the noise
    as a part of what it hides. None: the mechanism has none.
    """

    verdict: Verdict
    why: str
    floor: float | None = None
    noise: float | None = None
    instead: str = ""

    def sentence(self) -> str:
        """Return the verdict in words: "Good: 5 counts within ±4"."""
        start = f"{self.verdict.capitalize()}: {self.why}."
        return f"{start} {self.instead}" if self.instead else start


def outlook(
    mechanism: Mechanism[Any],
    parameters: Any,
    terms: Terms,
    facts: Mapping[str, Any] | None = None,
) -> Outlook | None:
    """Return the outlook of a parsed request; None where nothing public tells, or it reads no
    records.

    `facts`: the public facts of the model that would run it.
    """
    if mechanism.public or mechanism.reads_output or getattr(parameters, "from_job", None):
        return None
    made = mechanism.yields(parameters, terms)
    if made is None:
        return None
    if made.what in ("texts", "summaries") and (made.tokens or LEAST_TOKENS) < LEAST_TOKENS:
        return Outlook("not enough", f"a text of fewer than {LEAST_TOKENS} tokens says nothing")
    judge = _JUDGES.get(mechanism.admitted_as)
    if judge is None:
        return None
    found = judge(parameters, terms, facts or {}, made)
    size = (facts or {}).get("parameters")
    if made.what == "texts" and size is not None and size < LEAST_PARAMETERS:
        model = f"a model of {size / 1e6:,.0f} million weights"
        small = f"{found.why}; {model} leaves about half of its texts unusable, or more"
        return replace(found, verdict=worst("thin", found.verdict), why=small)
    return found


def verdict_of(share: float, good: float, most: float) -> Verdict:
    """Return the verdict on a share of which less is better."""
    return "good" if share <= good else "thin" if share <= most else "not enough"


def worst(*verdicts: Verdict) -> Verdict:
    """Return the worst of several verdicts."""
    return min(verdicts, key=VERDICTS.index)


# --- mechanisms ---------------------------------------------------------------------------------


def floor_share(parameters: Any, terms: Terms, facts: Mapping[str, Any]) -> float:
    """Return the share of a draw that tokens at the floor take, beside a best one with all
    contexts' vote.

    A batch that holds fewer records than it is divided by is weaker, and a fuller one is stronger,
    as far as public figures tell.
    """
    held = 1.0
    labels = max(1, len(terms.labels))
    if parameters.label_counts:
        counts = dict(zip(terms.labels, parameters.label_counts, strict=True))
        batches = parameters.batches_by_label(terms)
        held = min(counts[str(label)] / many / parameters.units for label, many in batches.items())
    elif terms.public_size is not None and parameters.batches_per_label is not None:
        held = terms.public_size / labels / parameters.batches_per_label / parameters.units
    vocabulary = facts.get("vocabulary") or ASSUMED_VOCABULARY
    support = min(getattr(parameters, "top_k", 0) or vocabulary, vocabulary)
    weight = math.exp(-2 * parameters.clip * held / parameters.temperature)
    return 1 - 1 / (1 + (support - 1) * weight)


def _texts_of_draws(
    parameters: Any, terms: Terms, facts: Mapping[str, Any], made: Yield
) -> Outlook:
    floor = floor_share(parameters, terms, facts)
    tokens = made.tokens or 0
    few = made.number < GOOD_TEXTS
    short = tokens < GOOD_TOKENS
    verdict = worst(
        verdict_of(floor, GOOD_FLOOR, MOST_FLOOR),
        "thin" if few or short else "good",
    )
    uncounted = len(terms.labels) > 1 and not parameters.label_counts and verdict != "good"
    counts = "If labels differ in size, a paid count of them would buy more." if uncounted else ""
    if floor > GOOD_FLOOR:
        said = (
            f"by the public figures {100 * floor:.0f} % of each draw or more falls on other tokens "
            "than the likeliest, whatever the records say"
        )
        return Outlook(verdict, said, floor, instead=counts)
    lacks = " and ".join(word for word, lacking in (("few", few), ("short", short)) if lacking)
    count, written = made.sentence(), parameters.written(terms)
    if len(written) < len(terms.labels):
        count += f", for {len(written)} of {len(terms.labels)} labels"
    said = f"{count}, which is {lacks}" if lacks else count
    return Outlook(verdict, said, floor, instead=counts)


def _steered(
    parameters: epsvec.Epsvec, terms: Terms, facts: Mapping[str, Any], made: Yield
) -> Outlook:
    hidden = facts.get("hidden_size") or ASSUMED_HIDDEN
    noise = epsvec.vector_noise(parameters, terms, hidden)
    said = f"{made.sentence()}, steered by vectors with noise of {100 * noise:.0f} % of their clip"
    swept = epsvec.SWEPT.get(facts.get("sha256", ""))
    if facts and (swept is None or swept.layers != parameters.layers):
        said += ", in layers that nobody has tried with this model"
        return Outlook(worst("thin", verdict_of(noise, GOOD_NOISE, MOST_NOISE)), said, None, noise)
    few = made.number < GOOD_TEXTS or (made.tokens or 0) < GOOD_TOKENS
    verdict = worst(verdict_of(noise, GOOD_NOISE, MOST_NOISE), "thin" if few else "good")
    return Outlook(verdict, said, None, noise)


def _counts(
    parameters: noisy_count.NoisyCount, terms: Terms, _: Mapping[str, Any], made: Yield
) -> Outlook:
    near = noisy_count.near(parameters, terms)
    within = f"{made.sentence()} within ±{amount(near)} with 95 % probability"
    if terms.public_size is None:
        return Outlook("thin", f"{within}, and no public size says of how many")
    typical = terms.public_size / made.number
    noise = near / typical
    return Outlook(
        verdict_of(noise, GOOD_NOISE, MOST_NOISE), f"{within}, of about {typical:,.0f}", None, noise
    )


def _means(
    parameters: group_means.GroupMeans, terms: Terms, facts: Mapping[str, Any], made: Yield
) -> Outlook:
    """Hold the noise of the smallest group's mean against the longest state that counts."""
    least = min(group_means.sizes(parameters, terms).values())
    hidden = facts.get("hidden_size") or ASSUMED_HIDDEN
    longest, untried = parameters.clip, False
    if isinstance(parameters, SummaryOneshot):
        hidden = min(hidden, parameters.components or hidden)
        swept = STATE_LENGTHS.get(facts.get("sha256", ""))
        longest, untried = min(longest, swept or longest), bool(facts) and swept is None
    noise = group_means.sigma(parameters, terms) * math.sqrt(hidden) / longest
    said = f"{made.sentence()}, with noise of {100 * noise:.0f} % of a mean's greatest length"
    if least < GOOD_GROUP:
        said += f"; groups of fewer than {GOOD_GROUP} records have little to sum up"
    if untried:
        said += ", at a clip that nobody has tried with this model"
    good = least >= GOOD_GROUP and not untried
    verdict = worst(verdict_of(noise, GOOD_NOISE, MOST_NOISE), "good" if good else "thin")
    return Outlook(verdict, said, None, noise)


def _phrases(parameters: dp_kps.DpKps, terms: Terms, _: Mapping[str, Any], made: Yield) -> Outlook:
    if terms.public_size is None:
        return Outlook("thin", "no public size says how many records stand behind a phrase")
    kept = parameters.vocabulary_size
    counts = resolved(parameters.vocabulary_noise_multiplier, "vocabulary_noise_multiplier")
    counts *= dp_kps.vocabulary_sensitivity(parameters, terms)
    sketch = resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier")
    sketch *= dp_kps.sketch_sensitivity(parameters, terms)
    of_label = terms.public_size / max(1, len(terms.labels))
    noise = max(
        counts * kept / (terms.public_size * parameters.terms_per_record),
        sketch * kept / of_label,
    )
    said = (
        f"{made.sentence()} of {kept:,} terms, with noise of {100 * noise:.0f} % of what a term "
        "weighs on average"
    )
    verdict = worst(
        verdict_of(noise, GOOD_NOISE, MOST_NOISE), "good" if kept >= GOOD_TERMS else "thin"
    )
    return Outlook(verdict, said, None, noise)


def _votes(parameters: aug_pe.AugPe, terms: Terms, _: Mapping[str, Any], made: Yield) -> Outlook:
    if terms.public_size is None:
        return Outlook("thin", "no public size says how many vote")
    candidates = parameters.samples * (parameters.variations + 1)
    voters = terms.public_size / max(1, len(terms.labels)) * parameters.votes
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    sigma = multiplier * float(aug_pe.sensitivity(parameters, terms))
    noise = sigma * candidates / voters
    said = (
        f"{voters:,.0f} votes of a label for {candidates:,} candidates, and noise of {sigma:.3g} "
        "votes on each"
    )
    few = made.number < GOOD_TEXTS or (made.tokens or 0) < GOOD_TOKENS
    return Outlook(
        worst(verdict_of(noise, 1 / 3, MOST_NOISE), "thin" if few else "good"), said, None, noise
    )


_JUDGES: Mapping[str, Callable[[Any, Terms, Mapping[str, Any], Yield], Outlook]] = {
    "private-prediction": _texts_of_draws,
    "epsvec": _steered,
    "noisy-count": _counts,
    "dp-kps": _phrases,
    "aug-pe": _votes,
    "summary-oneshot": _means,
    "summary-token": _means,
}
