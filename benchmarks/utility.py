"""Quality of the texts: tables about private prediction on a small public model.

    python -m benchmarks.utility MODEL [--table labels ...] [--dataset ag_news] [--seeds 3]
      [--minutes 4]

context: what the model makes of a record in its context. clusters: paper 001, Table 2, k-means with
and without privacy. support: what the mean draws by clip, temperature and public support. examples:
001, Table 4. labels: a label's texts where it is 90 % of the records, and
where it is 2 %. All mechanisms side by side: benchmarks.comparison.

MODEL is a folder that `exchequer model get` made. Mechanisms are run by their own runners under a
meter that reserves the real price; noise has no seed, so repeats are repeats, and seeds drive only
which public texts are compared, and public k-means. Finished cells lie in --cache and are never run
again; after --minutes no further cell is begun. JSON and Markdown go there too. Corpora:
EXCHEQUER_SHARED.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import utility_data, utility_labels, utility_tables
from benchmarks.utility_bench import Bench, Sizes
from benchmarks.utility_cells import Store, Table

TABLES: Mapping[str, Callable[[Bench], Table]] = {
    "context": utility_tables.context,
    "clusters": utility_tables.clusters,
    "support": utility_tables.support,
    "labels": utility_labels.unequal_labels,
    "examples": utility_tables.examples,
}

WITHOUT_PRIVATE = ("context",)


def cache_folder() -> Path:
    """The folder of cells and reports unless --cache names another; never in the repository."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exchequer" / "utility"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--table", action="append", choices=TABLES, help="all of them unless given")
    parser.add_argument("--dataset", action="append", choices=["ag_news", "yelp", "imdb"])
    parser.add_argument("--minutes", type=float, help="after which no further cell is begun")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument(
        "--embedding", type=Path, default=utility_data.EMBEDDING, help="for the figures"
    )
    for name, default in Sizes().defaults().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    utility_data.EMBEDDING = arguments.embedding
    sizes = Sizes(**{name: getattr(arguments, name) for name in Sizes().defaults()})
    store = Store(
        arguments.cache / "cells", None if arguments.minutes is None else 60 * arguments.minutes
    )
    found: list[Table] = []
    for name in arguments.table or TABLES:
        datasets = arguments.dataset or ["ag_news"]
        for dataset in datasets if name not in WITHOUT_PRIVATE else datasets[:1]:
            table = TABLES[name](Bench(arguments.model, dataset, sizes, store))
            print(table.markdown(), flush=True)
            found.append(table)
            write(arguments.cache, table)
    if store.left_out:
        print(f"{store.left_out} cells were left out: the time is over. The same command goes on.")


def write(folder: Path, table: Table) -> None:
    """The table as Markdown and JSON, replaced whole at every run."""
    made = {
        "title": table.title,
        "settings": table.settings,
        "columns": table.columns,
        "rows": table.rows,
        "notes": table.notes,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    (folder / f"{table.name}.json").write_text(
        json.dumps(made, ensure_ascii=False, indent=1), "utf-8"
    )
    (folder / f"{table.name}.md").write_text(table.markdown(), "utf-8")


if __name__ == "__main__":
    main()
