"""A job waits for the class of workers that holds its model and a batch, and people are told when
nobody serves it.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sqlalchemy import select, text, update
from transformers import LlamaConfig

from accountant import settings as settings_module
from accountant import tables
from accountant.core import mechanisms
from accountant.core.ledger.accounts import NOTHING
from accountant.core.privacy.price import Terms
from accountant.queries import workers
from accountant.settings import Settings
from accountant.transactions import hardware, messages
from accountant.transactions.job_requests import Candidate
from workers import models, placement
from workers.engine import sizing

CLASSES = {"gpu80": 80.0, "cpu": 2.0, "gpu24": 24.0}
CONFIG = LlamaConfig(
    num_hidden_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=32_000,
)
FACTS = {
    "parameters": 7_000_000_000,
    "cached_numbers": sizing.cached_numbers(CONFIG),
    "vocabulary": 32_000,
    "dtype": "bfloat16",
}


def job(**parameters) -> Candidate:
    values = {"tokens_per_batch": 100, "batch_size": 64, "batches_per_label": 1, **parameters}
    mechanism = mechanisms.get("private-prediction")
    resolved = mechanism.parse(values, Terms(public_size=1000))
    return Candidate(mechanism.id, values, resolved, Terms(), NOTHING, 0.0)


def smallest(job_of: Candidate, facts, gpus: int) -> float:
    """GiB of the smallest class of two that holds a job, to a thousandth."""
    few, many = 1.0, 4096.0
    while many / few > 1.001:
        middle = (few * many) ** 0.5
        made = Settings(hardware={"gpu": middle, "gpu-more": 2 * many}, gpus_per_worker=gpus)
        found = hardware.class_of(job_of, facts, {"template_tokens": 30}, made)
        few, many = (few, middle) if found == "gpu" else (middle, many)
    return many


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("billions", [0.5, 7, 30, 70])
def test_a_class_has_room_for_a_batch_exactly_where_the_engine_has(monkeypatch, gpus, billions):
    """Of one memory a little smaller and a little larger, on the GPUs where the engine puts it."""
    facts = FACTS | {"parameters": int(billions * 1e9)}
    capacity = mechanisms.get("private-prediction").context_tokens(job().resolved, 30)
    network = SimpleNamespace(
        config=CONFIG, dtype=torch.bfloat16, device=SimpleNamespace(type="cuda")
    )

    def batches(gib: float) -> int:
        """The halves of a batch that the engine decodes together; 0: the model does not fit."""
        each, size = int(gib * 2**30 / gpus), 2 * facts["parameters"]
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(models, "weight_count", lambda _: facts["parameters"])
        for module in (models, placement):
            monkeypatch.setattr(module, "whole_memory", lambda _: each)
        needed = models._bytes(Path(), torch.device("cuda"), True, None)[1]
        found = placement.devices(needed, "cuda")
        if size > each * len(found):
            return 0
        free = each - size // len(found)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, each))
        layers = [torch.device(found[number * len(found) // 64]) for number in range(64)]
        shape, memory = sizing.Shape(0, capacity - 10, 10), sizing.default_memory(layers)
        return sizing.sizes(network, shape, 64, 2, memory).batches

    gib = smallest(job(batch_size=128), facts, gpus)
    assert (batches(0.997 * gib) < 2, batches(1.003 * gib)) == (True, 2)


def test_an_embedding_model_is_on_one_gpu():
    """It is never split."""
    facts = {"parameters": 10 * 2**30 // 4, "dimensions": 768}  # 10 GiB
    assert smallest(job(), facts, 1) == pytest.approx(10, rel=0.01)
    assert smallest(job(), facts, 2) == pytest.approx(20, rel=0.01)


def test_the_smallest_class_that_holds_a_job_is_its_class():
    def of(facts, classes=CLASSES, dtype="auto", **parameters):
        probe = {"template_tokens": 30}
        made = Settings(hardware=classes, model_dtype=dtype)
        return hardware.class_of(job(**parameters), facts, probe, made)

    small = FACTS | {"parameters": 100_000_000, "cached_numbers": 1000}
    assert of(None) == "cpu"  # it has no model
    assert of(small) == "cpu"
    assert of(FACTS) == "gpu24"
    assert of(FACTS, dtype="float32") == "gpu80"
    assert of(FACTS, batch_size=255) == "gpu80"
    assert of(FACTS | {"parameters": 10**12}) == "gpu80"  # a worker says that it does not fit
    assert of(FACTS, classes={}) == ""


def test_a_class_has_a_plain_name_and_memory():
    assert Settings(hardware={"gpu80": 80}).hardware == {"gpu80": 80.0}
    for wrong in ({"big one": 80}, {"gpu": 0}, {"tpu": 8}):
        with pytest.raises(ValueError, match="hardware"):
            Settings(hardware=wrong)


@pytest.fixture
def classed(open_bench, monkeypatch):
    """A dataset whose jobs wait for a class, and have a part for each of its workers."""
    made = Settings(hardware={"gpu24": 24}, fan_out=0)
    monkeypatch.setattr(settings_module, "load", lambda: made)
    return open_bench


def parts_of(bench, job_id) -> list[str]:
    query = select(tables.parts.c.hardware).where(tables.parts.c.job_id == job_id)
    with bench.engine.connect() as connection:
        return list(connection.execute(query).scalars())


def test_a_job_has_a_part_for_each_live_worker_of_its_class(classed, owner):
    assert parts_of(classed, classed.submit(10, batches_per_label=4)) == ["gpu24"]
    for worker, classes in (("a", ["gpu24"]), ("b", ["gpu24", "gpu80"]), ("c", ["gpu80"])):
        hardware.say(classed.engine, worker, classes)
    assert parts_of(classed, classed.submit(11, batches_per_label=4)) == ["gpu24"] * 2
    assert parts_of(classed, classed.submit(12, batches_per_label=1)) == ["gpu24"]
    with owner.begin() as connection:
        connection.execute(text("UPDATE live_workers SET at = at - interval '2 minutes'"))
    assert parts_of(classed, classed.submit(13, batches_per_label=4)) == ["gpu24"]
    hardware.say(classed.engine, "a", ["gpu24"])
    hardware.forget(classed.engine, "a")
    assert hardware.all_workers(classed.engine) == 1


def test_a_message_goes_to_the_class_and_people_are_told_when_nobody_serves_it(classed):
    job_id, sent = classed.submit(14), []
    messages.deliver(classed.engine, lambda task, job, *_: sent.append((task, job)))
    assert ("generate.gpu24", job_id) in sent
    hardware.say(classed.engine, "d", ["gpu80"])
    assert workers.missing(classed.engine, job_id) == "of the class gpu24"
    assert workers.problem(classed.engine, in_their_words=False) is None
    with classed.engine.begin() as connection:
        past = tables.jobs.c.queued_at - text("interval '2 minutes'")
        connection.execute(
            update(tables.jobs).where(tables.jobs.c.id == job_id).values(queued_at=past)
        )
    problem = workers.problem(classed.engine, in_their_words=False)
    assert problem == "jobs wait: no worker of the class gpu24 runs"
    assert messages.longest_wait(classed.engine, {"generate"}, ["gpu80"]) == 0
    hardware.say(classed.engine, "d", ["gpu24"])
    assert workers.missing(classed.engine, job_id) is None
    assert workers.problem(classed.engine, in_their_words=False) is None
