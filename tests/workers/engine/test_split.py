"""Models that one GPU does not hold: which layer goes where, and decoding over several devices.

No machine here has two GPUs. What a processor shows: where each layer is put, that no call mixes
devices (fake_gpus), and that accelerate's hooks leave every bit as it was.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from accelerate import dispatch_model

import workers
from tests.workers.conftest import ROOT
from tests.workers.engine.families import BRANCHES, FAMILIES, LAYERS, family
from tests.workers.engine.test_engine import CASES, SHAPE, follow, gathered
from workers import models, placement
from workers.engine import Decoder, Sizes, check_steady, prepare
from workers.engine.sizing import default_memory
from workers.model_shelf import Shelf
from workers.weights import ModelError

pytestmark = pytest.mark.slow

SAMPLE = Path(workers.__file__).parent / "sample" / "model"
MIB = 2**20
TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")


def two_gpus(monkeypatch, whole: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(placement, "whole_memory", lambda _: whole)


def test_what_one_gpu_holds_stays_on_it(monkeypatch):
    two_gpus(monkeypatch, 100)
    assert placement.devices(100, "cuda") == ["cuda"]
    assert placement.devices(101, "cuda") == ["cuda:0", "cuda:1"]
    assert placement.devices(101, "cpu") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert placement.devices(101, "cuda") == ["cuda"]


def test_a_model_is_tried_where_the_workers_gpus_have_room_together(monkeypatch):
    """And what is never split, where the first has it."""
    free = {"cuda": 60, "cuda:0": 60, "cuda:1": 60}
    two_gpus(monkeypatch, 80)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(models, "free_memory", free.get)
    found = [(models.has_room(each), models.has_room(each, split=True)) for each in (11, 20, 24)]
    assert found == [(True, True), (False, True), (False, False)]


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Eight layers of 0.4 MiB in float32, and an embedding and a head of 0.25 MiB each."""
    folder = tmp_path_factory.mktemp("large")
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=8,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_layers_are_put_in_order_and_whole(large):
    found = placement.layers(large, torch.float32, [4 * MIB, 4 * MIB])
    gpus = [found[f"model.layers.{number}"] for number in range(8)]
    assert gpus == sorted(gpus)
    assert abs(gpus.count(0) - gpus.count(1)) <= 2
    assert found["model.embed_tokens"] == 0
    assert found["model.norm"] == found["lm_head"] == 1
    # in half of the memory, a type of half the size
    assert {*placement.layers(large, torch.bfloat16, [2 * MIB, 2 * MIB]).values()} == {0, 1}
    with pytest.raises(ModelError, match="does not fit"):
        placement.layers(large, torch.float32, [2 * MIB, MIB])


def test_contexts_have_the_memory_that_the_fullest_gpu_leaves(monkeypatch):
    free = {0: 900, 1: 900, 2: 450}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index or 0], 0))
    first, second, third = (torch.device("cuda", number) for number in range(3))
    assert default_memory([torch.device("cuda")] * 4) == 720
    # half of the keys and values, and the whole working set: 9 / 16 of all
    assert default_memory([first, first, second, second]) == 1280
    assert default_memory([first, third]) == 640


def test_a_split_model_has_the_gpus_alone(monkeypatch, tmp_path):
    """Whatever was loaded before goes: each GPU's share follows from all of its memory."""
    asked: list[int] = []
    monkeypatch.setattr(models.placement, "devices", lambda *_: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(models, "whole_memory", lambda _: 100 * MIB)
    monkeypatch.setattr(models, "free_memory", lambda _: 40 * MIB)
    monkeypatch.setattr(models, "_loaded", lambda *_: "loaded")

    class Asked(Shelf):
        def get(self, key, needed, room, load):
            asked.extend((needed, room()))
            return load()

    monkeypatch.setattr(models, "_shelf", Asked())
    assert models.load(SAMPLE, "") == "loaded"
    assert asked == [200 * MIB, 80 * MIB]


def test_a_split_model_is_opened_layer_by_layer(monkeypatch):
    """By transformers' device map; all of its parts are on the one device that there is here."""
    monkeypatch.setattr(models, "_shelf", Shelf())
    sha256 = models.digest(SAMPLE)
    whole = models.load(SAMPLE, sha256, memory_gib=1.0)
    given: list[object] = []
    real = models.networks.open_network

    def opened(*arguments):
        given.append(arguments[3])
        return real(*arguments)

    def parts(folder, dtype, rooms):
        found = placement_layers(folder, dtype, [2**30, 2**30])
        assert len(rooms) == 2
        return dict.fromkeys(found, "cpu")

    placement_layers = placement.layers
    monkeypatch.setattr(models, "_shelf", Shelf())
    monkeypatch.setattr(models.placement, "devices", lambda *_: ["cpu", "cpu"])
    monkeypatch.setattr(models.placement, "layers", parts)
    monkeypatch.setattr(models.networks, "open_network", opened)
    split = models.load(SAMPLE, sha256, memory_gib=1.0)
    assert "model.layers.0" in given[-1]
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(split.network(ids).logits, whole.network(ids).logits)


@pytest.mark.parametrize(
    "families", [BRANCHES[:1], pytest.param([*FAMILIES], marks=pytest.mark.release)], ids=len
)
def test_no_call_of_the_engine_mixes_devices(families):
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.workers.engine.fake_gpus", *families],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr[-3000:]
    assert told.stdout.split() == [*families]


def hooked(network, last: str, folder: Path):
    """The network under accelerate's hooks, its last layer read from a disk."""
    blocks = next(
        (name, module)
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == LAYERS
    )[0]
    places: dict[str, str] = {f"{blocks}.{LAYERS - 1}": last}
    for name, module in network.named_modules():
        listed = isinstance(module, torch.nn.ModuleList) or module is network.base_model
        if name and not listed and not any(name.startswith(f"{each}.") for each in places):
            places.setdefault(name, "cpu")
    skipped = network._skip_keys_device_placement
    return dispatch_model(
        network, places, main_device="cpu", offload_dir=folder, skip_keys=skipped, force_hooks=True
    )


@pytest.mark.parametrize("case", ["one pass", "several batches"])
@pytest.mark.parametrize("name", BRANCHES)
def test_hooks_leave_every_bit(name, case, tmp_path):
    batches, chosen = CASES[case]
    model, plain = family(name)

    def values() -> list[torch.Tensor]:
        decoder = Decoder(model, batches, SHAPE, chosen)
        steps = decoder.read(), decoder.step(dict.fromkeys(range(len(batches)), 3))
        return [found for given in steps for found in gathered(given).values()]

    before = values()
    hooked(model.network, "disk", tmp_path)
    assert all(map(torch.equal, before, values()))
    follow(model, plain, batches, chosen)
    check_steady(model, SHAPE, Sizes(rows=16, reading=16, batches=1))


@pytest.mark.parametrize("name", BRANCHES)
def test_a_model_that_was_split_before_it_was_prepared_decodes_alike(name, tmp_path):
    model, plain = family(name)
    again = prepare(hooked(family(name)[0].network, "cpu", tmp_path))
    follow(again, plain, *CASES["several batches"])
    check_steady(again, SHAPE, Sizes(rows=16, reading=16, batches=1))
    assert again.device == model.device


@pytest.mark.gpu
@TWO_GPUS
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_on_two_gpus(name):
    model, plain = family(name)
    network = model.network
    half = {module: number // (LAYERS // 2) for number, module in enumerate(model.blocks)}
    places: dict[str, int] = {}
    for part, module in network.named_modules():
        listed = isinstance(module, torch.nn.ModuleList) or module in (network, model.base)
        if not listed and not any(part.startswith(f"{each}.") for each in places):
            places[part] = half.get(module, 0)
    skipped = network._skip_keys_device_placement
    split = prepare(dispatch_model(network, places, skip_keys=skipped))
    batches, chosen = CASES["several batches"]
    follow(split, plain, batches, chosen, atol=1e-4)
    check_steady(split, SHAPE, Sizes(rows=16, reading=16, batches=1))
    decoder = Decoder(split, batches, SHAPE, chosen)
    gathered(decoder.read())
    assert [layer.keys.device.index for layer in decoder.store.own] == [0, 0, 1, 1]


@pytest.mark.gpu
@TWO_GPUS
def test_a_model_is_loaded_over_two_gpus(monkeypatch):
    monkeypatch.setattr(models, "_shelf", Shelf())
    monkeypatch.setattr(models.placement, "devices", lambda *_: ["cuda:0", "cuda:1"])
    model = models.load(SAMPLE, models.digest(SAMPLE))
    layers = [next(block.parameters()).device.index for block in model.structure.blocks]
    assert {*layers} == {0, 1}
    assert layers == sorted(layers)
