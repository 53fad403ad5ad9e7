"""Evaluation on files of one's own, without a server.

    python -m workers.evaluation synthetic.jsonl reference.csv --embedding models/embedder -o
      report.html

Both sides are CSV, JSON Lines or Parquet with a text and, for TSTR and TRTS, a label. The reference
must be public, consented, or held out and one's own to look at: nothing here has a price.
"""

import argparse
import sys
from pathlib import Path

from accountant.core.errors import ExchequerError
from accountant.core.mechanisms.evaluation import MECHANISM, METRICS, Evaluation
from accountant.core.privacy.price import Terms
from workers import models
from workers.data import corpora
from workers.evaluation import report
from workers.evaluation.run import Sides, Texts, Tools, embedding_of, evaluate

UNUSED_JOB = "0" * 36


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workers.evaluation", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("synthetic", help="published texts")
    parser.add_argument("reference", help="public or consented texts")
    parser.add_argument(
        "--metrics", default=Evaluation.model_fields["metrics"].default, help=", ".join(METRICS)
    )
    parser.add_argument("--embedding", type=Path, help="folder of an embedding model")
    parser.add_argument("--model", type=Path, help="folder of a language model, for losses")
    for side in ("synthetic", "reference"):
        parser.add_argument(f"--{side}-text", default="{text}", help="a text from its columns")
        parser.add_argument(f"--{side}-label", help="column of its label")
    parser.add_argument("--most-texts", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-o", "--output", type=Path, help="the report, .html or .json; default: JSON here"
    )
    return parser.parse_args()


def main() -> None:
    """Read both sides, compute, write the report."""
    arguments = _arguments()
    raw = {
        "from_job": UNUSED_JOB,
        "corpus": "file",
        "metrics": arguments.metrics,
        "embedding": arguments.embedding and arguments.embedding.name[:63],
        "most_texts": arguments.most_texts,
        "seed": arguments.seed,
    }
    try:
        parameters = MECHANISM.parse(raw, Terms())
        sides = [
            _read(path, text, label, parameters.most_texts)
            for path, text, label in (
                (arguments.synthetic, arguments.synthetic_text, arguments.synthetic_label),
                (arguments.reference, arguments.reference_text, arguments.reference_label),
            )
        ]
        embedding = None if arguments.embedding is None else embedding_of(arguments.embedding)
        folder = arguments.model
        model = None if folder is None else models.load(folder, models.digest(folder))
        figures = list(evaluate(parameters, Sides.of(*sides), Tools(embedding, model)))
    except ExchequerError as error:
        sys.exit(f"evaluation: {error}")
    facts = {
        "synthetic": Path(arguments.synthetic).name,
        "reference": Path(arguments.reference).name,
    }
    if arguments.output is None:
        print(report.to_json(facts, figures))
    elif arguments.output.suffix == ".html":
        arguments.output.write_text(report.to_html("Evaluation", facts, figures), "utf-8")
    else:
        arguments.output.write_text(report.to_json(facts, figures), "utf-8")


def _read(path: str, template: str, label: str | None, most: int) -> Texts:
    rows = corpora.Corpus(Path(path).name, path, template, label).texts()
    pairs = [pair for pair, _ in zip(rows, range(most), strict=False)]
    return Texts(
        [text for text, _ in pairs],
        None if label is None else [str(text_label) for _, text_label in pairs],
    )


if __name__ == "__main__":
    main()
