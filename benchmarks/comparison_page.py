"""The page of benchmarks.comparison: docs/comparison.md and its plots, from figures alone.

    python -m benchmarks.comparison_page

writes what the ask page cites of them: accountant/queries/measured.json.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

Cell = Mapping[str, Any]
#: Model, corpus, row, ε, seed, and records-texts-tokens: a cell's name, taken apart.
Key = tuple[str, ...]

HEAD = """# What to take: all mechanisms side by side

Written by `python -m benchmarks.comparison MODEL`, and again each time it runs. It has run {small}
of the {all_small} cells of `--small`, and {full} of the {all_full} of a whole run. **With so few
texts, only large differences mean anything.** What to take rests on the larger measurements that
it links to.

| you want | take | why |
|---|---|---|
| texts like 5,000 reviews, at ε 3 | `epsvec`, as `exchequer ask` proposes it | paid once; more \
texts and other temperatures are free ([measured](utility.md#epsvec)) |
| the same from a model that nobody swept | `private-prediction` with allocation, `top_k` 100, \
clip 4, temperature 1 | only likely tokens can be drawn; more clip costs more and writes no better |
| a summary for each of 300 groups | `summary-oneshot` where groups have 100 records, else \
counts | noise drowns smaller groups ([measured](summaries.md#what-was-measured)) |
| what records talk about | `dp-kps` with output phrases | paid once \
([measured](utility.md#phrases-of-dp-kps)) |

## Figures

A cell is one job by its own runner at its own price. A table shows means over a row's
cells. Rows with fewer cells are of fewer corpora, and can't be compared with others. Sizes and rows
are options: `--records`, `--texts`, `--tokens`, `--row "clip 6"`.

- *Loss*: of a text's own tokens under the model without a record, minus zero-shot's; the lower, the
  more fluent.
- *Label*: the share that a classifier of real held-out texts gives the label asked for.
- *Double*: texts that stood before. MAUVE needs 100 texts. Seconds are of a
  processor; on a GPU, of the one that drives it, with 8 to 12 cells side by side.
- *Clip*, *temperature* and *top_k*: support and allocation (clip 4, temperature 1, top_k 100) with
  one setting changed.
- δ is n^-1.1. `secpe` bounds a guess by e^ε times its prior, and the median's ε is ex post.
"""
COLUMNS = "cells | texts | tokens | finished | loss | label | MAUVE | double | seconds | ε"


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


def mean(values: Sequence[Any], digits: int = 2) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.fmean(there):.{digits}f}" if there else "–"


def table(cells: Mapping[Key, Cell], epsilon: str, size: str, rows: Sequence[str]) -> list[str]:
    """The means of each row at one ε and size."""
    lines = [f"| | {COLUMNS} |", f"|{'---|' * 11}"]
    for name in rows:
        chosen = [k for k in cells if k[2:4] == (name, epsilon) and k[5] == size]
        own = [cells[key] for key in chosen]
        if not own:
            continue

        def of(column: str, digits: int = 2, own: Sequence[Cell] = own) -> str:
            return mean([cell.get(column) for cell in own], digits)

        spent = [cell.get("ex post") or cell.get("epsilon") for cell in own]
        shown = [str(len(own)), of("texts", 0), of("tokens", 0), of("finished")]
        shown += [mean([excess(cells, key) for key in chosen]), of("right label"), of("mauve")]
        shown += [of("duplicates"), of("seconds", 0), mean(spent)]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return lines


def pairs(cells: Mapping[Key, Cell]) -> list[str]:
    """The paper's setting against support and allocation, corpus by corpus, at ε 3."""
    lines = [
        "| corpus | texts: paper | both | ε: paper | both | loss: paper | both "
        "| label: paper | both |",
        f"|{'---|' * 9}",
    ]
    for key in cells:
        other = (*key[:2], "support + allocation", *key[3:])
        if key[2:4] == ("paper", "3") and other in cells:
            losses = [mean([excess(cells, each)]) for each in (key, other)]
            labels = [mean([cells[each].get("right label")]) for each in (key, other)]
            texts = [str(cells[each]["texts"]) for each in (key, other)]
            spent = [mean([cells[each]["epsilon"]]) for each in (key, other)]
            figures = texts + spent + losses + labels
            lines.append(f"| {key[1]}, {key[5]} | {' | '.join(figures)} |")
    return lines


def page(
    known: Mapping[str, Cell], small: AbstractSet[str], full: AbstractSet[str], rows: Sequence[str]
) -> str:
    """The whole page. `small` and `full`: the cells of `--small` and of a whole run."""
    cells = parted(known)
    text = HEAD.format(
        small=len(small & known.keys()),
        all_small=len(small),
        full=len(full & known.keys()),
        all_full=len(full),
    )
    for size in sorted({key[5] for key in cells}):
        for epsilon in sorted({key[3] for key in cells if key[5] == size}, key=float):
            records, texts, tokens = size.split("-")
            corpora = dict.fromkeys(k[1] for k in cells if k[3] == epsilon and k[5] == size)
            text += f"\n**ε {epsilon}**, {', '.join(corpora)}: {records} records at most, "
            own = [c for k, c in cells.items() if k[3] == epsilon and k[5] == size]
            devices = sorted({cell.get("device", "cpu") for cell in own})
            text += f"{texts} texts of {tokens} tokens wanted; on {', '.join(devices)}.\n\n"
            text += "\n".join(table(cells, epsilon, size, rows)) + "\n"
    text += "\n## The paper's setting against support and allocation\n\n"
    text += "As many texts as ε 3 buys, up to the number wanted; *both* is support and allocation. "
    text += "Shares of right labels of twenty texts are uncertain by 0.2. MAUVE needs 100 texts, "
    text += "more than the paper's setting writes of 2,000 records.\n\n"
    text += "\n".join(pairs(cells)) + "\n\n"
    text += "\n".join(f"![{name}](images/comparison-{file}.png)" for file, name in PLOTS.items())
    failed = {f"{key[1]} {key[2]}: {cell['why']}" for key, cell in cells.items() if "why" in cell}
    if failed:
        text += "\n\nWrote nothing: " + "; ".join(sorted(failed)) + "."
    return text + "\n"


PLOTS = {
    "loss": "Loss minus zero-shot's over ε",
    "seconds": "Loss minus zero-shot's over seconds",
    "texts": "Texts over ε",
}


def plots(known: Mapping[str, Cell], rows: Sequence[str], folder: Path) -> None:
    """Draw the three plots: a line or a point for each row, means over corpora and seeds."""
    from matplotlib.figure import Figure

    cells = parted(known)
    axes: Mapping[str, tuple[Callable[[Key], Any], Callable[[Key], Any]]] = {
        "loss": (lambda key: float(key[3]), lambda key: excess(cells, key)),
        "seconds": (lambda key: cells[key].get("seconds"), lambda key: excess(cells, key)),
        "texts": (lambda key: float(key[3]), lambda key: cells[key]["texts"]),
    }
    for name, (across, upwards) in axes.items():
        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axis = figure.subplots()
        for place, row in enumerate(rows):
            points: dict[str, list[tuple[float, float]]] = {}
            for key in cells:
                point = across(key), upwards(key)
                if key[2] == row and None not in point:
                    points.setdefault(key[3], []).append(point)
            means = (zip(*own, strict=True) for own in points.values())
            line = sorted(tuple(map(statistics.fmean, each)) for each in means)
            if line:
                marker = "osv^<>PX*Dhd+"[place % 13]
                axis.plot(*zip(*line, strict=True), marker=marker, ms=5, label=row)
        axis.set_xscale("log")
        axis.set_xlabel("seconds of a processor" if name == "seconds" else "ε")
        axis.set_title(PLOTS[name], fontsize=9)
        axis.legend(fontsize=6, ncols=2)
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
            "texts": _mean(cells[key]["texts"] for key in keys),
            "tokens": _mean(cells[key].get("tokens") for key in keys),
            "finished": _mean(cells[key].get("finished") for key in keys),
            "right label": _mean(cells[key].get("right label") for key in keys),
            "right label of zero-shot": _mean(each.get("right label") for each in beside),
            "loss above zero-shot": _mean(excess(cells, key) for key in keys),
        }
    return found


def _mean(values: Iterable[Any]) -> float | None:
    there = [value for value in values if value is not None]
    return round(statistics.fmean(there), 3) if there else None


def main() -> None:
    root = Path(__file__).parents[1]
    known = json.loads((root / "benchmarks/comparison.json").read_text("utf-8"))
    text = json.dumps(cited(known), indent=1, ensure_ascii=False)
    (root / "accountant/queries/measured.json").write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
