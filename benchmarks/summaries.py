"""What summaries of groups are worth: the planner's own proposal, played whole, and token by token.

    python -m benchmarks.summaries MODEL --keep DIR [--epsilon 3 1 10 20] [--show 20]

Records are 100 of Yelp's reviews of each of four groups, by category and stars. As many others are
the public corpus that the adapter learns from, and the classifier of *right label*: chance is 0.25.
Accounts of each ε are fresh (δ 1e-6). DIR keeps the adapter, which the proposal at ε 3 trains once.
Rows: one-shot as proposed, token by token with all of ε, and the records cut to as many tokens;
columns as in benchmarks.proposals. benchmarks/summaries.json keeps figures alone: a row that stands
there is not written again. benchmarks.comparison shows those at ε 3.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accountant.core import mechanisms
from accountant.core.mechanisms.planning import propose_least
from accountant.core.mechanisms.proposals import Known
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.price import Terms
from benchmarks import utility_data
from benchmarks.proposals import (
    DELTA,
    TOKENS,
    figures,
    part_of,
    print_table,
    side,
    some,
    written,
)
from workers import mechanisms as runners
from workers import models
from workers.data.public_text import PublicText, vouch
from workers.embedding.mean_states import Reader
from workers.evaluation.language import losses
from workers.evaluation.transfer import Labelled
from workers.generation.local_writer import LocalWriter, generator
from workers.interface import Artifact, Progress, Public, Released, Text

FIGURES = Path(__file__).with_suffix(".json")
#: Records of each group; runs of a row.
SIZE, RUNS = 100, 3
#: So many groups, of so many records each, are told what they can have.
MANY, SIZES = 300, (60, 100, 300)
#: Rows of docs/comparison.md.
SHOWN = ("one-shot 3", "token by token 3", "records")
#: The account whose proposal trains the adapter.
TRAINED_AT = 3.0
TOKEN: Mapping[str, Any] = {
    "template": "{user}Review: {record}\nSay in one sentence what reviews like this are about."
    "{assistant}The reviews are about",
    "public_size": SIZE,
    "record_tokens": 64,
    "max_tokens": 24,
}


@dataclass(frozen=True)
class Others:
    """The public corpus: texts that no record is among."""

    part: Labelled
    name: str = "public"

    def texts(self) -> Iterator[tuple[PublicText, str]]:
        yield from zip(map(vouch, self.part.texts), self.part.labels, strict=True)


@dataclass
class Case:
    """Groups, and the model that writes. `folder` keeps the adapter."""

    corpus: utility_data.Corpus
    model: models.LocalModel
    facts: Mapping[str, Any]
    folder: Path

    @cached_property
    def terms(self) -> Terms:
        size = len(self.corpus.private.texts)
        return Terms(delta=DELTA, public_size=size, groups=self.corpus.labels)

    def proposal(self, epsilon: float, known: Known) -> Mapping[str, Any]:
        """The parameters that are proposed in a fresh account of this ε."""
        found, share = propose_least(
            "summaries", self.terms, part_of(epsilon, self.terms), self.facts, known=known
        )
        print(found.mechanism, f"{share:.0%} of ε {epsilon:g}", found.outlook.sentence())
        return found.parameters

    @cached_property
    def adapter(self) -> tuple[Mapping[str, Any], Released]:
        """Parameters and weights of what reads means out."""
        raw = self.proposal(TRAINED_AT, Known(corpora=("public",)))
        parameters = mechanisms.get("summary-adapter").parse({**raw, "seed": 1}, self.terms)
        path = self.folder / "adapter"
        if not path.exists():
            runner: Any = runners.runner("summary-adapter")
            public = Public({"corpus": Others(self.corpus.held_out)})  # type: ignore[dict-item]
            progress = Progress(parameters.steps)
            for each in runner.make(parameters, self.terms, self.model, progress, public):
                if isinstance(each, Artifact):
                    path.write_bytes(each.content)
                else:
                    print(each.to_json(), f"{time.process_time():.0f} s", flush=True)
        return parameters.model_dump(), Released("adapter", path.read_bytes())

    def oneshot(self, epsilon: float) -> tuple[list[Text], float]:
        """Summaries of one job as proposed, and its ε."""
        trained, weights = self.adapter
        raw = self.proposal(epsilon, Known({"adapter": trained}))
        corpora = {"public_corpus": Others(self.corpus.held_out)}
        public = Public(corpora, sources={"adapter": {"adapter": weights}})  # type: ignore[arg-type]
        return self.written("summary-oneshot", raw, public)

    def token(self, epsilon: float) -> tuple[list[Text], float]:
        """Summaries of one job, a token at a time; C is the 90 % quantile of public norms."""
        reader = Reader(self.model, TOKEN["template"], TOKEN["record_tokens"])
        states = np.stack(list(reader.states(self.corpus.held_out.texts[::6])))
        clip = float(f"{np.quantile(np.linalg.norm(states, axis=1), 0.9):.4g}")
        return self.written("summary-token", {**TOKEN, "epsilon": epsilon, "clip": clip}, Public())

    def written(
        self, name: str, raw: Mapping[str, Any], public: Public
    ) -> tuple[list[Text], float]:
        texts, price = written(name, raw, self.terms, self.corpus, self.model, public=public)
        assert price.dp is not None
        return texts, epsilon_alone(price.dp, DELTA)[0]

    @cached_property
    def real(self) -> Any:
        """Losses of real texts, for what is readable."""
        return losses(self.model, self.corpus.held_out.texts[:100], tokens=TOKENS)

    def row(
        self,
        texts: Sequence[Any],
        groups: Sequence[str],
        complete: Sequence[bool] | None,
        epsilon: float | None = None,
        seconds: int | None = None,
    ) -> dict[str, Any]:
        """The figures of some texts."""
        found = figures(side(texts, groups, complete), self.corpus, self.model, self.real)
        found |= {"epsilon": epsilon, "seconds": seconds}
        return {key: round(v, 3) if isinstance(v, float) else v for key, v in found.items()}


def outlooks(facts: Mapping[str, Any]) -> dict[str, str]:
    """What is proposed for many groups, by their size, and for counting them; public arithmetic."""
    names, found = tuple(f"group {number}" for number in range(MANY)), {}
    for size in SIZES:
        terms = Terms(delta=DELTA, public_size=MANY * size, groups=names)
        part, known = part_of(TRAINED_AT, terms), Known(corpora=("public",))
        found[str(size)] = propose_least("summaries", terms, part, facts, known=known)[0]
    terms = Terms(delta=DELTA, public_size=MANY * SIZE, labels=names)
    found["counts"] = propose_least("counts", terms, part_of(TRAINED_AT, terms))[0]
    return {name: each.outlook.sentence() for name, each in found.items()}


SECTION = """
## Summaries of groups

Four groups of 100 of Yelp's reviews, in an account of ε 3, by `python -m benchmarks.summaries`.
One-shot is what `exchequer ask DATASET --for summaries` proposes. *Label* is the share that a
classifier of other reviews gives its own group: chance is 0.25. *Records* are cut as short.

{table}

Groups are disjoint, so {many} of them pay ε once, as one does. For {many} at ε 3:

| records in each | what is proposed |
|---|---|
{sizes}

Counted as labels instead: {counts}
"""


def section() -> str:
    """What docs/comparison.md says of groups."""
    known = json.loads(FIGURES.read_text("utf-8"))
    names = ("texts", "words", "finished", "loss", "right label", "readable", "seconds", "epsilon")
    table = [
        "| | texts | words | finished | loss | label | readable | seconds | ε |",
        f"|{'---|' * 9}",
    ]
    for name in [each for each in SHOWN if each in known["rows"]]:
        cells = [known["rows"][name][key] for key in names]
        table.append(f"| {name.removesuffix(' 3')} | {' | '.join(map(_shown, cells))} |")
    sizes = (f"| {size} | {known['outlooks'][str(size)]} |" for size in SIZES)
    counts = known["outlooks"]["counts"]
    return SECTION.format(table="\n".join(table), many=MANY, sizes="\n".join(sizes), counts=counts)


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:.2g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Write the rows that are not known yet, and print all."""
    options = _options()
    torch.set_num_threads(1)
    options.keep.mkdir(parents=True, exist_ok=True)
    model = models.load(options.model, models.digest(options.model))
    corpus = utility_data.load("yelp4", 4 * SIZE)
    case = Case(corpus, model, models.inspect(options.model), options.keep)
    kept = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {"rows": {}}
    kept["outlooks"], known = outlooks(case.facts), kept["rows"]
    if "records" not in known:
        part, writer = corpus.private, LocalWriter(model, generator(model.device, 0))
        most = case.adapter[0]["target_tokens"]
        cut = [writer.shortened(vouch(text), most) for text in part.texts]
        known["records"] = case.row(cut, part.labels, None)
    for epsilon in options.epsilon:
        for name, play in (("one-shot", case.oneshot), ("token by token", case.token)):
            key = f"{name} {epsilon:g}"
            if key in known:
                continue
            began = time.process_time()
            jobs = [play(epsilon) for _ in range(RUNS)]
            seconds = (time.process_time() - began) / RUNS
            texts = [each for job, _ in jobs for each in job]
            own = ([e.text for e in texts], [str(e.label) for e in texts])
            known[key] = case.row(*own, [e.complete for e in texts], jobs[0][1], round(seconds))
            FIGURES.write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n", "utf-8")
            for each in some(texts, options.show):
                print(f"\n[{each.label}] {'' if each.complete else '(cut) '}{each.text}")
    print_table(known)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("model", type=Path, help="folder of a language model")
    parser.add_argument("--keep", type=Path, required=True, help="folder that keeps the adapter")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[3.0])
    parser.add_argument("--show", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
