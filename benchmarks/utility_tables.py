"""The tables of benchmarks.utility: which cells each has."""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from accountant.core.privacy.price import Terms
from benchmarks import utility_clusters, utility_context, utility_data, utility_runs
from benchmarks.utility_bench import METRICS, Bench, Way, compared, settings_of
from benchmarks.utility_cells import Made, Repeats, Table
from workers.embedding.embedders import embed_all
from workers.models import Prompt


def context(bench: Bench) -> Table:
    """The table of what the model makes of a record in its context."""
    targets, rows = bench.sizes.targets, []
    for name, template in utility_context.TEMPLATES.items():
        settings = {"model": bench.sha256, "template": template, "targets": targets, "seed": 0}
        made = bench.store.once(
            "context",
            settings,
            lambda t=template: utility_context.measure(bench.model, t, targets, 0),
        )
        if made is not None:
            shown = [
                f"{made[key]:.3f}" for key in ("none", "own", "other", "two", "kl_first", "kl")
            ]
            rows.append([name, *shown, f"{made['gain']:.3f} ± {made['gain_error']:.3f}"])
    columns = [
        "template",
        "no record",
        "own class",
        "other class",
        "two of own",
        "KL first",
        "KL mean",
        "other - own",
    ]
    settings = {
        "model": f"{bench.folder.name} ({bench.sha256[:12]})",
        "text": f"DBpedia, 14 classes, {targets} targets of 40 tokens, records of 64",
        "unit": "nats per token, ± standard error",
    }
    return Table("context", "What a record in the context tells the model", columns, rows, settings)


def clusters(bench: Bench) -> Table:
    """Paper 001, Table 2, on all records of the corpus."""
    corpus = utility_data.load(bench.dataset, None)
    count = len(corpus.private.texts)
    rows = []
    for wanted, kept in ((500, 100), (50, 10)):
        made = []
        for seed in range(bench.sizes.seeds):
            settings = {"dataset": bench.dataset, "clusters": wanted, "kept": kept, "seed": seed}
            settings |= {"records": count, "rounds": utility_clusters.ROUNDS, "figures": "with AMI"}
            run = partial(_cluster, corpus, wanted, kept, seed)
            made.append(bench.store.once("clusters", settings, run))
        rows += _cluster_rows(
            wanted, [each["rows"] for each in made if each is not None], bench.sizes.seeds
        )
    columns = ["k", "clustering", "ε", "clusters of ≥ 2", "of ≥ 100", "largest", "V-measure", "AMI"]
    settings = {
        "corpus": f"{bench.dataset}, {count:,} records",
        "public": "DBpedia, 14,000 texts",
        "embedding": utility_data.EMBEDDING.name,
        "DP k-means": f"{utility_clusters.ROUNDS} rounds, δ = n^-1.1",
        "repeats": bench.sizes.seeds,
    }
    title = f"Clusterings (001, Table 2), {bench.dataset}"
    return Table(f"clusters-{bench.dataset}", title, columns, rows, settings)


def _cluster(corpus: utility_data.Corpus, count: int, kept: int, seed: int) -> Made:
    points = embed_all(utility_data.embedder(), corpus.private.texts)
    public = embed_all(utility_data.embedder(), utility_data.public_texts())
    task = utility_clusters.Task(points, public, count, kept, seed)
    return utility_clusters.compare(task, (0.1, 1.0, 10.0))


def _cluster_rows(count: int, made: Sequence[Sequence[Made]], wanted: int) -> list[list[str]]:
    rows = []
    for each in zip(*made, strict=True):
        shown = []
        for key, digits in (
            ("clusters", 0),
            ("of_100", 0),
            ("largest", 3),
            ("v_measure", 3),
            ("adjusted", 3),
        ):
            repeats = Repeats(wanted)
            for row in each:
                repeats.add(row[key])
            shown.append(repeats.shown(digits))
        rows.append([str(count), each[0]["method"], each[0]["epsilon"], *shown])
    return rows


def raw_prediction(bench: Bench, **more: Any) -> Made:
    """Parameters of private-prediction that the rows of a table share."""
    size = bench.sizes
    batches = max(1, size.records // (len(bench.corpus.labels) * size.batch))
    return {
        "batch_size": size.batch,
        "batches_per_label": batches,
        "clip": size.clip,
        "temperature": size.temperature,
        "max_text_tokens": size.tokens,
        "record_tokens": 64,
        "template": size.template,
        **({"stop": size.stop} if size.stop else {}),
        **more,
    }


def affordable(bench: Bench, raw: Mapping[str, Any]) -> Made:
    """`raw` with the most tokens of a batch that the table's ε allows."""
    terms = utility_runs.terms_of(bench.corpus)
    tokens = utility_runs.fitted(
        "private-prediction", raw, terms, bench.sizes.epsilon, "tokens_per_batch"
    )
    return {**raw, "tokens_per_batch": min(int(tokens), bench.sizes.most_tokens)}


def of_two(bench: Bench, raw: Mapping[str, Any]) -> Made:
    """`raw` with a public text beside every record, which costs nothing."""
    two = {"examples_per_context": 2, "context_partner": "public", "public_corpus": "public_corpus"}
    return {**raw, **two, "template": bench.sizes.template_of_two}


def job(bench: Bench, raw: Mapping[str, Any]) -> Way:
    return lambda repeat: bench.job("private-prediction", raw, repeat)


def _described(bench: Bench, raw: Mapping[str, Any]) -> Made:
    terms = utility_runs.terms_of(bench.corpus)
    return {
        "batch size": raw["batch_size"],
        "batches": raw["batches_per_label"] * len(terms.labels),
        "tokens of a batch": raw["tokens_per_batch"],
        "clip": raw["clip"],
        "temperature": raw["temperature"],
        "δ": terms.delta,
        "template": repr(raw["template"]),
    }


#: Clips and temperatures of the table `support`: their quotient decides what a token costs.
SUPPORT_DRAWS = ((9.0, 1.5), (6.0, 1.5), (6.0, 1.0), (4.0, 1.0), (4.0, 0.7), (2.0, 0.5))
SUPPORTS = (0, 1_000, 100, 50)
#: What tokens are priced for, whatever the runs hold: a dataset of this size, and batches of this.
PRICED = {"records": 5_000, "batch_size": 64}


def support(bench: Bench) -> Table:
    """What the mean draws by clip, temperature and public support, one token ahead of real texts.

    No text is written and nothing is paid: laws are computed, and ε is what they would cost.
    """
    settings = [(*draw, top_k) for top_k in SUPPORTS for draw in SUPPORT_DRAWS]
    named = {"table": "support", **bench.common, "settings": settings}
    named |= {"template": bench.sizes.template, "batch": bench.sizes.batch}
    made = bench.store.once("support", named, lambda: {"rows": _draws(bench, settings)})
    rows = []
    for (clip, temperature, top_k), own in zip(
        settings, made["rows"] if made else (), strict=False
    ):
        bought = _tokens_bought(bench, {"clip": clip, "temperature": temperature})
        shown = [f"{own[name]:.2f}" for name in ("loss", "best", "kept")]
        rows.append([f"{clip:g} / {temperature:g}", str(top_k or "all"), *shown, str(bought)])
    return Table(
        f"support-{bench.dataset}",
        f"Public supports, {bench.dataset}",
        ["clip / temperature", "top_k", "loss ↓", "likeliest ↑", "real token kept ↑", "tokens ↑"],
        rows,
        {
            "model": f"{bench.folder.name} ({bench.sha256[:12]})",
            "batches": f"{bench.sizes.batch} records each, all of one label",
            "texts": f"{bench.sizes.targets} held-out ones of 40 tokens",
            "tokens": f"of a batch at ε {bench.sizes.epsilon:g}, without amplification, {PRICED}",
            "template": repr(bench.sizes.template),
        },
        bench.notes,
    )


def _draws(bench: Bench, settings: Sequence[tuple[float, float, int]]) -> list[Made]:
    corpus, batch = bench.corpus, bench.sizes.batch
    found: list[list[dict[str, float]]] = []
    targets = zip(corpus.held_out.texts, corpus.held_out.labels, strict=True)
    for number, (target, label) in enumerate(islice(targets, bench.sizes.targets)):
        prompt = Prompt(bench.model.tokenizer, bench.sizes.template, label)
        private = zip(corpus.private.texts, corpus.private.labels, strict=True)
        own = [text for text, given in private if given == label]
        first = number * batch % max(1, len(own) - batch)
        records = own[first : first + batch]
        found.append(utility_context.draws(bench.model, prompt, records, target, settings))
    return [
        {name: statistics.fmean(each[name] for each in place) for name in place[0]}
        for place in zip(*found, strict=True)
    ]


def _tokens_bought(bench: Bench, draw: Mapping[str, float]) -> int:
    size = PRICED["records"]
    terms = Terms(delta=size**-utility_runs.DELTA_POWER, public_size=size)
    raw = {**draw, "batch_size": PRICED["batch_size"]}
    epsilon = bench.sizes.epsilon
    return int(utility_runs.fitted("private-prediction", raw, terms, epsilon, "tokens_per_batch"))


def examples(bench: Bench) -> Table:
    """Paper 001, Table 4: one record in a context, or two of which one is public."""
    mean = affordable(bench, raw_prediction(bench))
    ways = {"1": job(bench, mean), "2, the second public": job(bench, of_two(bench, mean))}
    return Table(
        f"examples-{bench.dataset}",
        f"Examples in a context (001, Table 4), {bench.dataset}",
        ["examples", "ε", *METRICS],
        compared(bench, ways),
        settings_of(
            bench,
            **_described(bench, mean),
            **{"template of two": repr(bench.sizes.template_of_two)},
        ),
        bench.notes,
    )
