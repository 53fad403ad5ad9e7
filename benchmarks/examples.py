"""Run time of each request in examples/: its mechanism alone, on the bundled model and reviews, two
threads.

    python -m benchmarks.examples [--only NAME] [--smollm2 FOLDER --minilm FOLDER] [--texts]

With folders of `exchequer model get smollm2` and `minilm`: the requests for them in place of the
others. --texts prints the first three texts of each.

Seconds on the wall and of the processor, from opening the reviews to the last text, under a meter
that reserves the request's own price. Imports and loading the model (about 5 s) come on top, as
does the service.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from accountant.core import mechanisms
from accountant.core.ledger.accounts import demand
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretTerms
from accountant.core.secret_patterns import Secrets
from workers import models, sample
from workers.data.corpora import Corpus
from workers.data.records import Layout, read
from workers.embedding import embedders
from workers.interface import Artifact, Progress, Public, Released
from workers.mechanisms import runner
from workers.noise.meter import Meter

FOLDER = Path(__file__).resolve().parents[1] / "examples"
#: A word of six of the reviews, as a secret for secpe, and what is stated about it.
SECRETS, STATED = Secrets(terms=("knees",)), SecretTerms(1e-4, 0.005, 8, 0.5, Without.REMOVED)
# As the demo registers the reviews, which declares no secrets.
TERMS = Terms(
    delta=1e-6, public_size=3000, labels=sample.LABELS, groups=sample.KINDS, secret=STATED
)
THREADS, GOAL = 2, 120


#: What follows another example: it reads what that one released.
FOLLOWS = {"epsvec-again": "epsvec", "dp-kps": "vocabulary", "dp-kps-again": "dp-kps"}
FOLLOWS |= {
    "dp-kps-smollm2": "dp-kps",
    "summary-oneshot": "summary-adapter",
    "summary-oneshot-again": "summary-oneshot",
}
#: How the requests end that name a model which is not bundled.
OTHER = "-smollm2"


def public(model: models.LocalModel, embedding: Path) -> Public:
    """The public inputs that the examples name: the reviews, the model, and an embedding model."""
    corpus = Corpus("sample-public", str(sample.PUBLIC_SAMPLE_CSV), "{text}", "label")
    embedder = embedders.load(embedding, models.digest(embedding, embedders.FILES))
    return Public(
        {"public_corpus": corpus, "corpus": corpus},
        {"embedding": embedder},
        {"writer": model},
        sources={},
    )


def run(
    request: Mapping[str, Any],
    model: models.LocalModel,
    things: Public,
    released: Mapping[str, Released],
) -> list[Any]:
    """Everything that one request makes."""
    mechanism, running = mechanisms.get(request["mechanism"]), runner(request["mechanism"])
    parameters = mechanism.parse(request["parameters"], TERMS)
    progress = Progress(running.total(parameters, TERMS))
    sources = {
        field: {name: each for name, each in released.items() if each.kind == kind}
        for field, kind in mechanism.sources(parameters).items()
    }
    things = replace(things, sources=sources)
    if mechanism.public:
        own = model if mechanism.uses_model else None
        return list(running.make(parameters, TERMS, own, progress, things))
    if getattr(parameters, "from_job", None) is not None:
        return list(running.reuse(parameters, TERMS, released, model, progress, things))
    price = mechanism.price(parameters, TERMS)
    meter = Meter(price.dp or FREE, price.ex_post_draws, secret=demand(price).secret)
    layout = Layout(
        "{text}", None, "label", sample.LABELS, 1, "business", sample.KINDS, secrets=SECRETS
    )
    records = read(str(sample.PRIVATE_CSV), layout, b"k" * 32)
    return list(running.run(parameters, TERMS, records, model, meter, progress, things))


def before(name: str) -> list[str]:
    """The examples that this one follows, the nearest first."""
    return [FOLLOWS[name], *before(FOLLOWS[name])] if name in FOLLOWS else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--only", help="the name of one of them, without .json")
    parser.add_argument(
        "--smollm2", type=Path, metavar="FOLDER", help="for the requests that name it"
    )
    parser.add_argument("--minilm", type=Path, metavar="FOLDER", help="for the same ones")
    parser.add_argument("--texts", action="store_true", help="print some of them")
    arguments = parser.parse_args()
    only, other = arguments.only, arguments.smollm2
    disable_progress_bar()
    model = models.load(sample.MODEL_DIR, models.digest(sample.MODEL_DIR))
    large = None if other is None else models.load(other, models.digest(other))
    torch.set_num_threads(THREADS)
    released: dict[str, dict[str, Released]] = {}
    paths = {path.stem: path for path in FOLDER.glob("*.json")}
    shown = {
        name
        for name in paths
        if name == only or (only is None and name.endswith(OTHER) == (large is not None))
    }
    wanted = shown | {each for name in shown for each in before(name)}
    late = 0
    print("| example | texts | s on the wall | s of the processor |\n|---|---|---|---|", flush=True)
    for name in sorted(wanted, key=lambda name: (len(before(name)), name)):
        request, own = (
            json.loads(paths[name].read_text("utf-8")),
            large if name.endswith(OTHER) else model,
        )
        if own is None or (own is large and arguments.minilm is None):
            raise SystemExit(f"{name} needs --smollm2 and --minilm")
        wall, processor = time.perf_counter(), time.process_time()
        earlier = released.get(FOLLOWS.get(name, ""), {})
        made = run(
            request,
            own,
            public(own, arguments.minilm if own is large else sample.MODEL_DIR),
            earlier,
        )
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        artifacts = [each for each in made if isinstance(each, Artifact)]
        # With what the examples before it released: some read that too.
        released[name] = earlier | {
            each.name: Released(each.name, each.content) for each in artifacts
        }
        texts = [each for each in made if not isinstance(each, Artifact)]
        if name in shown:
            print(f"| `{name}` | {len(texts)} | {wall:.0f} | {processor:.0f} |", flush=True)
            late += wall > GOAL
        for each in texts[:3] if arguments.texts and name in shown else ():
            print(f"  {each.label}: {each.text}", flush=True)
    return 1 if late else 0


if __name__ == "__main__":
    raise SystemExit(main())
