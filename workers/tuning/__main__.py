"""`python -m workers.tuning summary-oneshot`: choose parameters from public data; `exchequer tune` calls it.

Exit code 0: found; 2: bad input.
"""

import argparse
import json
import sys
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from accountant.core.errors import ExchequerError, invalid
from accountant.core.mechanisms.summary_oneshot import DEFAULT_TEMPLATE
from accountant.core.privacy.price import Neighbours
from workers import models, sample
from workers.data.corpora import Corpus
from workers.tuning import summaries


def main(arguments: list[str] | None = None) -> int:
    """Tune what the arguments name, and return the exit code."""
    options = _parser().parse_args(arguments)
    disable_progress_bar()
    try:
        _oneshot(options)
    except ExchequerError as error:
        print(f"tune: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workers.tuning", description=__doc__.splitlines()[0])
    command = parser.add_subparsers(dest="mechanism", required=True).add_parser("summary-oneshot")
    command.add_argument("--corpus", required=True, help="a public CSV, JSON Lines or Parquet file")
    command.add_argument("--text-template", default="{text}")
    command.add_argument("--label-column", default="label", help="the column whose values play the groups")
    command.add_argument("--model", default=str(sample.MODEL_DIR))
    command.add_argument("--epsilon", type=float, default=2.0)
    command.add_argument("--delta", type=float, default=1e-6)
    command.add_argument("--neighbours", choices=[str(each) for each in Neighbours], default="add-remove")
    command.add_argument("--public-size", type=int, default=200)
    command.add_argument("--texts", type=int, default=1_000)
    command.add_argument("--template", default=DEFAULT_TEMPLATE)
    command.add_argument("--record-tokens", type=int, default=256)
    command.add_argument(
        "--soft-tokens", default="5,10,20", help="m to try, parted by commas; none: no training"
    )
    command.add_argument("--steps", type=int, default=60)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--json", action="store_true")
    return parser


def _oneshot(options: argparse.Namespace) -> None:
    tried = _soft_tokens(options.soft_tokens)
    folder = models.resolve(options.model, [str(Path(options.model).resolve())], hub=False)
    facts = models.inspect(folder)
    model = models.load(folder, facts["sha256"])
    corpus = Corpus(Path(options.corpus).name, options.corpus, options.text_template, options.label_column)
    if not 2 <= options.texts <= 1_000_000:
        raise invalid("texts", str(options.texts), "2 to 1000000")
    setting = summaries.Setting(
        options.epsilon, options.public_size, options.delta, Neighbours(options.neighbours)
    )
    setting.sigma(1.0)  # an impossible price is told before any text is read
    given = summaries.material(model, corpus, options.template, options.record_tokens, options.texts)
    points = list(summaries.curve(given, setting))
    chosen = summaries.best(points)
    tokens = min(summaries.length(model, given), model.context_tokens - max(tried, default=0) - 1)
    reading = {"template": options.template, "record_tokens": options.record_tokens}
    losses = {
        count: summaries.held_out(model, given, chosen, reading, tokens, count, options.steps, options.seed)
        for count in tried
    }
    soft = min(losses, key=lambda count: losses[count]) if losses else None
    found = summaries.document(chosen, soft, tokens)
    if options.json:
        curve = [vars(point) for point in points]
        print(json.dumps({"parameters": found, "sigma": chosen.sigma, "curve": curve, "losses": losses}))
        return
    _print(points, chosen, losses)
    print(f"\nparameters of summary-oneshot: {json.dumps(found)}")
    print(f"sigma of summary-adapter: {chosen.sigma:.4g}")


def _soft_tokens(text: str) -> list[int]:
    try:
        found = [] if text == "none" else [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if any(not 1 <= count <= 1_000 for count in found):
        raise invalid("soft-tokens", repr(text), "numbers from 1 to 1000, parted by commas, or none")
    return found


def _print(points: list[summaries.Point], chosen: summaries.Point, losses: dict[int, float]) -> None:
    print("| centre | directions | clip C | σ | noise / signal | error / signal | |")
    print("|---|---|---|---|---|---|---|")
    for point in points:
        mark = "least" if point == chosen else ""
        shown = "all" if point.components is None else point.components
        centre = "yes" if point.centre else "no"
        print(
            f"| {centre} | {shown} | {point.clip:.3g} | {point.sigma:.3g} | {point.noise:.3g} | "
            f"{point.error:.3g} | {mark} |"
        )
    if losses:
        print("\n| soft tokens m | held-out loss |\n|---|---|")
        print("\n".join(f"| {count} | {loss:.3f} |" for count, loss in losses.items()))


if __name__ == "__main__":
    sys.exit(main())
