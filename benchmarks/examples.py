"""Run time of each request in examples/: its mechanism alone, on the bundled model and reviews, two threads.

    python -m benchmarks.examples [--only NAME]

Seconds on the wall and of the processor, from opening the reviews to the last text, under a meter that
reserves the request's own price. Imports and loading the model (about 5 s) come on top, as does the service.
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
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from workers import models, sample
from workers.data.corpora import Corpus
from workers.data.records import Layout, read
from workers.embedding import embedders
from workers.interface import Artifact, Progress, Public, Released
from workers.mechanisms import runner
from workers.noise.meter import Meter

FOLDER = Path(__file__).resolve().parents[1] / "examples"
# As the demo registers the reviews.
TERMS = Terms(delta=1e-6, public_size=3000, labels=sample.LABELS, groups=sample.KINDS)
THREADS, GOAL = 2, 120


#: What follows another example: it reads what that one released.
FOLLOWS = {"epsvec-again": "epsvec", "dp-kps": "vocabulary", "dp-kps-again": "dp-kps"}
FOLLOWS |= {"summary-oneshot": "summary-adapter", "summary-oneshot-again": "summary-oneshot"}
#: Of models that are not bundled.
OTHERS = ("dp-kps-smollm2",)


def public(model: models.LocalModel) -> Public:
    """The public inputs that the examples name: the reviews, the model, and its own embeddings."""
    corpus = Corpus("sample-public", str(sample.PUBLIC_SAMPLE_CSV), "{text}", "label")
    embedder = embedders.load(sample.MODEL_DIR, models.digest(sample.MODEL_DIR, embedders.FILES))
    return Public(
        {"public_corpus": corpus, "corpus": corpus}, {"embedding": embedder}, {"writer": model}, sources={}
    )


def run(
    request: Mapping[str, Any], model: models.LocalModel, things: Public, released: Mapping[str, Released]
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
    meter = Meter(price.dp or FREE, price.ex_post_draws)
    layout = Layout("{text}", None, "label", sample.LABELS, 1, "business", sample.KINDS)
    records = read(str(sample.PRIVATE_CSV), layout, b"k" * 32)
    return list(running.run(parameters, TERMS, records, model, meter, progress, things))


def _depth(name: str) -> int:
    """Return how many examples come before this one."""
    return 1 + _depth(FOLLOWS[name]) if name in FOLLOWS else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="the name of one of them, without .json")
    only = parser.parse_args().only
    disable_progress_bar()
    model = models.load(sample.MODEL_DIR, models.digest(sample.MODEL_DIR))
    torch.set_num_threads(THREADS)
    things = public(model)
    released: dict[str, dict[str, Released]] = {}
    wanted = {only, FOLLOWS.get(only), FOLLOWS.get(FOLLOWS.get(only, ""))}
    late = 0
    print("| example | texts | s on the wall | s of the processor |\n|---|---|---|---|", flush=True)
    for path in sorted(FOLDER.glob("*.json"), key=lambda path: (_depth(path.stem), path.stem)):
        if path.stem in OTHERS or (only is not None and path.stem not in wanted):
            continue
        wall, processor = time.perf_counter(), time.process_time()
        earlier = released.get(FOLLOWS.get(path.stem, ""), {})
        made = run(json.loads(path.read_text("utf-8")), model, things, earlier)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        artifacts = [each for each in made if isinstance(each, Artifact)]
        # With what the examples before it released: some read that too.
        released[path.stem] = earlier | {each.name: Released(**vars(each)) for each in artifacts}
        texts = sum(not isinstance(each, Artifact) for each in made)
        print(f"| `{path.stem}` | {texts} | {wall:.0f} | {processor:.0f} |", flush=True)
        late += wall > GOAL
    return 1 if late else 0


if __name__ == "__main__":
    raise SystemExit(main())
