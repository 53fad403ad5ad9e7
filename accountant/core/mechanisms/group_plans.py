"""Summaries of groups, and the adapter that reads them out: a part of the planner (planning).

public size / groups, an adapter's parameters ──▶ a request of `summary-oneshot`
no adapter yet: public corpora, model's facts ──▶ a free request of `summary-adapter`
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from accountant.core.mechanisms import group_means, summary_adapter, summary_oneshot
from accountant.core.mechanisms.outlooks import GOOD_GROUP, LEAST_TOKENS
from accountant.core.mechanisms.proposals import EPSILONS, Asked, Known, Proposal, first_good
from accountant.core.mechanisms.summary_oneshot import STATE_LENGTHS
from accountant.core.privacy.price import Terms

#: Summaries of each group.
DECODINGS = 4
#: Training as docs/summaries.md measured it; a state is read where the subject comes next.
TRAINING: Mapping[str, Any] = {
    "template": "{record}\nIn short, this is about",
    "start": "A text about it:",
    "public_texts": 600,
    "set_size": 8,
    "steps": 72,
    "evaluate_every": 12,
    "patience": 4,
    "soft_tokens": 10,
}
#: Tokens of a record, of a summary, and set aside for that template.
RECORD_TOKENS, SUMMARY_TOKENS, PROMPT_TOKENS = 64, 48, 16
#: What stands for the job of an adapter that nobody has trained yet.
UNTRAINED = "untrained"


def size_of(terms: Terms) -> int | None:
    """Return the public size of a group if all are alike; None: there is none, or it is small."""
    if terms.public_size is None or not terms.groups:
        return None
    size = terms.public_size // len(terms.groups)
    return size if size >= GOOD_GROUP else None


def lacking(asked: Asked) -> str:
    """Return why there is no request for summaries."""
    if not asked.terms.groups:
        return "the dataset declares no groups"
    if size_of(asked.terms) is None:
        return f"summaries need about {GOOD_GROUP} records in each group"
    if not asked.known.adapters and not asked.known.corpora:
        return "they need an adapter, and no public corpus is here to train one on"
    return "no mean of a group is affordable, or the model's context is too short"


def summaries(asked: Asked) -> Iterator[Proposal]:
    """Yield requests of `summary-oneshot` that an adapter reads out, from the cheapest on."""
    size = size_of(asked.terms)
    if size is None or not asked.known.adapters:
        return
    job, trained = next(iter(asked.known.adapters.items()))
    same = ("template", "record_tokens", "clip", "centre", "components", "soft_tokens")
    shape = {name: trained[name] for name in same}
    if trained["centre"] or trained["components"] is not None:
        shape |= {"public_corpus": trained["corpus"], "public_texts": trained["public_texts"]}
    shape |= {"adapter": job, "public_size": size, "decodings": DECODINGS}
    shape |= {"max_tokens": max(LEAST_TOKENS, trained["target_tokens"])}
    notes = (
        "paid once: more summaries are free",
        f"each group is taken to have {size:,} records: name other sizes in group_sizes",
    )
    mechanism = summary_oneshot.MECHANISM
    yield from first_good(
        asked.proposal(mechanism, {**shape, "epsilon": each}, notes) for each in EPSILONS
    )


def adapter(asked: Asked) -> Iterator[Proposal]:
    """Yield the free request that trains an adapter for summaries, where there is none."""
    raw = _training(asked)
    if raw is None or asked.known.adapters:
        return
    mechanism, corpora = summary_adapter.MECHANISM, ", ".join(asked.known.corpora)
    trained = mechanism.parse(raw, asked.terms).model_dump()
    notes = (
        "Train this first: it turns noisy means into words, reads public texts alone and is free.",
        "When it has ended, ask for summaries again.",
        f"Take the corpus that is most like your data: {corpora}.",
    )
    for then in summaries(replace(asked, known=Known({UNTRAINED: trained}))):
        parsed = summary_oneshot.MECHANISM.parse(then.parameters, asked.terms)
        sigma = float(f"{group_means.sigma(parsed, asked.terms):.4g}")
        found = replace(then.outlook, why=f"first an adapter, free; then {then.outlook.why}")
        yield replace(
            then,
            outlook=found,
            mechanism=mechanism.id,
            parameters={**raw, "sigma": sigma},
            makes=None,
            notes=notes,
        )


def _training(asked: Asked) -> dict[str, Any] | None:
    """Return what an adapter is trained with; None: no corpus, or no room in a model's context."""
    context = asked.facts.get("context_tokens") or RECORD_TOKENS + PROMPT_TOKENS
    record = min(RECORD_TOKENS, context - PROMPT_TOKENS)
    target = min(SUMMARY_TOKENS, context - TRAINING["soft_tokens"] - 1)
    if not asked.known.corpora or min(record, target) < LEAST_TOKENS:
        return None
    clip = STATE_LENGTHS.get(asked.facts.get("sha256", ""))
    return {
        **TRAINING,
        "corpus": asked.known.corpora[0],
        "record_tokens": record,
        "target_tokens": target,
        **({} if clip is None else {"clip": clip}),
    }
