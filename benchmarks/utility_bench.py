"""One model and one corpus of benchmarks.utility: its cells, their metrics, and how rows are
shown.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import utility_data, utility_runs
from benchmarks.utility_cells import Made, Repeats, Store
from workers import models
from workers.embedding.embedders import embed_all
from workers.evaluation import fidelity
from workers.evaluation.mauve import mauve
from workers.evaluation.transfer import Labelled, transfer
from workers.models import LocalModel

METRICS = ("MAUVE ↑", "Fréchet ↓", "TSTR ↑", "lengths ↓", "openings ↑")


@dataclass(frozen=True)
class Sizes:
    """The settings that decide a cell's run time. Paper 001: s 64 or 256, clip 9, temperature 1.5,
    1,000 texts.
    """

    seeds: int = 3
    targets: int = 140  # texts whose likelihood the table `context` takes; in turn of 14 classes
    records: int = 768
    texts: int = 80
    tokens: int = 40
    # of a batch, however many ε allows: each is a pass over all records
    most_tokens: int = 1_000_000
    batch: int = 32
    epsilon: float = 10.0
    clip: float = 6.0
    temperature: float = 1.0
    stop: str = ""
    template: str = "{record}</s><s>"
    template_of_two: str = "{partner}</s><s>{record}</s><s>"

    def defaults(self) -> Mapping[str, Any]:
        return asdict(self)


@dataclass
class Bench:
    """One model and one corpus at one size, and where finished cells lie."""

    folder: Path
    dataset: str
    sizes: Sizes
    store: Store
    notes: list[str] = field(default_factory=list)

    @cached_property
    def sha256(self) -> str:
        return models.digest(self.folder)

    @cached_property
    def model(self) -> LocalModel:
        return models.load(self.folder, self.sha256)

    @cached_property
    def corpus(self) -> utility_data.Corpus:
        return utility_data.load(self.dataset, self.sizes.records)

    @property
    def common(self) -> Made:
        """What every cell of texts depends on beside its own parameters."""
        return {"dataset": self.dataset, "records": self.sizes.records, "model": self.sha256}

    def cut(self, texts: Sequence[str]) -> list[str]:
        """Real texts as long as synthetic ones may be."""
        encode, decode = self.model.tokenizer.encode, self.model.tokenizer.decode
        most = self.sizes.tokens
        return [
            decode(encode(text[: 32 * most], add_special_tokens=False)[:most]) for text in texts
        ]

    @cached_property
    def held_out(self) -> Labelled:
        return Labelled(self.cut(self.corpus.held_out.texts), self.corpus.held_out.labels)

    # --- cells ----------------------------------------------------------------------------------

    def job(self, mechanism: str, raw: Mapping[str, Any], repeat: int) -> Made | None:
        """One job of a mechanism."""
        settings = {
            **self.common,
            "way": mechanism,
            "raw": dict(raw),
            "repeat": repeat,
        }
        return self.store.once(
            "texts",
            settings,
            lambda: utility_runs.run(mechanism, raw, self.corpus, self.model),
        )

    # --- figures --------------------------------------------------------------------------------

    def figures(self, made: Made, repeat: int) -> Made:
        """Metrics of `texts` of the texts, which the repeat's seed picks, against as many held-out
        ones.
        """
        draw = random.Random(repeat)
        pairs = [(text, label) for text, label in made["texts"] if text.strip()]
        if len(pairs) < self.sizes.texts:
            self.notes.append(
                f"a cell has {len(pairs)} texts, fewer than {self.sizes.texts}: not measured"
            )
            return dict.fromkeys(METRICS)
        taken = draw.sample(pairs, self.sizes.texts)
        texts, labels = [text for text, _ in taken], [label for _, label in taken]
        real = draw.sample(self.held_out.texts, self.sizes.texts)
        ours, theirs = (embed_all(utility_data.embedder(), each) for each in (texts, real))
        name = utility_data.EMBEDDING.name
        found = (
            mauve(ours, theirs, seed=repeat, features=name),
            fidelity.frechet(ours, theirs, features=name),
            transfer(Labelled(texts, labels), self.held_out),
            fidelity.lengths(texts, real),
            fidelity.openings(texts, real),
        )
        return {metric: figure.value for metric, figure in zip(METRICS, found, strict=True)}


Way = Callable[[int], Made | None]


def compared(bench: Bench, ways: Mapping[str, Way]) -> list[list[str]]:
    """A row for each way: its name, what it costs, its metrics. The first repeat of all comes
    first.
    """
    made: dict[str, list[tuple[int, Made]]] = {name: [] for name in ways}
    for repeat in range(bench.sizes.seeds):
        for name, way in ways.items():
            if (each := way(repeat)) is not None:
                made[name].append((repeat, each))
    rows = []
    for name, cells in made.items():
        columns = {metric: Repeats(bench.sizes.seeds) for metric in METRICS}
        for repeat, each in cells:
            for metric, value in bench.figures(each, repeat).items():
                columns[metric].add(value)
        rows.append(
            [
                name,
                privacy([each for _, each in cells]),
                *(each.shown() for each in columns.values()),
            ]
        )
    return rows


def privacy(made: Sequence[Made]) -> str:
    """ε as it was priced, or the ex-post ε that was realized, over the repeats."""
    if not made:
        return "–"
    parts = []
    spent = [each["ex_post_epsilon"] for each in made if each["ex_post_epsilon"] is not None]
    if spent:
        ends = dict.fromkeys(f"{each:.2f}" for each in (min(spent), max(spent)))
        parts.append(f"{' to '.join(ends)} ex post")
    if made[0]["epsilon"] is not None and (made[0]["epsilon"] or not spent):
        parts.append(f"{made[0]['epsilon']:.2f}")
    return " + ".join(parts)


def settings_of(bench: Bench, **more: Any) -> Made:
    """Settings of a table of texts."""
    size = bench.sizes
    return {
        "model": f"{bench.folder.name} ({bench.sha256[:12]})",
        "corpus": bench.dataset,
        "private records": len(bench.corpus.private.texts),
        "texts compared": f"{size.texts} with as many held-out ones, at most {size.tokens} tokens "
        "each",
        "MAUVE": f"scaling 5, {max(2, round(size.texts / 10))} buckets, "
        f"{utility_data.EMBEDDING.name}",
        "TSTR": f"TF-IDF and logistic regression, {len(bench.corpus.held_out.texts)} held-out "
        "texts",
        "repeats": size.seeds,
        **more,
    }
