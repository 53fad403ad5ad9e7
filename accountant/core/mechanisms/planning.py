"""Proposals: from a goal and public facts to the request that is worth asking for.

    goal, terms, model's facts, what is affordable ──▶ mechanism, parameters, outlook

Pure: no record is read, and no account but through `affordable`, the question that `fit` asks too.
What is not enough is never proposed: the answer is then a verdict alone, with what would be more.
The rules are those that measurements support (docs/utility.md).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms import (
    dp_kps,
    epsvec,
    group_plans,
    noisy_count,
    private_prediction,
    summary_adapter,
    summary_oneshot,
)
from accountant.core.mechanisms.fitting import bisect_whole
from accountant.core.mechanisms.outlooks import (
    GOOD_NOISE,
    LEAST_TOKENS,
    VERDICTS,
    Outlook,
)
from accountant.core.mechanisms.proposals import (
    EPSILONS,
    NOTHING,
    Affordable,
    Asked,
    Known,
    Proposal,
    first_good,
)
from accountant.core.privacy.price import Terms

#: Beyond so many texts, larger batches are better than more texts.
SERVING_TEXTS = 200
#: Shares of what is left that are tried where none is named: a small one is taken if it is good.
SHARES = (0.1, 0.25, 0.5, 1.0)
#: Goals that something is proposed for, in the order in which one stands in for another. Each has
#: its mechanisms, the one that wrote better texts where both are as good by their outlooks first.
PLANNED: Mapping[str, tuple[str, ...]] = {
    "texts": (epsvec.MECHANISM.id, private_prediction.MECHANISM.id),
    "phrases": (dp_kps.MECHANISM.id,),
    "summaries": (summary_oneshot.MECHANISM.id, summary_adapter.MECHANISM.id),
    "counts": (noisy_count.MECHANISM.id,),
}


def propose(
    goal: str,
    terms: Terms,
    affordable: Affordable,
    facts: Mapping[str, Any] | None = None,
    offered: Collection[str] | None = None,
    only: str | None = None,
    known: Known = NOTHING,
) -> Proposal:
    """Return the best request for a goal that is affordable.

    `facts`: the public facts of the model that would run it; `offered`: the mechanisms that may be
    asked for, None: all; `only`: the one whose request is wanted, None: any of the goal's.
    """
    asked = Asked(terms, facts or {}, affordable, known)
    admitted = offered is None or only in offered
    found = _best(goal, asked, offered if only is None else [only] if admitted else [])
    if found is not None and found.outlook.verdict != "not enough":
        return found
    why = _why(goal, asked) if found is None else found.outlook.why
    if terms.public_size is None and goal != "counts":
        why = "no public size is declared, so nothing tells what a job would buy"
    return Proposal(goal, Outlook("not enough", why, instead=_instead(goal, asked, offered)))


def propose_least(
    goal: str,
    terms: Terms,
    part: Callable[[float], Affordable],
    facts: Mapping[str, Any] | None = None,
    offered: Collection[str] | None = None,
    only: str | None = None,
    shares: Iterable[float] = SHARES,
    known: Known = NOTHING,
) -> tuple[Proposal, float]:
    """Return the proposal of the first share that is good, or of the first that is as good as all,
    and the share.

    `part`: what a share of what is left has room for. The rest is as `propose` takes it.
    """
    best: tuple[Proposal, float] | None = None
    for share in shares:
        found = propose(goal, terms, part(share), facts, offered, only, known)
        if best is None or _worth(found) > _worth(best[0]):
            best = found, share
        if found.outlook.verdict == "good":
            break
    assert best is not None
    return best


def _worth(proposal: Proposal) -> tuple[int, int, int, bool]:
    """Return what a larger share has to better: more texts and a little less noise don't count."""
    quiet = (proposal.outlook.noise or 0.0) <= GOOD_NOISE
    return *rank(proposal)[:3], quiet


def rank(proposal: Proposal) -> tuple[int, int, int, int, float]:
    """Return how good a proposal is: by its verdict, its mechanism's place, the length of a text,
    their number up to what serves most ends, and the noise.
    """
    made, place = proposal.makes, 0
    if proposal.mechanism is not None:
        place = -PLANNED[proposal.goal].index(proposal.mechanism)
    length, number = (0, 0) if made is None else (made.tokens or 0, made.number)
    return (
        _verdict(proposal),
        place,
        length,
        min(number, SERVING_TEXTS),
        -(proposal.outlook.noise or 0.0),
    )


def _best(goal: str, asked: Asked, offered: Collection[str] | None) -> Proposal | None:
    named = [each for each in PLANNED[goal] if offered is None or each in offered]
    found = (proposal for each in named for proposal in _CANDIDATES[each](asked))
    return max(found, key=rank, default=None)


def _instead(goal: str, asked: Asked, offered: Collection[str] | None) -> str:
    """Return what would be more: the next goal that this budget is enough for."""
    goals = list(PLANNED)
    for other in goals[goals.index(goal) + 1 :]:
        found = _best(other, asked, offered)
        if found is not None and found.outlook.verdict != "not enough":
            return f"{_GOODS[other]} are affordable: {found.outlook.why}."
    return "Fewer labels, more records or a larger part of what is left would be more."


_GOODS = {"phrases": "Key phrases", "summaries": "Summaries of groups", "counts": "Noisy counts"}


def _why(goal: str, asked: Asked) -> str:
    """Return why there is no request for a goal."""
    if goal == "summaries":
        return group_plans.lacking(asked)
    return {
        "texts": f"not one text of {LEAST_TOKENS} tokens is affordable",
        "phrases": "no noise that leaves phrases standing is affordable",
        "counts": "no count is affordable",
    }[goal]


# --- texts like those in the data: steered ------------------------------------------------------

#: Records of a label that a vector is drawn from, and texts of the model alone that they are held
#: against.
SAMPLES, PARTNERS = 400, 24
#: Texts of all labels together, about, and of one label at least: more are free.
STEERED_TEXTS, LEAST_STEERED = 100, 10
#: A chat model is asked for a text about a label, and only the vectors, which all of ε pays for,
#: tell it how real ones read. What is cut, repeats itself or talks about the task is dropped, and
#: of the more readable rest those nearest to the label are kept: drafts are free.
STEERED: Mapping[str, Any] = {
    "shots": 0,
    "partner": "mean",
    "partners": PARTNERS,
    "temperature": 0.5,
    "max_tokens": 96,
    "record_tokens": 64,
    "stop": None,
    "rejection": "rule",
    "min_quality": 10,
    "drafts": 10,
}
ABOUT = "Write a short text{about}. Use two or three sentences. Answer with the text alone."


def _steered(asked: Asked) -> Iterator[Proposal]:
    """Yield requests of `epsvec` from the cheapest on, where a sweep found how to steer the
    model.
    """
    mechanism = epsvec.MECHANISM
    size, labels = asked.terms.public_size, max(1, len(asked.terms.labels))
    swept = epsvec.SWEPT.get(asked.facts.get("sha256", ""))
    if size is None or swept is None or size // labels < LEAST_BATCH:
        return
    about = " about this topic: {label}" if asked.terms.labels else ""
    shape = {
        **STEERED,
        "template": ABOUT.replace("{about}", about),
        "layers": swept.layers,
        "clip": swept.clip,
        "coefficient": swept.coefficient,
        "samples_per_label": min(SAMPLES, size // labels),
        "samples": max(LEAST_STEERED, -(-STEERED_TEXTS // labels)),
    }

    def request(epsilon: float) -> Proposal | None:
        note = "paid once: more texts, other temperatures and coefficients are free"
        return asked.proposal(mechanism, {**shape, "epsilon": epsilon}, (note,))

    context = asked.facts.get("context_tokens")
    needed = mechanism.context_tokens(mechanism.parameters(**shape), TEMPLATE_TOKENS)
    if context is None or needed <= context:
        yield from first_good(map(request, EPSILONS))


# --- texts like those in the data: private prediction -------------------------------------------

#: Records that a larger batch would not make better: where ε is small they buy tokens.
MOST_BATCH = 256
#: Records of a batch, at least: fewer are no crowd.
LEAST_BATCH = 8
#: Tokens of a text, aimed at first.
LENGTHS = (48, 32, LEAST_TOKENS)
#: Clip, temperature and public support at which the floor takes 4 % of a draw at most.
CLIP, TEMPERATURE, SUPPORT = 4.0, 1.0, 100
#: Texts of a proposal, about: more take as much longer; and prompts that its rounds read, at most,
#: beyond the first.
ENOUGH_TEXTS, MOST_PROMPTS = 200, 64_000
#: Counts of labels that differ by more set the batches of each; and records that a label needs to
#: be written then, tried one after another.
UNEVEN, LEAST_LABELS = 1.5, (16, 32, 64, 128, 256, 512)
#: Tokens set aside for a template that nobody has counted yet.
TEMPLATE_TOKENS = 64


def _texts(asked: Asked) -> Iterator[Proposal]:
    """Yield requests of `private-prediction` by the number of batches, each as long as it may be.

    Batches are secret wherever a label has two of them; one batch is taken where nothing else is
    affordable.
    """
    by_counts = list(_texts_by_counts(asked))
    if by_counts:
        yield from by_counts
        return
    size, labels = asked.terms.public_size, max(1, len(asked.terms.labels))
    if size is None:
        return
    held = size // labels
    fewest = max(2, -(-held // MOST_BATCH))
    secret = (fewest, 2 * fewest, 4 * fewest)
    found = [_longest(asked, batches, held // batches) for batches in secret]
    if not any(found):
        found = [_longest(asked, 1, min(held, MOST_BATCH))]
    yield from (proposal for proposal in found if proposal is not None)


def _texts_by_counts(asked: Asked) -> Iterator[Proposal]:
    """Yield requests that give each label as many batches as its records fill, where counts tell
    and differ.

    Labels are left out from the smallest on, where that makes the verdict better.
    """
    terms, counts = asked.terms, asked.known.label_counts
    uneven = len(counts) > 1 and max(counts.values()) > UNEVEN * min(counts.values())
    if not uneven or set(counts) != set(terms.labels):
        return
    best: list[Proposal] = []
    for least in LEAST_LABELS:
        written = {label: counts[label] for label in terms.labels if counts[label] >= least}
        smallest = min(written.values(), default=0)
        fewest = max(2, -(-smallest // MOST_BATCH))
        found = [_longest(asked, k, smallest // k, written) for k in (fewest, 2 * fewest)]
        whole = [each for each in found if each and each.outlook.verdict != "not enough"]
        if max(map(_verdict, whole), default=0) > max(map(_verdict, best), default=0):
            best = whole
    yield from best


def _verdict(proposal: Proposal) -> int:
    return VERDICTS.index(proposal.outlook.verdict)


def _longest(
    asked: Asked, batches: int, records: int, written: Mapping[str, int] | None = None
) -> Proposal | None:
    """Return the request for the longest texts of which one is affordable."""
    if records < LEAST_BATCH:
        return None
    found = (_texts_of(asked, batches, records, tokens, written) for tokens in LENGTHS)
    return next((proposal for proposal in found if proposal is not None), None)


def _texts_of(
    asked: Asked, batches: int, records: int, tokens: int, written: Mapping[str, int] | None = None
) -> Proposal | None:
    """Return the request for texts of so many tokens; `written`: the records of each label that is
    written, where counts tell.
    """
    room = _record_tokens(asked.facts, tokens)
    if room is None:
        return None
    shape: dict[str, Any] = {
        "batch_size": records,
        "clip": CLIP,
        "temperature": TEMPERATURE,
        "top_k": SUPPORT,
        "max_text_tokens": tokens,
        **room,
    }
    labels = max(1, len(asked.terms.labels))
    if written is not None:
        return _by_counts({**shape, "tokens_per_batch": tokens}, asked, written)
    shape["batches_per_label"] = batches
    if batches == 1:  # nobody is hidden among batches where there is one
        most = tokens * max(1, ENOUGH_TEXTS // labels)
        raw = _largest(asked, {**shape, "tokens_per_batch": most}, "tokens_per_batch", tokens)
        note = (
            f"a label has too few records for two batches of {LEAST_BATCH}, so none is secret"
            if records < 2 * LEAST_BATCH
            else "nothing from secret batches is affordable, so a label is one batch"
        )
    else:
        run = min(batches, -(-ENOUGH_TEXTS // labels))
        rounds = max(
            1, min(ENOUGH_TEXTS // (run * labels), MOST_PROMPTS // (run * labels * records))
        )
        shape |= {"amplification": "allocation", "tokens_per_batch": tokens}
        shape |= {"batches_to_run": run} if run < batches else {}
        raw = _largest(asked, {**shape, "rounds": max(1, rounds)}, "rounds", 1)
        note = (
            "nobody knows which batch a unit lies in, so a token costs less; what it costs if "
            "somebody did stands beside the price"
        )
    if raw is None:
        return None
    return asked.proposal(private_prediction.MECHANISM, raw, (note,))


def _by_counts(shape: dict[str, Any], asked: Asked, written: Mapping[str, int]) -> Proposal | None:
    """Return the request with the batches of each label that its count fills."""
    labels, counts = asked.terms.labels, asked.known.label_counts
    run = sum(max(1, round(count / shape["batch_size"])) for count in written.values())
    rounds = max(1, min(ENOUGH_TEXTS // run, MOST_PROMPTS // sum(written.values())))
    shape |= {"amplification": "allocation", "label_counts": [counts[label] for label in labels]}
    notes: tuple[str, ...] = ("each label has as many batches as its published count fills",)
    left_out = [label for label in labels if label not in written]
    if left_out:
        shape["labels"] = list(written)
        notes += (f"left out, with too few records for a batch: {', '.join(left_out)}",)
    if run > ENOUGH_TEXTS:  # all of a label's batches run where counts set them
        return None
    raw = _largest(asked, {**shape, "rounds": rounds}, "rounds", 1)
    return None if raw is None else asked.proposal(private_prediction.MECHANISM, raw, notes)


def _record_tokens(facts: Mapping[str, Any], tokens: int) -> dict[str, int] | None:
    """Return a cut of records that leaves a model's context room for a text; None: no room at
    all.
    """
    context = facts.get("context_tokens")
    default = private_prediction.PrivatePrediction.model_fields["record_tokens"].default
    if context is None:
        return {}
    room = context - TEMPLATE_TOKENS - tokens
    if room < LEAST_TOKENS:
        return None
    return {} if room >= default else {"record_tokens": room}


def _largest(
    asked: Asked, raw: Mapping[str, Any], name: str, step: int
) -> Mapping[str, Any] | None:
    """Return the request as it is, or with as many whole steps of field `name` as are affordable;
    None: not one is.
    """
    mechanism = private_prediction.MECHANISM

    def fits(steps: float) -> bool:
        try:
            parsed = mechanism.parse({**raw, name: int(steps) * step}, asked.terms)
        except InvalidRequest:
            return False
        return asked.affordable(mechanism.price(parsed, asked.terms))

    most = raw[name] // step
    if fits(most):
        return raw
    steps = bisect_whole(1, most, fits) if most > 1 and fits(1) else 0
    return {**raw, name: steps * step} if steps else None


# --- key phrases and counts: the least ε that is good, of round figures -------------------------

#: Terms that phrases are drawn from, at most and at least, and sequences of each label.
MOST_TERMS, LEAST_TERMS, SEQUENCES = 1_000, 50, 100


def _phrases(asked: Asked) -> Iterator[Proposal]:
    """Yield requests of `dp-kps`: four fifths of ε for the weights, and as many terms as stand out
    of the noise.
    """
    size, labels = asked.terms.public_size, max(1, len(asked.terms.labels))
    if size is None:
        return

    def request(epsilon: float) -> Proposal | None:
        weights = 0.8 * epsilon
        terms = min(MOST_TERMS, int(size / labels * weights / 4))
        raw = {
            "output": "phrases",
            "vocabulary_epsilon": round(epsilon / 5, 6),
            "kde_epsilon": round(weights, 6),
            "vocabulary_size": max(LEAST_TERMS, terms),
            "sequences_per_label": SEQUENCES,
        }
        return asked.proposal(dp_kps.MECHANISM, raw)

    yield from first_good(request(each) for each in EPSILONS)


def _counts(asked: Asked) -> Iterator[Proposal]:
    """Yield requests of `noisy-count`; without a public size, which tells how good one is, of ε
    0.1 alone.
    """
    epsilons = EPSILONS if asked.terms.public_size is not None else (0.05, 0.1)
    yield from first_good(
        asked.proposal(noisy_count.MECHANISM, {"epsilon": each}) for each in epsilons
    )


_CANDIDATES: Mapping[str, Callable[[Asked], Iterator[Proposal]]] = {
    epsvec.MECHANISM.id: _steered,
    private_prediction.MECHANISM.id: _texts,
    dp_kps.MECHANISM.id: _phrases,
    summary_oneshot.MECHANISM.id: group_plans.summaries,
    summary_adapter.MECHANISM.id: group_plans.adapter,
    noisy_count.MECHANISM.id: _counts,
}
