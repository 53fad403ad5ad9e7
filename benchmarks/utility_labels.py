"""Unequal labels: whether the texts of a rare label are as good as those of a common one.

A label plays both parts: 90 % of one corpus and 2 % of another, with the same number of records in
all. Three ways write its texts, and each is compared with held-out texts of that label alone, which
are the same for all three. A repeat is another label, and other records.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks import utility_data, utility_runs
from benchmarks.utility_bench import Bench, settings_of
from benchmarks.utility_cells import Made, Repeats, Table
from workers.embedding.embedders import embed_all
from workers.evaluation.mauve import mauve
from workers.evaluation.transfer import Labelled

SHARES = (0.90, 0.08, 0.02)
COMMON, RARE, ALIKE = "90 %", "2 %", "2 %, all labels alike"


def unequal(
    corpus: utility_data.Corpus, labels: Sequence[str], records: int, seed: int
) -> utility_data.Corpus:
    """`records` of the private part: the shares above, of the labels in this order."""
    draw = random.Random(seed)
    pairs = []
    for label, share in zip(labels, SHARES, strict=True):
        own = [
            text
            for text, given in zip(corpus.private.texts, corpus.private.labels, strict=True)
            if given == label
        ]
        pairs += [(text, label) for text in draw.sample(own, round(share * records))]
    draw.shuffle(pairs)
    private = Labelled([text for text, _ in pairs], [label for _, label in pairs])
    return replace(corpus, labels=tuple(labels), private=private)


def texts(
    bench: Bench, whole: utility_data.Corpus, way: str, repeat: int
) -> tuple[str, Made | None]:
    """(label, texts of it that one job wrote). Every way writes at least `texts` of them."""
    size, count = bench.sizes, len(whole.labels)
    label = whole.labels[repeat % count]
    others = [whole.labels[(repeat + more) % count] for more in (1, 2)]
    corpus = unequal(
        whole, [label, *others] if way == COMMON else [*others, label], size.records, repeat
    )
    counts = [round(share * size.records) for share in SHARES]
    batches = max(1, counts[corpus.labels.index(label)] // size.batch)
    raw = {
        "batch_size": size.batch,
        "label_counts": counts,
        "labels": [label],
        "clip": size.clip,
        "temperature": size.temperature,
        "template": size.template,
        "max_text_tokens": size.tokens,
        "record_tokens": 64,
        **({"stop": size.stop} if size.stop else {}),
    }
    if way == ALIKE:
        del raw["label_counts"]
        batches = raw["batches_per_label"] = max(1, size.records // (count - 1) // size.batch)
    # A quarter more than is compared: some texts are empty.
    raw["tokens_per_batch"] = size.tokens * -(-5 * size.texts // (4 * batches))
    settings = {**bench.common, "way": "unequal", "as": way, "raw": raw, "repeat": repeat}
    run = partial(utility_runs.run, "private-prediction", raw, corpus, bench.model)
    return label, bench.store.once("texts", settings, run)


def unequal_labels(bench: Bench) -> Table:
    """MAUVE of a label that is 90 % of the records, and of the same one where it is 2 %."""
    size, ways = bench.sizes, (COMMON, RARE, ALIKE)
    whole = utility_data.load(bench.dataset, None)
    rows, scores = [], {way: Repeats(size.seeds) for way in ways}
    epsilons: dict[str, Repeats] = {way: Repeats(size.seeds) for way in ways}
    for repeat in range(size.seeds):
        row = []
        for way in ways:
            label, made = texts(bench, whole, way, repeat)
            score = None if made is None else _mauve(bench, whole, label, made, repeat)
            scores[way].add(score)
            epsilons[way].add(None if made is None else made["epsilon"])
            row.append("–" if score is None else f"{score:.3f}")
        rows.append([f"{repeat + 1}: {label}", *row])
    rows.append(["mean", *(scores[way].shown() for way in ways)])
    rows.append(["ε of the job", *(epsilons[way].shown(1) for way in ways)])
    described = {
        "batch size": size.batch,
        "shares": [f"{share:.0%}" for share in SHARES],
        "clip": size.clip,
        "temperature": size.temperature,
        "template": repr(size.template),
    }
    settings = settings_of(
        replace(bench, sizes=replace(size, records=min(size.records, 96))), **described
    )
    settings |= {"private records": size.records}
    del settings["TSTR"]
    return Table(
        f"labels-{bench.dataset}",
        f"Unequal labels, {bench.dataset}: MAUVE of one label's texts",
        ["repeat: label", *ways],
        rows,
        settings,
        bench.notes,
    )


def _mauve(
    bench: Bench, whole: utility_data.Corpus, label: str, made: Made, repeat: int
) -> float | None:
    """Against as many held-out texts of the label, the same whoever wrote."""
    wanted, draw = bench.sizes.texts, random.Random(repeat)
    own = [
        text
        for text, given in zip(whole.held_out.texts, whole.held_out.labels, strict=True)
        if given == label
    ]
    real = bench.cut(draw.sample(own, wanted))
    written = [text for text, given in made["texts"] if given == label and text.strip()]
    if len(written) < wanted:
        bench.notes.append(
            f"a cell of {label} has {len(written)} texts, fewer than {wanted}: not measured"
        )
        return None
    ours = embed_all(utility_data.embedder(), draw.sample(written, wanted))
    theirs = embed_all(utility_data.embedder(), real)
    value: float = mauve(ours, theirs, seed=repeat, features=utility_data.EMBEDDING.name).value
    return value
