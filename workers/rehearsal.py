"""Rehearsals: the run of a mechanism with its real noise, on the texts of a registered public
corpus.

    corpus ──▶ held out ──────────────────────────────────▶ compared ──▶ report
           └─▶ stand for records ──▶ the mechanism, metered ──▶ texts ──┘

Nothing private is within reach: there is no dataset, no address of one, and no ledger. The noise is
drawn by a meter of the mechanism's own price, which is told to nobody and charged to nobody.
"""

import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import SystemRandom
from typing import Any, cast

from accountant.core import mechanisms
from accountant.core.errors import DataError
from accountant.core.mechanisms import rehearsal
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.evaluation import Evaluation
from accountant.core.mechanisms.seconds import MOST_COMPARED
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicText
from workers.data.records import Record, Records
from workers.embedding import embedders
from workers.evaluation import zero_shot
from workers.evaluation.run import Embedding, Sides, Texts, Tools, evaluate
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner
from workers.interface import Artifact, Checker, Count, Preparer, Progress, Public, Text
from workers.mechanisms import runner
from workers.noise.meter import Meter

#: Texts of a corpus that are looked at.
MOST_LOOKED_AT = 1_000_000
LEAST = 10
#: The length of a zero-shot text where the mechanism names none.
MOST_TOKENS = 64
HEADLINE = ("loss", "usable")
PARTS = ("finished", "duplicates", "talk", "copying")


@dataclass(frozen=True)
class _Corpus:
    """Public texts in the place of records, those held out, and how labels were found."""

    records: Records
    held_out: Texts
    labelled: str


class Runner:
    """Runs the rehearsal of the mechanism that the parameters' class names."""

    def total(self, parameters: Any, terms: Terms) -> int:
        """Return the steps of what is rehearsed."""
        mechanism, rehearsed = _rehearsed(parameters, terms)
        return runner(mechanism.id).total(rehearsed, terms)

    def make(
        self, parameters: Any, terms: Terms, model: Any, progress: Progress, public: Public
    ) -> Iterator[Any]:
        """Yield all that the mechanism makes, then a report. Raises DataError for small corpora."""
        mechanism, rehearsed = _rehearsed(parameters, terms)
        running = runner(mechanism.id)
        most = parameters.rehearsal_texts or terms.public_size or MOST_LOOKED_AT
        corpus = _split(
            list(islice(public.corpus(rehearsal.CORPUS).texts(), MOST_LOOKED_AT)), most, terms
        )
        if isinstance(running, Checker):
            running.check(rehearsed, terms, public)
        if isinstance(running, Preparer):
            running.prepare(rehearsed, terms, model, (0, 1))
        # the model of the job, or the writer's where it is a local one
        tools = Tools(
            _embedding(parameters, public), model or next(iter(public.models.values()), None)
        )
        asked = _asked(rehearsed, terms)
        price = mechanism.price(rehearsed, terms)
        filled = rehearsal.filled(rehearsed, terms, len(corpus.records.records))
        paid = mechanism.price(filled, terms)
        meter = Meter(paid.dp or FREE, paid.ex_post_draws)
        began = time.monotonic()
        lines: list[Any] = []
        for item in running.run(filled, terms, corpus.records, model, meter, progress, public):
            # another kind: no job takes it for a release of the dataset
            if isinstance(item, Artifact):
                yield replace(item, kind=rehearsal.MADE)
            else:
                lines.append(item)
                yield item
        seconds = time.monotonic() - began
        progress.advance(max(0, progress.total - progress.done))
        writes = mechanism.yields(rehearsed, terms)
        report = {
            "rehearses": mechanism.id,
            "corpus": parameters.rehearsal_corpus,
            "texts_read": len(corpus.records.records),
            "public_size": terms.public_size,
            "labels": corpus.labelled,
            "seconds": round(seconds, 1),
            "epsilon": None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0],
            "delta": terms.delta,
            "job_writes": None if writes is None else writes.sentence(),
            **_described(lines, corpus),
            "figures": _figures(lines, corpus, tools, asked, progress.check),
        }
        yield Artifact.of_json("report", rehearsal.REPORT, report)


def _rehearsed(parameters: Any, terms: Terms) -> tuple[Mechanism[Any], Any]:
    """Return the mechanism and its own parameters."""
    mechanism = mechanisms.get(parameters.rehearses)
    fields = parameters.model_dump(mode="json")
    used = mechanism.used_fields(fields)
    return mechanism, mechanism.parse({name: fields[name] for name in used}, terms)


# --- the corpus ---------------------------------------------------------------------------------


def _split(texts: list[tuple[PublicText, str | None]], most: int, terms: Terms) -> _Corpus:
    """Return a fifth of the texts, drawn at random, is held out; of the others `most` stand for
    records.

    Where all names of labels (or groups) are labels of the corpus too, texts keep theirs and others
    are left out; else each text gets a label by a coin, so that as many texts as of the dataset's
    are in each.
    """
    labels_seen = {label for _, label in texts}
    by_name = bool(terms.labels) and set(terms.labels) <= labels_seen
    if by_name:
        texts = [text for text in texts if text[1] in terms.labels]
    if len(texts) < LEAST:
        problem = f"{rehearsal.CORPUS}: it has {len(texts)} texts for this dataset's labels"
        raise DataError(f"{problem}, and a rehearsal needs {LEAST}")
    random = SystemRandom()
    random.shuffle(texts)
    held = rehearsal.held_out(len(texts))
    groups_by_name = bool(terms.groups) and set(terms.groups) <= labels_seen
    records = tuple(
        Record(
            unit=f"text {number}",
            label=_named(label, terms.labels, by_name, random),
            text=str(text),
            group=_named(label, terms.groups, groups_by_name, random),
        )
        for number, (text, label) in enumerate(texts[held : held + most])
    )
    labels: tuple[str | None, ...] = terms.labels or (None,)
    key = secrets.token_bytes(32)
    out = [text for text, _ in texts[:held]]
    return _Corpus(
        Records(labels, records, key, groups=terms.groups),
        Texts(out, [str(label) for _, label in texts[:held]] if by_name else None),
        "by name" if by_name else "by chance" if terms.labels else "none",
    )


def _named(
    label: str | None, names: Sequence[str], by_name: bool, random: SystemRandom
) -> str | None:
    if not names:
        return None
    return label if by_name and label in names else random.choice(names)


# --- the report ---------------------------------------------------------------------------------


def _described(made: list[Any], corpus: _Corpus) -> dict[str, Any]:
    """Return what was made: texts' lengths in words, or counts' errors."""
    texts = [item for item in made if isinstance(item, Text)]
    if texts:
        words = sorted(len(text.text.split()) for text in texts)
        return {
            "what": "texts",
            "number": len(texts),
            "complete": round(sum(text.complete for text in texts) / len(texts), 3),
            "words": {"least": words[0], "median": statistics.median(words), "most": words[-1]},
        }
    counts = [item for item in made if isinstance(item, Count)]
    if not counts:
        return {"what": "lines", "number": len(made)}
    errors = [abs(count.count - _truth(corpus.records, count.label)) for count in counts]
    return {
        "what": "counts",
        "number": len(counts),
        "error": {"mean": round(statistics.mean(errors), 2), "most": max(errors)},
    }


def _truth(records: Records, label: str | None) -> int:
    return sum(label is None or record.label == label for record in records.records)


def _figures(
    made: list[Any],
    corpus: _Corpus,
    tools: Tools,
    asked: zero_shot.Asked | None,
    check: Callable[[], None],
) -> list[dict[str, Any]]:
    """Return each metric of the texts; beside it zero-shot's, and that of the texts read."""
    texts = [item for item in made if isinstance(item, Text)][:MOST_COMPARED]
    if not texts:
        return []
    labelled = corpus.held_out.labels is not None
    ours = replace(_side(texts, labelled), complete=[text.complete for text in texts])
    read = _side(corpus.records.records[:MOST_COMPARED], labelled)
    sides = Sides(ours, read, corpus.held_out, why_no_zero_shot="it has no prompt or no model")
    if asked is not None and tools.model is not None:
        writer = LocalWriter(tools.model, generator(tools.model.device, None))
        written = zero_shot.write(writer, asked, len(texts))
        sides = replace(sides, zero_shot=written if labelled else replace(written, labels=None))
    metrics = [*HEADLINE, *(("labels",) if labelled else ()), *PARTS]
    metrics += ["mauve", "frechet"] if tools.embedding else []
    metrics += ["lengths", "openings", *(("tstr",) if labelled else ())]
    evaluation = Evaluation(from_job="-" * 36, corpus="-", metrics=", ".join(metrics))
    figures = []
    for figure in evaluate(evaluation, sides, tools):
        check()
        fields = figure.to_json()
        figures.append({name: fields[name] for name in fields if name not in ("series", "details")})
    return figures


def _side(each_of: Sequence[Text | Record], labelled: bool) -> Texts:
    # no metric here asks a Writer
    texts = cast("list[PublicText]", [item.text for item in each_of])
    return Texts(texts, [str(item.label) for item in each_of] if labelled else None)


def _asked(rehearsed: Any, terms: Terms) -> zero_shot.Asked | None:
    """Return how zero-shot texts are asked for: as the job's, without a record."""
    tokens = getattr(rehearsed, "max_text_tokens", None) or getattr(rehearsed, "max_tokens", None)
    stop = getattr(rehearsed, "stop", None) or ""
    manner = Manner(tokens or MOST_TOKENS, zero_shot.TEMPERATURE, stop)
    return zero_shot.asked_of(rehearsed, terms, manner)


def _embedding(parameters: Any, public: Public) -> Embedding | None:
    name = parameters.rehearsal_embedding
    if name is None:
        return None
    embedder = public.embedder(rehearsal.EMBEDDING)
    return Embedding(name, lambda texts: embedders.embed_all(embedder, texts, 256))
