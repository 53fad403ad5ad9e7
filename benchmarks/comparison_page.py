"""The page of benchmarks.comparison: docs/comparison.md and its plots, from figures alone.

    python -m benchmarks.comparison_page

writes what the ask page cites of them: accountant/queries/measured.json.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import cycle
from pathlib import Path
from typing import Any

Cell = Mapping[str, Any]
#: Model, corpus, row, ε, seed, and records-texts-tokens: a cell's name, taken apart.
Key = tuple[str, ...]

HEAD = """# What to take: all mechanisms side by side

| you have | take | why |
|---|---|---|
| 5,000 reviews, and want texts like them at ε 3 | `epsvec`, as `exchequer ask DATASET --for \
texts` proposes it | paid once: more texts and other temperatures are free. About half \
were usable ([measured](utility.md#epsvec)) |
| the same, and a model that `epsvec` was never tuned for | `private-prediction` with allocation, \
`top_k` 100, clip 4, temperature 1 | as fluent as without records; more clip costs more and writes \
no better |
| 300 groups, and want a summary of each | `summary-oneshot` for groups of at least 100 records, \
else counts | noise drowns smaller groups ([measured](#summaries-of-groups)) |
| records, and want to know what they talk about | `dp-kps` with output phrases | paid once \
([measured](utility.md#phrases-of-dp-kps)) |

ε bounds how much one record can change what is written: smaller is safer.

## Figures

`python -m benchmarks.comparison MODEL` writes this page. It has run {small} of the {all_small}
cells of `--small`, and {full} of the {all_full} of a whole run; a cell is one job on one corpus.
**With so few texts, only large differences mean anything**, and rows of different corpora can't be
compared. Sizes and rows are options: `--records`, `--texts`, `--tokens`, `--row "clip 6"`.

Rows are mechanisms, and these:

- *zero-shot*: the model without any record. What writes no better is not worth its ε.
- *paper*: `private-prediction` as its paper sets it: clip 9, temperature 1.5, all tokens.
- *support*: clip 4, temperature 1, and only the 100 tokens that are likeliest without a record.
- *allocation*: nobody knows which records share a batch, so tokens cost less.
- *clusters*, *median*: the paper's, with batches of like records, or with the median of
  predictions, whose ε is known afterwards.
- *epsvec* writes by its own prompt and at its own length: longer texts surprise less. *Fixed
  shots*: its examples alone.

Columns are means over a row's cells:

- *Finished*: the share of texts that were not cut. *Readable*: the share that surprises the model
  no more, and repeats itself no more, than real texts do.
- *Label*: the share that a classifier of real texts gives the label asked for.
- *Loss*: how much a token surprises the model without a record, in nats, minus zero-shot's. Below 0
  is more fluent, and may be duller.
- *MAUVE*: 1 where texts are spread like real ones; it needs 100 texts.
- *Seconds* are of a processor; on a GPU, of the one that drives it, with cells side by side.
- *ε*: what the job cost, with δ n^-1.1 for n records. `secpe` bounds instead how likely a secret is
  guessed: e^ε times as likely as by chance.
"""
BOUGHT = """
Texts over ε follow from prices alone. *Clusters* and *median* pay for each text too; the other
rows' ε does not grow with texts.

"""
PAIRS = """

## The paper's setting against support and allocation

*Both* is support and allocation. A share of right labels is uncertain by 0.2 with twenty texts, and
by 0.1 with a hundred.
"""
AUDIT = """
## Audits

Each row's own runner ran on planted records, each of them there by the toss of a coin, and an
attacker guessed from what was released which were. *Found* is the ε that so many right guesses
prove: at most *stated*, the ε of the price. *Halved* is what the audit finds with half of the noise
left out: above *stated*, so that the fault shows. An audit can find a fault, and finding none
proves nothing ([how](audits.md)).

    EXCHEQUER_RECORD=1 pytest tests/workers/privacy_audits/test_one_run.py -m "slow or release"

Jobs are small ones, made to be guessed; ε is at δ 10^-6, and a sound row fails once in 100,000
audits. For `secpe` all three are shares of secrets found, of which chance finds one in 20.
"""
#: Of a table: the name of a column, of its figure in a cell, and its digits.
COLUMNS = (
    ("texts", "texts", 0),
    ("tokens", "tokens", 0),
    ("finished", "finished", 2),
    ("readable", "readable", 2),
    ("label", "right label", 2),
    ("MAUVE", "mauve", 2),
    ("seconds", "seconds", 0),
)
#: A table of fewer rows compares too little: the plots show what else was changed.
LEAST_ROWS = 3
#: The row, or the mechanism, of each arm of the audit.
AUDITED = {
    "mean_of_logits": "paper, support",
    "secret_batches": "allocation, support + allocation",
    "clustered": "clusters",
    "median_of_logits": "median",
    "ink": "invisible-ink",
    "vectors": "epsvec",
    "shots": "fixed shots",
    "term_counts": "dp-kps: words",
    "sketches": "dp-kps: phrases",
    "votes": "aug-pe",
    "secrets": "secpe",
    "summary_by_token": "summary-token",
    "summary_in_one_shot": "summary-oneshot",
    "laplace_counts": "noisy-count, Laplace",
    "gaussian_counts": "noisy-count, Gaussian",
}


def parted(known: Mapping[str, Cell]) -> dict[Key, Cell]:
    return {tuple(name.split("|")): cell for name, cell in known.items()}


def zero(cells: Mapping[Key, Cell], key: Key) -> Cell | None:
    """The zero-shot texts of a cell's model, corpus, seed and size."""
    model, corpus, _, _, seed, size = key
    return cells.get((model, corpus, "zero-shot", "3", seed, size))


def excess(cells: Mapping[Key, Cell], key: Key) -> float | None:
    """Loss of a cell's texts minus zero-shot's."""
    beside, own = zero(cells, key), cells[key].get("loss")
    return None if beside is None or own is None else own - beside["loss"]


def average(values: Iterable[Any]) -> float | None:
    there = [value for value in values if value is not None]
    return round(statistics.fmean(there), 3) if there else None


def mean(values: Iterable[Any], digits: int = 2) -> str:
    figure = average(values)
    return "–" if figure is None else f"{figure:.{digits}f}"


def paid(cell: Cell) -> float | None:
    """What a job cost, in ε."""
    cost: float | None = cell.get("ex post") or cell.get("epsilon")
    return cost


def table(cells: Mapping[Key, Cell], epsilon: str, size: str, rows: Sequence[str]) -> list[str]:
    """The means of each row at one ε and size; no column that all rows lack."""
    chosen = {
        name: [k for k in cells if k[2:4] == (name, epsilon) and k[5] == size] for name in rows
    }
    there = [cells[key] for keys in chosen.values() for key in keys]
    columns = [each for each in COLUMNS if any(cell.get(each[1]) is not None for cell in there)]
    names = ["cells", *(name for name, _, _ in columns), "loss", "ε"]
    lines = [f"| | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    for name, keys in chosen.items():
        own = [cells[key] for key in keys]
        shown = [mean([cell.get(key) for cell in own], digits) for _, key, digits in columns]
        shown += [mean([excess(cells, key) for key in keys]), mean([paid(cell) for cell in own])]
        if own:
            lines.append(f"| {name} | {len(own)} | {' | '.join(shown)} |")
    return lines


def extent(size: str) -> tuple[int, ...]:
    """What sizes are ordered by: texts wanted, then records, then tokens."""
    records, texts, tokens = map(int, size.split("-"))
    return texts, records, tokens


def pairs(cells: Mapping[Key, Cell]) -> list[str]:
    """The paper's setting against support and allocation at ε 3: the most texts of each corpus."""
    lines = [
        "| corpus | texts: paper | both | ε: paper | both | loss: paper | both "
        "| label: paper | both | MAUVE: zero-shot | paper | both |",
        f"|{'---|' * 12}",
    ]
    last: dict[str, str] = {}
    for key in sorted(cells, key=lambda key: (extent(key[5]), key)):
        both = [(*key[:2], row, *key[3:]) for row in ("paper", "support + allocation")]
        if key == both[0] and key[3] == "3" and both[1] in cells:
            figures = [str(cells[each]["texts"]) for each in both]
            figures += [mean([paid(cells[each])]) for each in both]
            figures += [mean([excess(cells, each)]) for each in both]
            figures += [mean([cells[each].get("right label")]) for each in both]
            beside = [zero(cells, key) or {}, *(cells[each] for each in both)]
            figures += [mean([each.get("mauve")]) for each in beside]
            last[key[1]] = f"| {NAMES.get(key[1], key[1])}, {key[5]} | {' | '.join(figures)} |"
    return lines + list(last.values())


def audits(kept: Mapping[str, Cell]) -> list[str]:
    """What the audit of each row found."""
    lines = ["| | stated | found | halved | guesses |", f"|{'---|' * 5}"]
    for arm, row in AUDITED.items():
        bounds = [f"{kept[arm][name]:.3g}" for name in ("stated", "lower_bound", "halved")]
        lines.append(f"| {row} | {' | '.join(bounds)} | {kept[arm]['guesses']:,} |")
    return lines


def page(
    known: Mapping[str, Cell],
    small: AbstractSet[str],
    full: AbstractSet[str],
    rows: Sequence[str],
    audited: Mapping[str, Cell],
) -> str:
    """The whole page. `small` and `full`: the cells of `--small` and of a whole run."""
    cells = parted(known)
    text = HEAD.format(
        small=len(small & known.keys()),
        all_small=len(small),
        full=len(full & known.keys()),
        all_full=len(full),
    )
    for size in sorted({key[5] for key in cells}, key=extent, reverse=True):
        for epsilon in sorted({key[3] for key in cells if key[5] == size}, key=float):
            records, texts, tokens = size.split("-")
            own = {key: each for key, each in cells.items() if (key[3], key[5]) == (epsilon, size)}
            if len({key[2] for key in own} & set(rows)) < LEAST_ROWS:
                continue
            corpora = dict.fromkeys(NAMES.get(key[1], key[1]) for key in own)
            devices = sorted({cell.get("device", "cpu").split(" in ")[0] for cell in own.values()})
            text += f"\n**ε {epsilon} and {records} records at most, {texts} texts of {tokens} "
            text += f"tokens wanted**: {', '.join(corpora)}; on {', '.join(devices)}.\n\n"
            text += "\n".join(table(cells, epsilon, size, rows)) + "\n"
    why = {key: cell["why"] for key, cell in cells.items() if "why" in cell}
    if why:
        failed = {f"{NAMES.get(k[1], k[1])} {k[2]}, {k[5]} ({each})" for k, each in why.items()}
        text += f"\nWrote nothing: {'; '.join(sorted(failed))}.\n"
    text += BOUGHT + "\n".join(f"![{said}](images/comparison-{name}.png)" for name, said in PLOTS)
    return text + "\n".join([PAIRS, *pairs(cells), AUDIT, *audits(audited), ""])


PLOTS = (
    ("epsilon", "Loss over the ε paid: support and allocation with one setting changed"),
    ("seconds", "Loss over seconds of a processor: every row"),
    ("texts", "Texts over ε: of 48 tokens, from 5,000 reviews in two labels"),
)
#: Points, and the words beside them.
Line = list[tuple[float, float, str]]


def points(cells: Mapping[Key, Cell], names: Iterable[str], across: str = "") -> Line:
    """The loss of each row over a column, or over ε, at ε 3: of the size with the most cells."""
    chosen = [key for key in cells if key[2] in names and key[3] == CITED_EPSILON]
    size = Counter(key[5] for key in chosen).most_common(1)[0][0]
    line = []
    for name in names:
        own = [key for key in chosen if key[2] == name and key[5] == size]
        own = [key for key in own if excess(cells, key) is not None]
        x = average(cells[key][across] if across else paid(cells[key]) for key in own)
        y = average(excess(cells, key) for key in own)
        if x is not None and y is not None:
            line.append((x, y, name))
    return line


def plots(
    known: Mapping[str, Cell],
    rows: Sequence[str],
    sweep: Sequence[str],
    bought: Mapping[str, Line],
    folder: Path,
) -> None:
    """Draw the three plots. `bought`: texts over ε, by row."""
    from matplotlib.figure import Figure

    cells = parted(known)
    *swept, usual = points(cells, [*sweep, "support + allocation"])
    middle = (*usual[:2], "")
    changed: dict[str, Line] = {}
    for setting in ("clip", "temperature", "top_k"):
        line = [(x, y, row.split()[1]) for x, y, row in swept if row.startswith(setting)]
        changed[setting] = sorted([*line, middle])
    changed["support + allocation"] = [middle]
    every = {row: [(x, y, "")] for x, y, row in points(cells, rows, "seconds")}
    for (name, title), lines in zip(PLOTS, (changed, every, bought), strict=True):
        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axis = figure.subplots()
        for marker, (label, line) in zip(cycle("osv^<>PX*Dxd+"), lines.items()):
            x, y, _ = zip(*line, strict=True)
            axis.plot(x, y, marker=marker, ms=5, label=label)
            for across, up, word in line:
                axis.annotate(word, (across, up), (4, 3), textcoords="offset points", fontsize=6)
        if name == "seconds":
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        axis.set_yscale("log" if name == "texts" else "linear")
        axis.set_xlabel("seconds" if name == "seconds" else "ε")
        axis.set_ylabel("texts" if name == "texts" else "loss minus zero-shot's, nats")
        axis.set_title(title, fontsize=8)
        figure.legend(fontsize=6, loc="outside right center")
        figure.savefig(folder / f"comparison-{name}.png", dpi=80, metadata={"Software": None})


# --- what the ask page cites --------------------------------------------------------------------

#: The row of each mechanism that stands for what a form begins with, and its settings.
CITED = {
    "private-prediction": ("support + allocation", "secret batches, top_k 100 and clip 4"),
    "invisible-ink": ("invisible-ink", "the clip that ε buys"),
    "epsvec": ("epsvec", "its proposal"),
    "dp-kps": ("dp-kps", "five phrases a prompt"),
    "aug-pe": ("aug-pe", "three rounds"),
}
#: Fewer texts in all say nothing of a mechanism.
LEAST_TEXTS = 40
CITED_EPSILON = "3"
NAMES = {
    "smollm2": "SmolLM2",
    "imdb": "IMDb",
    "ag_news": "AG News",
    "yelp": "Yelp",
    "openreview": "OpenReview",
    "pubmedqa": "PubMedQA",
}


def cited(known: Mapping[str, Cell]) -> dict[str, dict[str, Any]]:
    """The means of each mechanism's cells at one ε, of the model and size of which most texts are
    there; none of a mechanism with too few.
    """
    cells, found = parted(known), {}
    for mechanism, (row, settings) in CITED.items():
        alike: dict[tuple[str, str], list[Key]] = {}
        for key in cells:
            if key[2:4] == (row, CITED_EPSILON):
                alike.setdefault((key[0], key[5]), []).append(key)
        sums = {shape: sum(cells[key]["texts"] for key in keys) for shape, keys in alike.items()}
        shape = max(sums, key=lambda each: sums[each], default=None)
        if shape is None or sums[shape] < LEAST_TEXTS:
            continue
        keys = alike[shape]
        beside = [zero(cells, key) or {} for key in keys]
        found[mechanism] = {
            "settings": settings,
            "model": NAMES.get(shape[0], shape[0]),
            "epsilon": float(CITED_EPSILON),
            "corpora": list(dict.fromkeys(NAMES.get(key[1], key[1]) for key in keys)),
            "cells": len(keys),
            "texts": average(cells[key]["texts"] for key in keys),
            "tokens": average(cells[key].get("tokens") for key in keys),
            "finished": average(cells[key].get("finished") for key in keys),
            "right label": average(cells[key].get("right label") for key in keys),
            "right label of zero-shot": average(each.get("right label") for each in beside),
            "loss above zero-shot": average(excess(cells, key) for key in keys),
        }
    return found


def main() -> None:
    root = Path(__file__).parents[1]
    known = json.loads((root / "benchmarks/comparison.json").read_text("utf-8"))
    text = json.dumps(cited(known), indent=1, ensure_ascii=False)
    (root / "accountant/queries/measured.json").write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
