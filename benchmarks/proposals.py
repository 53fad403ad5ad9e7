"""What a proposal writes, played whole: the planner's own request, run as a worker runs it.

    python -m benchmarks.proposals MODEL --dataset dbpedia5 [--records 2000] [--epsilon 3]
        [--set coefficient=10 ...] [--show 20] [--save FILE.json] [--keep DIR]
        [--coefficients 0 4 8]

The dataset has a fresh account of this ε (δ 1e-6). The first row is the job's texts, the second
what the model writes after the same prompts without a record at the same temperature, the third as
many real texts. Columns: texts, the share that came to their end, the share that a classifier of
other real texts gives their own label, loss under the same model in nats a token, the share that
is readable by `workers.evaluation.usable`, and words. `--set` changes fields of the proposal, to
compare. `--keep` is a folder for what the job released besides texts: a run that was cut goes on
from there. `--coefficients` steers by each of these in turn, with nothing dropped.
"""

import argparse
import json
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accountant.core import mechanisms
from accountant.core.ledger.accounts import Accounts
from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.ledger.caps import NO_USAGE
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.planning import propose_least
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE
from accountant.core.privacy.filters import portfolio
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS
from accountant.queries.quotes import affordable_by
from accountant.queries.standing import Standing
from benchmarks import utility_data
from workers import mechanisms as runners
from workers import models
from workers.data.public_text import vouch
from workers.data.records import Records
from workers.evaluation import zero_shot
from workers.evaluation.language import losses
from workers.evaluation.sides import Texts
from workers.evaluation.transfer import Labelled, transfer
from workers.evaluation.usable import readable
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, Written
from workers.interface import NOTHING_PUBLIC, Progress, Public, Released, Text
from workers.mechanisms.epsvec.quality import by_rule
from workers.noise.meter import Meter

DELTA = 1e-6
#: Tokens of a text of which the loss is taken.
TOKENS = 64


def part_of(epsilon: float, terms: Terms) -> Callable[[float], Callable[[Price], bool]]:
    """Return what a part of a fresh account of this ε has room for."""
    units = (int(epsilon * EPSILON_UNITS), int(DELTA * DELTA_UNITS))
    filters = tuple(FilterAccount(each, each.limit(*units)) for each in portfolio(*units))
    standing = Standing(Accounts(Account(*units, filters)), NO_USAGE, Policy())
    return lambda share: affordable_by(standing.part(Fraction(share)), terms)


def written(
    name: str,
    raw: Mapping[str, Any],
    terms: Terms,
    corpus: utility_data.Corpus,
    model: models.LocalModel,
    folder: Path | None = None,
    public: Public = NOTHING_PUBLIC,
) -> tuple[list[Text], Price]:
    """Return the texts of one job and its price. `folder`: keeps what it releases besides, which a
    later call writes from for nothing. Groups of the terms are the corpus's labels.
    """
    mechanism, runner = mechanisms.get(name), runners.runner(name)
    parameters = mechanism.parse(raw, terms)
    price = mechanism.price(parameters, terms)
    progress = Progress(runner.total(parameters, terms))
    kept = {path.name: path for path in sorted(folder.glob("*"))} if folder else {}
    if name == "epsvec" and "vectors" in kept:
        released = {part: Released(part, path.read_bytes()) for part, path in kept.items()}
        return list(runner.reuse(parameters, terms, released, model, progress)), price
    key, groups = secrets.token_bytes(32), terms.groups
    records = Records(terms.labels or (None,), corpus.records(bool(groups)), key, groups=groups)
    meter = Meter(price.dp or FREE, price.ex_post_draws)
    texts = []
    for each in runner.run(parameters, terms, records, model, meter, progress, public):
        if isinstance(each, Text):
            texts.append(each)
        elif folder:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / each.name).write_bytes(each.content)
    return texts, price


def steered(
    options: argparse.Namespace,
    raw: Mapping[str, Any],
    terms: Terms,
    corpus: utility_data.Corpus,
    model: models.LocalModel,
) -> None:
    """Print a row for each coefficient: vectors are paid for once, and nothing is dropped."""
    real = losses(model, corpus.held_out.texts[:100], tokens=TOKENS)
    rows = {}
    for coefficient in options.coefficients:
        cell = options.keep / f"coefficient-{coefficient:g}.json"
        if not cell.exists():
            own = {**raw, "coefficient": coefficient, "rejection": "none", "drafts": 1}
            texts, _ = written("epsvec", own, terms, corpus, model, options.keep)
            cell.write_text(json.dumps([each.to_json() for each in texts]))
        texts = [Text(**each) for each in json.loads(cell.read_text())]
        rated = by_rule([Written(vouch(each.text), each.complete) for each in texts])
        labels, complete = [str(each.label) for each in texts], [each.complete for each in texts]
        row = figures(side([e.text for e in texts], labels, complete), corpus, model, real)
        held = float(np.mean([rating >= raw["min_quality"] for rating in rated]))
        rows[f"{coefficient:g}"] = row | {"by rule": held}
        print_table(rows)


def without_records(
    name: str,
    raw: Mapping[str, Any],
    terms: Terms,
    model: models.LocalModel,
    number: int,
    seed: int = 1,
) -> Texts:
    """Return what the model writes after the job's prompts without a record."""
    parameters = mechanisms.get(name).parse(raw, terms)
    most = getattr(parameters, "max_tokens", None) or parameters.max_text_tokens
    stop = parameters.stop or "\n"
    asked = zero_shot.asked_of(parameters, terms, Manner(most, parameters.temperature, stop))
    assert asked is not None
    return zero_shot.write(LocalWriter(model, generator(model.device, seed)), asked, number)


def side(texts: Any, labels: Sequence[str], complete: Sequence[bool] | None = None) -> Texts:
    """Return texts as a side of the table: those of a benchmark are all public."""
    return Texts(texts, labels, complete)


def figures(
    texts: Texts, corpus: utility_data.Corpus, model: models.LocalModel, real: Any
) -> dict[str, Any]:
    """Return one row of the table. `real`: losses of real texts."""
    own = losses(model, texts.texts, tokens=TOKENS)
    assert texts.labels is not None
    right = transfer(corpus.held_out, Labelled(texts.texts, texts.labels)).value
    return {
        "texts": len(texts.texts),
        "finished": None if texts.complete is None else float(np.mean(texts.complete)),
        "right label": right,
        "loss": float(np.mean(own[np.isfinite(own)])),
        "readable": float(np.mean(readable(texts.texts, own, real))),
        "words": float(np.mean([len(text.split()) for text in texts.texts])),
    }


def shown(name: str, row: Mapping[str, Any]) -> str:
    """Return a row as a line."""
    cells = (
        "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
        for value in row.values()
    )
    return f"{name:<14}" + "".join(f"{cell:>13}" for cell in cells)


def print_table(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print all rows under their names."""
    columns = next(iter(rows.values()))
    print(f"{'':<14}" + "".join(f"{column:>13}" for column in columns))
    for name, row in rows.items():
        print(shown(name, row))


def some(texts: Sequence[Text], number: int) -> list[Text]:
    """Return texts drawn evenly, in a fixed order."""
    return random.Random(0).sample(list(texts), min(number, len(texts)))


def main() -> None:
    """Play a proposal, and print its figures and some texts."""
    options = _options()
    torch.set_num_threads(options.threads)
    corpus = utility_data.load(options.dataset, options.records)
    terms = Terms(delta=DELTA, public_size=len(corpus.private.texts), labels=corpus.labels)
    model = models.load(options.model, models.digest(options.model), options.dtype)
    facts = models.inspect(options.model)
    found, share = propose_least("texts", terms, part_of(options.epsilon, terms), facts)
    print(found.mechanism, f"{share:.0%} of ε {options.epsilon:g}", found.outlook.sentence())
    if found.mechanism is None:
        return
    changes = {name: json.loads(value) for name, value in (e.split("=", 1) for e in options.set)}
    raw = {**found.parameters, **changes}
    if options.coefficients:
        steered(options, raw, terms, corpus, model)
        return
    began = time.monotonic()
    texts, price = written(found.mechanism, raw, terms, corpus, model, options.keep)
    seconds = time.monotonic() - began
    assert price.dp is not None
    print(f"ε {epsilon_alone(price.dp, DELTA)[0]:.3g} at δ {DELTA:g}, {seconds:.0f} s", raw)
    labels, complete = [str(each.label) for each in texts], [each.complete for each in texts]
    ours = side([each.text for each in texts], labels, complete)
    held_out = side(corpus.held_out.texts, corpus.held_out.labels)
    half = len(held_out.texts) // 2
    real, learned = held_out.part(slice(half)), held_out.part(slice(half, None))
    apart = replace(corpus, held_out=Labelled(learned.texts, learned.labels or ()))
    known = losses(model, real.texts, tokens=TOKENS)
    none = without_records(found.mechanism, raw, terms, model, len(texts))
    rows = {
        "job": figures(ours, corpus, model, known),
        "zero-shot": figures(none, corpus, model, known),
        "real": figures(real, apart, model, known),  # by a classifier that learned from others
    }
    print_table(rows)
    for each in some(texts, options.show):
        print(f"\n[{each.label}] {'' if each.complete else '(cut) '}{each.text}")
    if options.save:
        lines = [each.to_json() for each in texts]
        job = {"mechanism": found.mechanism, "parameters": raw, "seconds": seconds}
        options.save.write_text(json.dumps({**job, "rows": rows, "texts": lines}, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("model", type=Path, help="folder of a language model")
    parser.add_argument("--dataset", default="dbpedia5", choices=sorted(utility_data.READ))
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON")
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--save", type=Path)
    parser.add_argument("--coefficients", type=float, nargs="+", help="needs --keep")
    parser.add_argument("--keep", type=Path, help="folder that keeps what was released")
    return parser.parse_args()


if __name__ == "__main__":
    main()
