"""Summaries by the bundled model: what a record moves, what is paid, and that decoding is what it
says.
"""

import inspect
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.errors import DataError
from accountant.core.mechanisms.batches import doubled
from accountant.core.privacy.events import FREE, Gaussian, SelfComposed
from accountant.core.privacy.price import Neighbours, Terms
from tests.workers.conformance.metadata import Refused
from tests.workers.conformance.noting import Noting, compare
from workers import engine, models
from workers.data.records import Record, Records
from workers.embedding import mean_states
from workers.embedding.mean_states import Reader, View
from workers.generation import soft_prompt_adapter
from workers.interface import Artifact, Progress, Public, Released, Text
from workers.mechanisms import runner, summary_adapter, summary_oneshot, summary_token
from workers.noise.clipping import GRID
from workers.noise.meter import Meter
from workers.sample import MODEL_DIR

pytestmark = pytest.mark.slow

TOKEN, ONESHOT, ADAPTER = map(
    mechanisms.get, ("summary-token", "summary-oneshot", "summary-adapter")
)
GROUPS = ("north", "south", "east")
ADD, REPLACE = Neighbours
SHORT = {"record_tokens": 12, "max_tokens": 4, "template": "A review: {record}\nAnother review:"}
READ = {"record_tokens": 12, "max_tokens": 6, "soft_tokens": 3, "template": "A review: {record}"}
WORDS = ("soup", "cold", "a quiet room", "the lift was slow", "ünïcode 👍", "")


@pytest.fixture(scope="module")
def model():
    """The bundled model, whose texts never end by themselves."""
    torch.set_num_threads(1)
    return replace(models.load(MODEL_DIR, models.digest(MODEL_DIR)), end_tokens=frozenset())


class Texts:
    """A public corpus of two labels."""

    name = "made up"

    def texts(self):
        for n in range(24):
            yield (
                (f"The lift number {n} was slow.", "hotel")
                if n % 2
                else (f"Soup {n} was cold.", "café")
            )


@pytest.fixture(scope="module")
def adapter(model) -> Released:
    """An adapter of two steps."""
    raw = {
        "steps": 2,
        "set_size": 4,
        "target_tokens": 6,
        "batch_size": 2,
        "seed": 1,
        "centre": False,
    }
    *_, made = adapted(model, raw)
    return Released(made.name, made.content)


def adapted(model, raw: dict, progress: Progress | None = None) -> list:
    reading = {name: READ[name] for name in ("record_tokens", "soft_tokens", "template")}
    parameters = ADAPTER.parse({"corpus": "c", **reading, **raw}, Terms())
    progress = progress or Progress(parameters.steps)
    public = Public({"corpus": Texts()})
    return list(runner("summary-adapter").make(parameters, Terms(), model, progress, public))


def records(texts: dict[str, list[str]], key: bytes = b"k" * 32, unit: str = "u") -> Records:
    made = [
        Record(f"{unit}{n} {group}", None, text, group)
        for group, own in texts.items()
        for n, text in enumerate(own)
    ]
    return Records((None,), tuple(made), key, groups=tuple(texts))


DATA = {"north": ["soup", "a quiet room", "cold"], "south": ["the lift was slow"], "east": []}


def run(mechanism, model, data: Records, raw: dict, terms: Terms, meter_of=None, public=None):
    parameters = mechanism.parse(raw, terms)
    price = mechanism.price(parameters, terms)
    meter = Meter(price.dp) if meter_of is None else meter_of(price)
    progress = Progress(runner(mechanism.id).total(parameters, terms))
    made = list(
        runner(mechanism.id).run(
            parameters, terms, data, model, meter, progress, public or Public()
        )
    )
    return price, meter, made, progress


# --- what a record moves ------------------------------------------------------------------------


@pytest.mark.parametrize("relation", Neighbours)
@pytest.mark.parametrize(
    ("name", "memory"),
    [("summary-token", None), ("summary-token", 1_000_000), ("summary-oneshot", None)],
)
def test_one_record_moves_the_sums_by_what_is_declared_and_no_more(model, name, memory, relation):
    """The real runners, exact integers: out of a group, or in its place another, in any group."""
    mechanism = mechanisms.get(name)
    terms = Terms(relation, groups=GROUPS)
    raw = {
        **(SHORT if name == "summary-token" else READ),
        "noise_multiplier": 0.3,
        "public_size": 30,
    }
    raw |= {"seed": 7, "clip": 5.0}
    other = [{"north": ["soup", "cold"]}]
    if relation is REPLACE:
        other = [
            {"north": ["soup", "ünïcode 👍", "cold"]},
            {"north": ["soup", "cold"], "east": ["slow"]},
        ]
    if memory:  # half of the contexts have no room for their keys and values
        model = replace(model, memory_bytes=memory)
    _, one, _, _ = run(mechanism, model, records(DATA), raw, terms, Noting)
    for changed in other:
        _, two, _, _ = run(
            mechanism, model, records(DATA | changed), raw, terms, lambda price: Noting(price, one)
        )
        compare(one, two)
    # The kit sees a mechanism that declares less than a record moves.
    for calls in (one.calls, two.calls):
        for own in calls.values():
            own[:] = [replace(call, per=call.per * 3) for call in own]
    with pytest.raises(Refused, match="times what is declared"):
        compare(one, two)


STATE = st.tuples(st.integers(0, 2**32), st.floats(1e-6, 1e6))


def state(seed: int, scale: float) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=9) * scale
    if seed % 7 == 0:
        values[seed % 9] = (np.nan, np.inf, 1e300)[seed % 3]
    return values


@given(
    st.lists(STATE, max_size=5), STATE, st.floats(1e-3, 1e3), st.integers(1, 9), st.integers(0, 99)
)
def test_centre_and_basis_move_nothing_beyond_the_clip(others, own, clip, components, seed):
    """Whatever the centre, whatever the basis, orthonormal or not."""
    random = np.random.default_rng(seed)
    views = [
        mean_states.plain(9),
        View(random.normal(size=9) * 100),
        View(random.normal(size=9), random.normal(size=(components, 9)) * 50),
        mean_states.public_view(random.normal(size=(12, 9)), True, components),
    ]
    for view in views:
        rest = [state(*each) for each in others]
        without = mean_states.clipped_sum(view, rest, clip)
        moved = mean_states.clipped_sum(view, [*rest, state(*own)], clip) - without
        assert sum(step * step for step in moved.tolist()) <= GRID**2
        # The mean moves by at most C / n, in the coordinates that get noise.
        far = np.sqrt(sum(step * step for step in moved.tolist())) * clip / GRID / 100
        assert far <= clip / 100


@given(st.integers(0, 2**32), st.integers(2, 9))
def test_a_mean_inside_the_clip_comes_back_as_it_was(seed, components):
    random = np.random.default_rng(seed)
    states = random.normal(size=(20, 9)) + 5
    for view in (mean_states.plain(9), mean_states.public_view(states, True, 9)):
        total = mean_states.clipped_sum(view, states, 100.0)
        np.testing.assert_allclose(
            mean_states.mean_state(view, total, 100.0, 20), states.mean(axis=0), atol=0.01
        )
    # In fewer directions it is the nearest state that they can say.
    view = mean_states.public_view(states, True, components)
    total = mean_states.clipped_sum(view, states, 100.0)
    np.testing.assert_allclose(
        mean_states.mean_state(view, total, 100.0, 20), states.mean(axis=0), atol=0.01
    )
    assert np.allclose(view.basis @ view.basis.T, np.eye(components), atol=1e-9)


# --- what is paid -------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [(), GROUPS])
@pytest.mark.parametrize("relation", Neighbours)
def test_the_meter_records_the_price(model, adapter, relation, groups):
    terms = Terms(relation, groups=groups, public_size=30)
    public = Public(sources={"adapter": {"adapter": adapter}})
    raw = READ | {"epsilon": 5.0, "public_size": 30, "releases": 2, "decodings": 3, "adapter": "a"}
    price, meter, made, progress = run(ONESHOT, model, records(DATA), raw, terms, public=public)
    assert meter.realized == price.dp
    assert progress.done == progress.total
    means = made[0].tensors()
    assert {own.shape for own in means.values()} == {(2, model.structure.hidden)}
    assert len(means) == max(1, len(groups))
    written = [each for each in made if isinstance(each, Text)]
    assert len(written) == 3 * max(1, len(groups))
    assert {each.label for each in written} == set(groups or (None,))
    raw = SHORT | {"epsilon": 5.0, "public_size": 30}
    price, meter, made, progress = run(TOKEN, model, records(DATA), raw, terms)
    assert meter.realized == price.dp
    assert progress.done == progress.total
    assert [each.label for each in made] == list(groups or (None,))


def test_an_end_token_returns_the_tokens_that_were_not_written(model):
    # the first token ends it
    ending = replace(model, end_tokens=frozenset(range(model.vocabulary)))
    terms = Terms(groups=GROUPS)
    raw = SHORT | {"epsilon": 5.0, "public_size": 30}
    price, meter, made, progress = run(TOKEN, ending, records(DATA), raw, terms)
    gaussian = Gaussian(TOKEN.parse(raw, terms).noise_multiplier)
    assert (price.dp, meter.realized) == (SelfComposed(gaussian, 4), gaussian)
    assert [(each.text, each.complete) for each in made] == [("", True)] * 3
    assert progress.done == progress.total


def test_groups_end_each_for_itself(model):
    """A group that ended pays no more, while the others go on."""
    terms = Terms(groups=GROUPS)
    raw = SHORT | {"noise_multiplier": 1e-3, "public_size": 30, "seed": 3, "max_tokens": 6}
    raw |= {"min_tokens": 0}
    _, _, made, _ = run(TOKEN, model, records(DATA), raw, terms)
    whole = [model.tokenizer.encode(each.text, add_special_tokens=False) for each in made]
    ends = frozenset({whole[0][2]})
    _, meter, made, _ = run(TOKEN, replace(model, end_tokens=ends), records(DATA), raw, terms)
    spent = {part: sum(own.values()) for part, own in meter._branches.items()}
    for each in made:
        length = len(model.tokenizer.encode(each.text, add_special_tokens=False))
        assert each.complete == (spent[each.label] == length + 1) or spent[each.label] == 6
    assert spent["north"] < 6


def test_the_noise_is_that_of_the_price(model):
    """The mean's coordinates: variance sigma^2, with sigma as the price states it under either
    relation.
    """
    for relation in Neighbours:
        terms = Terms(relation, groups=("north",))
        raw = READ | {"epsilon": 2.0, "public_size": 30, "clip": 5.0, "releases": 300}
        parameters = ONESHOT.parse(raw, terms)
        _, _, made, _ = run(ONESHOT, model, records({"north": ["soup"]}), raw, terms)
        means = made[0].tensors()["group north"]
        spread = means.std(axis=0, ddof=1)
        wanted = parameters.noise_multiplier * doubled(terms) * 5.0 / 30
        assert np.sqrt((spread**2).mean()) == pytest.approx(wanted, rel=0.05)


# --- states and decoding ------------------------------------------------------------------------


def test_a_state_is_the_head_s_input_and_padding_changes_none(model):
    """Neither a second norm nor left padding: each state is that of its prompt read alone."""
    reader = Reader(model, "A review: {record}", 12)
    texts = ["soup", "", "the lift was slow and I left", "a quiet room"] * 5
    found = list(reader.states(texts))
    for text, own in zip(texts[:4], found, strict=False):
        ids = torch.tensor([reader.prompt.tokens(text, 12)])
        with torch.inference_mode():
            output = model.network(input_ids=ids, output_hidden_states=True)
        alone = output.hidden_states[-1][0, -1].double().numpy()
        np.testing.assert_allclose(own, alone, atol=1e-4 * np.abs(alone).max())
        np.testing.assert_allclose(
            model.structure.logits(torch.from_numpy(own).float()), output.logits[0, -1], atol=1e-3
        )


def test_cached_decoding_is_reading_everything_again(model):
    """Two groups of eight side by side: the sums of every step against contexts read from the
    beginning.
    """
    texts = {"north": [*WORDS[:5], "no", "so", "soup and soup"], "south": ["cold soup"] * 8}
    terms = Terms(groups=tuple(texts))
    raw = SHORT | {"noise_multiplier": 1.0, "public_size": 30, "max_tokens": 8, "seed": 5}
    raw["top_k"] = 0
    parameters = TOKEN.parse(raw, terms)
    data = records(texts)
    _, meter, _, _ = run(TOKEN, model, data, raw, terms, Noting)
    prompt = models.Prompt(model.tokenizer, parameters.template, None)
    for place, group in enumerate(texts):
        written = list(_drawn(model, parameters, meter, group, place))
        for step, call in enumerate(meter.calls[group]):
            again = np.zeros(model.structure.hidden)
            for own in summary_token.contexts(parameters, terms, data, prompt, group)[0]:
                ids = [*prompt.before, *own, *written[:step]]
                with torch.inference_mode():
                    states = model.network(
                        torch.tensor([ids]), output_hidden_states=True
                    ).hidden_states[-1]
                one = states[0, -1].double().numpy()
                again += one * min(1, parameters.clip / np.linalg.norm(one))
            near = 1e-3 * parameters.clip * 8
            np.testing.assert_allclose(call.values * parameters.clip / GRID, again, atol=near)


def _drawn(model, parameters, meter, group, place):
    """The tokens of a group, drawn again from the noted releases with the same seed."""
    random = torch.Generator().manual_seed(parameters.seed + place)
    for call in meter.calls[group]:
        mean = call.answer * (parameters.clip / GRID / parameters.public_size)
        logits = model.structure.logits(torch.from_numpy(mean).float()).double()
        weights = torch.softmax(logits / parameters.temperature, -1)
        yield int(torch.multinomial(weights, 1, generator=random))


@pytest.mark.parametrize("share", [0.0, 0.6, 2.0])
def test_contexts_that_memory_has_no_room_for_are_read_again(model, share):
    """As many groups as fit side by side; where one alone does not, its rest from the beginning
    each time.
    """
    texts = DATA | {"east": list(WORDS)}
    terms = Terms(groups=GROUPS)
    raw = SHORT | {"noise_multiplier": 1e-3, "public_size": 30, "temperature": 0.01, "seed": 1}
    parameters = TOKEN.parse(raw, terms)
    _, wide, whole, _ = run(TOKEN, model, records(texts), raw, terms, Noting)
    prompt = models.Prompt(model.tokenizer, parameters.template, None)
    shape = engine.Shape(len(prompt.before), prompt.fixed_tokens - len(prompt.before) + 12, 4)
    each = engine.cache_bytes(model.network, shape.capacity)
    small = replace(model, memory_bytes=int(30 * each * share * 8 / 7))
    rate = summary_token.cached_share(small, shape, 30)
    assert rate == pytest.approx(min(share, 1), abs=0.01)
    parts = [
        summary_token.contexts(parameters, terms, records(texts), prompt, group, rate)
        for group in GROUPS
    ]
    assert bool(sum(len(again) for _, again in parts)) == (share < 1)
    _, narrow, written, _ = run(TOKEN, small, records(texts), raw, terms, Noting)
    assert written == whole
    for group in GROUPS:
        for one, two in zip(wide.calls[group], narrow.calls[group], strict=True):
            assert np.abs(one.values - two.values).max() < GRID * 1e-3


def test_a_later_job_decodes_without_records_or_meter(model, adapter):
    terms = Terms(groups=GROUPS)
    raw = READ | {"epsilon": 5.0, "public_size": 30, "releases": 2}
    _, _, made, _ = run(ONESHOT, model, records(DATA), raw, terms)
    (means,) = made  # no adapter: nothing is decoded
    again = {"from_job": "j", "adapter": "a", "seed": 3, "decodings": 5, "temperature": 2.0}
    parameters = ONESHOT.parse(READ | again, terms)
    assert ONESHOT.price(parameters, terms).dp == FREE
    reuse = runner("summary-oneshot").reuse
    assert {"records", "meter"}.isdisjoint(inspect.signature(reuse).parameters)
    released = {"means": Released(means.name, means.content)}
    progress = Progress(runner("summary-oneshot").total(parameters, terms))
    public = Public(sources={"adapter": {"adapter": adapter}})
    texts = list(reuse(parameters, terms, released, model, progress, public))
    assert len(texts) == progress.done == progress.total == 15
    same = list(reuse(parameters, terms, released, model, Progress(0), public))
    assert same == texts
    others = Terms(groups=("north",))
    with pytest.raises(DataError, match="from_job"):
        list(reuse(parameters, others, released, model, Progress(0), public))
    narrow = {name: own[:, :5] for name, own in means.tensors().items()}
    broken = {"means": Released("means", Artifact.of_tensors("means", "means", narrow).content)}
    with pytest.raises(DataError, match="width"):
        list(reuse(parameters, terms, broken, model, Progress(0), public))


def test_a_summary_that_is_cut_is_written_again(model, adapter, monkeypatch):
    """Free: of texts that seldom end, more end in eight tries than in one, of each group."""
    ending = replace(model, end_tokens=frozenset(range(0, model.vocabulary, 5)))
    terms = Terms(groups=GROUPS)
    raw = READ | {"from_job": "j", "adapter": "a", "seed": 3, "decodings": 20}
    parameters = ONESHOT.parse(raw, terms)
    means = {
        f"group {group}": np.zeros((1, model.structure.hidden), np.float32) for group in GROUPS
    }
    released = {"means": Released("means", Artifact.of_tensors("means", "means", means).content)}
    public = Public(sources={"adapter": {"adapter": adapter}})

    def ended() -> float:
        progress = Progress(runner("summary-oneshot").total(parameters, terms))
        reuse = runner("summary-oneshot").reuse
        made = list(reuse(parameters, terms, released, ending, progress, public))
        assert Counter(each.label for each in made) == dict.fromkeys(GROUPS, 20)
        assert progress.done == progress.total
        return sum(each.complete for each in made) / len(made)

    again = ended()
    monkeypatch.setattr(summary_oneshot, "TRIES", 1)
    once = ended()
    assert 0 < once < again - 0.2


# --- the adapter --------------------------------------------------------------------------------


def test_an_untrained_adapter_is_its_prompt_and_its_weights_come_back(model):
    means = np.random.default_rng(1).normal(size=(8, model.structure.hidden))
    made = soft_prompt_adapter.begun(model, "A review:", 4, means)
    ids = model.tokenizer.encode("A review:", add_special_tokens=False)
    start = models.text_start(model.tokenizer)
    wanted = model.structure.embed(
        torch.tensor((start + ids)[:4] if len(start + ids) >= 4 else start + ids)
    )
    for own in made(torch.from_numpy(means).float()):
        assert torch.allclose(own[: len(wanted)], wanted, atol=1e-6)
    again = soft_prompt_adapter.of_tensors(made.tensors(), model.structure.hidden, 4)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(made.tensors().values(), again.tensors().values(), strict=True)
    )
    for wrong in (5, 3):
        with pytest.raises(DataError, match="adapter"):
            soft_prompt_adapter.of_tensors(made.tensors(), model.structure.hidden, wrong)
    spoilt = made.tensors()
    spoilt["first.bias"] = spoilt["first.bias"] * np.nan
    with pytest.raises(DataError, match="adapter"):
        soft_prompt_adapter.of_tensors(spoilt, model.structure.hidden, 4)


def test_training_lowers_the_held_out_loss_keeps_the_best_and_stops(model):
    raw = {"steps": 40, "set_size": 4, "target_tokens": 8, "batch_size": 4, "evaluate_every": 5}
    raw |= {"seed": 2, "sigma": 0.05, "learning_rate": 0.01, "patience": 2, "held_out": 0.3}
    progress = Progress(40)
    weights = [value.clone() for value in model.network.parameters()]
    *measures, made = adapted(model, raw, progress)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.network.parameters(), strict=True))
    assert measures[0].held_out > min(each.held_out for each in measures)
    assert [each.best for each in measures] == [
        each.held_out < min((other.held_out for other in measures[:place]), default=np.inf)
        for place, each in enumerate(measures)
    ]
    assert progress.done == progress.total
    assert made.kind == "soft-prompt-adapter"
    (*same, _) = adapted(model, raw, Progress(40))
    # a seed repeats it
    assert [each.to_json() for each in same] == [each.to_json() for each in measures]
    raw |= {"learning_rate": 1e-7, "patience": 1, "evaluate_every": 1, "sigma": 1e6}
    *few, _ = adapted(model, raw, Progress(40))
    assert len(few) < 40


def test_a_target_is_as_many_whole_sentences_as_fit_and_then_ends(model):
    text = "The soup was cold. We waited an hour! Nobody came, and so we went home."
    ids = model.tokenizer.encode
    two = ids(" The soup was cold. We waited an hour!", add_special_tokens=False)
    end = model.tokenizer.eos_token_id
    whole = ids(f" {text}", add_special_tokens=False)
    of = partial(summary_adapter.target_of, model)
    assert of(text, len(two)) == of(text, len(whole) - 1) == [*two, end]
    assert of(f" {text}\n", len(whole)) == [*whole, end]
    assert of(text, 3) == two[:3], "a sentence that does not fit has no end"
    assert of("  ", 9) == []


def test_a_target_is_never_in_its_own_set_and_held_out_texts_train_nothing():
    random = np.random.default_rng(0)
    texts = [(f"text {n}", "ab"[n % 2]) for n in range(30)]
    kept, held = summary_adapter.split(texts, [[n] for n in range(30)], 0.3, random)
    assert not set(np.concatenate(kept.by_label)) & set(np.concatenate(held.by_label))
    sets, targets = kept.draw(random, 200, 5)
    for own, (target,) in zip(sets, targets, strict=True):
        assert target not in own
        assert {n % 2 for n in own} == {target % 2}  # of the target's label
    with pytest.raises(DataError, match="corpus"):
        summary_adapter.split(texts[:3], [[1]] * 3, 0.3, random)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.floats(0.01, 2))
def test_training_sees_means_as_they_are_released(seed, clip):
    """Sets are clipped on the grid and divided by their number, as a group's records are."""
    random = np.random.default_rng(seed)
    states = random.normal(size=(12, 5))
    view = mean_states.public_view(states, True, 3)
    clipped = mean_states.clipped(view, states, clip)
    (found,) = mean_states.clipped_means(view, clipped, [[1, 4, 7]], clip)
    total = mean_states.clipped_sum(view, states[[1, 4, 7]], clip)
    np.testing.assert_array_equal(found, mean_states.mean_state(view, total, clip, 3))


def test_private_noise_has_no_seed(model):
    """The seed of a job draws tokens; the same seed gives other means."""
    terms = Terms(groups=GROUPS)
    raw = READ | {"epsilon": 5.0, "public_size": 30, "seed": 1}
    one, two = (run(ONESHOT, model, records(DATA), raw, terms)[2][0].tensors() for _ in range(2))
    assert all((one[name] != two[name]).all() for name in one)
