"""The mechanism against its definition and its price; one unit's influence:
test_epsvec_influence.py.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from accountant.core import mechanisms
from accountant.core.errors import DataError, InvalidRequest, MeterExceeded
from accountant.core.mechanisms.epsvec import layer_range, shots_sensitivity, vector_sensitivity
from accountant.core.privacy.events import FREE, Composed, releases
from accountant.core.privacy.price import Neighbours, Terms
from workers import models
from workers.data.public_text import constant, vouch
from workers.data.records import Record, Records
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, Written
from workers.interface import Artifact, Progress, Public, Released, Text
from workers.mechanisms import runner
from workers.mechanisms.epsvec import quality, steering, vectors
from workers.mechanisms.epsvec.prompts import Scaffold
from workers.mechanisms.epsvec.steering import ROUNDS
from workers.mechanisms.epsvec.vectors import GRID
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter
from workers.sample import MODEL_DIR

pytestmark = pytest.mark.slow

PRICE = mechanisms.get("epsvec")
LABELS = ("hotel positive", "hotel negative")
ADD, REPLACE = Neighbours
SMALL = {
    "layers": "1-2",
    "noise_multiplier": 0.5,
    "shots": 1,
    "shots_noise_multiplier": 0.5,
    "candidates": 5,
    "partners": 4,
    "samples_per_label": 6,
    "samples": 3,
    "max_tokens": 12,
    "record_tokens": 24,
    "temperature": 1.0,
    "coefficient": 2.0,
    "template": "{examples}Another review ({label}):",
    "stop": None,
    "seed": 5,
}


@pytest.fixture(scope="module")
def model():
    return models.load(MODEL_DIR, models.digest(MODEL_DIR))


def reviews(count: int, label: str | None = LABELS[0]) -> tuple[Record, ...]:
    texts = [f"The zanzibar lift number {i} was broken and I left." for i in range(count)]
    return tuple(Record(f"u{i}", label, text) for i, text in enumerate(texts))


# the second label has no record and runs all the same
DATA = Records(LABELS, reviews(20), b"k" * 32)
TERMS = Terms(public_size=40, labels=LABELS)
LARGE = Terms(public_size=10_000, labels=LABELS)


def run(model, raw: dict, data: Records = DATA, terms: Terms = TERMS, public: Public | None = None):
    """(parameters, texts, artifacts by name, meter, progress)."""
    parameters = PRICE.parse(SMALL | raw, terms)
    meter = Meter(PRICE.price(parameters, terms).dp or FREE)
    progress = Progress(runner("epsvec").total(parameters, terms))
    made = list(
        runner("epsvec").run(parameters, terms, data, model, meter, progress, public or Public())
    )
    texts = [each for each in made if isinstance(each, Text)]
    artifacts = {each.name: each for each in made if isinstance(each, Artifact)}
    return parameters, texts, artifacts, meter, progress


def again(
    model, artifacts: dict, terms: Terms = TERMS, public: Public | None = None, **raw
) -> list[Text]:
    own = {
        "from_job": "earlier",
        "samples": 3,
        "max_tokens": 12,
        "temperature": 1.0,
        "seed": 5,
        **raw,
    }
    parameters = PRICE.parse(own, terms)
    assert PRICE.price(parameters, terms).dp == FREE
    progress = Progress(runner("epsvec").total(parameters, terms))
    earlier = {name: Released(each.name, each.content) for name, each in artifacts.items()}
    made = list(
        runner("epsvec").reuse(parameters, terms, earlier, model, progress, public or Public())
    )
    assert progress.done == progress.total
    return made


@pytest.fixture(scope="module")
def released(model) -> dict[str, Artifact]:
    return run(model, {})[2]


# --- the price ----------------------------------------------------------------------------------


CONFIGURATIONS = [
    {"clipping": "per-layer", "partner": "hashed"},
    {"clipping": "per-layer", "partner": "mean", "sampling_rate": 1.0},
    {"clipping": "joint", "partner": "hashed", "sampling_rate": 0.5},
    {"clipping": "joint", "partner": "mean", "shots": 0, "sampling_rate": 1.0},
    {"layers": "3", "shots": 0},
    {"shots_noise_multiplier": 3.0, "noise_multiplier": 3.0, "sampling_rate": 1.0},
]
FIXED = {"sampling": "without-replacement"}  # needs replace-one


@pytest.mark.parametrize(
    ("neighbours", "raw"),
    [
        *((ADD, raw) for raw in CONFIGURATIONS[::2]),
        *((REPLACE, raw) for raw in CONFIGURATIONS[1::2]),
        (REPLACE, FIXED),
        (REPLACE, FIXED | {"clipping": "joint", "shots": 0}),
    ],
    ids=str,
)
def test_meter_equals_price_and_progress_is_public(model, neighbours, raw):
    sizes = (22, 18) if "sampling" in raw else ()
    terms = Terms(neighbours, public_size=40, labels=LABELS, label_sizes=sizes)
    few = raw | {"samples": 1, "max_tokens": 8}  # what is written has no price
    parameters, texts, artifacts, meter, progress = run(model, few, terms=terms)
    assert releases(meter.realized) == releases(PRICE.price(parameters, terms).dp)
    assert progress.done == progress.total
    assert {each.label for each in texts} <= set(LABELS)
    assert set(artifacts) == {"shots", "vectors"}
    layers = 1 if raw.get("layers") == "3" else 2
    vectors = artifacts["vectors"].tensors()["vectors"]
    assert vectors.shape == (2, layers, model.structure.hidden)
    assert np.linalg.norm(vectors, axis=2) == pytest.approx(np.ones((2, layers)), abs=1e-5)


def test_nothing_is_released_beyond_the_reservation(model):
    """The price of one layer does not pay for two, nor that of vectors for shots."""
    parameters = PRICE.parse(SMALL, TERMS)
    whole = PRICE.price(parameters, TERMS).dp
    assert isinstance(whole, Composed)
    for part in whole.events:
        meter = Meter(part)
        with pytest.raises(MeterExceeded):
            list(runner("epsvec").run(parameters, TERMS, DATA, model, meter, Progress(0)))


@pytest.mark.parametrize("data", [(), reviews(200)], ids=len)
def test_what_a_job_does_follows_from_public_numbers(model, data):
    """Progress, texts and the shapes of what is released are those of any other dataset."""
    _, texts, artifacts, _, progress = run(
        model, {"rejection": "none"}, Records(LABELS, data, b"k" * 32)
    )
    assert progress.done == progress.total == 2 * (5 + 4 + 6 + 3)
    assert len(texts) <= 6
    found = artifacts["shots"].json()["labels"]
    assert [each["label"] for each in found] == list(LABELS)
    assert all(len(each["shots"]) == 1 for each in found)


@pytest.mark.parametrize(("neighbours", "clipping"), [(ADD, "per-layer"), (REPLACE, "joint")])
def test_noise_has_the_scale_that_is_priced(model, neighbours, clipping, monkeypatch):
    """In the units of the paper: sigma over the public m, for a clipping norm C and b records of a
    unit.
    """
    seen = []

    def note(values, sigma):
        seen.append(sigma)
        return values

    monkeypatch.setattr("workers.noise.meter.gaussian_on_grid", note)
    terms = Terms(neighbours, max_records_per_unit=3, public_size=40, labels=LABELS)
    parameters = run(model, {"clipping": clipping, "clip": 2.5}, terms=terms)[0]
    counts, sums = map(float, seen)
    assert counts == pytest.approx(0.5 * shots_sensitivity(terms))
    # rounded up, never down
    assert (2 * Fraction(seen[0])) ** 2 >= (9 if neighbours is ADD else 18)
    sigma = sums * parameters.clip / GRID / parameters.samples_per_label
    assert sigma == pytest.approx(0.5 * vector_sensitivity(parameters, terms))


# --- what is released ---------------------------------------------------------------------------


def test_artifacts_hold_no_private_text_and_nothing_is_written_to_disk(model):
    run(model, {})  # whatever is imported late is imported now
    opened: list[str] = []
    _watch["opened"] = opened
    try:
        _, texts, artifacts, _, _ = run(model, {"shots": 2})
    finally:
        _watch["opened"] = None
    assert opened == []
    everything = b"".join(each.content for each in artifacts.values())
    assert b"zanzibar" not in everything
    shots = [shot["text"] for each in artifacts["shots"].json()["labels"] for shot in each["shots"]]
    assert shots
    assert not {record.text for record in DATA.records} & set(shots)
    assert "zanzibar" not in " ".join(each.text for each in texts)


_watch: dict = {"opened": None}


def _hook(event: str, arguments: tuple) -> None:
    if _watch["opened"] is not None and event == "open":
        path, _, flags = arguments
        if flags & 3:  # written, or read and written
            _watch["opened"].append(str(path))


sys.addaudithook(_hook)


def test_the_shot_is_the_candidate_that_most_records_are_near(model):
    """With next to no noise, shots are about what the records are about."""
    texts = ["We had lunch. The waiting list was long, so we left."] * 60
    data = Records(
        LABELS, tuple(Record(f"u{i}", LABELS[0], t) for i, t in enumerate(texts)), b"k" * 32
    )
    raw = {"shots_noise_multiplier": 0.001, "candidates": 40, "max_tokens": 60, "record_tokens": 60}
    _, _, artifacts, _, _ = run(model, raw, data)
    (shot,) = artifacts["shots"].json()["labels"][0]["shots"]
    assert shot["noisy_count"] == 60


def scaffold_of(template: str) -> Scaffold:
    return Scaffold(vouch(template), constant("text"), None, "plain", 24)


# --- writing ------------------------------------------------------------------------------------


def test_a_pen_writes_what_the_plain_model_writes(model):
    """Greedily, in float32, with rows that end and begin again, steered or not."""
    prompt = scaffold_of("{examples}Another review ({label}):").prompt(
        model.tokenizer, vouch(LABELS[0])
    )
    manner = Manner(30, 0.0)
    bias = {
        1: torch.linspace(-1, 1, model.structure.hidden),
        2: torch.linspace(2, 0, model.structure.hidden),
    }
    seen = set()
    for each_bias in (None, bias):
        ids = list(prompt.ids)
        with model.structure.steered(each_bias or {}), torch.inference_mode():
            for _ in range(30):
                token = int(model.network(torch.tensor([ids])).logits[0, -1].argmax())
                if token in model.end_tokens:
                    break
                ids.append(token)
        expected = model.tokenizer.decode(ids[len(prompt.ids) :], skip_special_tokens=True).strip()
        for each, texts in ((model, 20), (replace(model, memory_bytes=1), 3)):
            writer = LocalWriter(each, generator(model.device, 1))
            found = list(writer.write([prompt.asked], manner, texts, each_bias))
            assert [text.text for text in found] == [expected] * texts
        seen.add(expected)
    assert len(seen) == 2


def test_every_text_that_begins_is_written_to_its_end(model):
    """Rows are used again, and short texts don't push long ones out: as many as asked for, whatever
    fits.
    """
    prompt = scaffold_of("{examples}Another review ({label}):").prompt(
        model.tokenizer, vouch(LABELS[0])
    )
    manner = Manner(20, 1.0, "\n")
    for each in (model, replace(model, memory_bytes=1)):
        writer = LocalWriter(each, generator(model.device, 3))
        for count in (0, 1, 17):
            assert len(list(writer.write([prompt.asked], manner, count))) == count
    # texts come as they end; none is kept
    first = next(writer.write([prompt.asked], manner, 10**8))
    assert first.text


def test_a_stop_text_ends_a_text_and_is_left_out(model):
    prompt = scaffold_of("{examples}Another review ({label}):").prompt(
        model.tokenizer, vouch(LABELS[0])
    )
    writer = LocalWriter(model, generator(model.device, 3))
    found = list(writer.write([prompt.asked], Manner(60, 0.8, "the"), 30))
    assert not any("the" in each.text for each in found)
    assert sum(each.complete for each in found) > 20


def test_steering_changes_texts_and_seeds_only_what_is_public(model, released):
    plain = again(model, released, coefficient=0.0)
    assert plain == again(model, released, coefficient=0.0)
    steered = again(model, released, coefficient=8.0)
    assert steered == again(model, released, coefficient=8.0)
    assert [each.text for each in steered] != [each.text for each in plain]
    assert again(model, released, coefficient=0.0, seed=6) != plain
    first, second = (run(model, {})[2]["vectors"].content for _ in range(2))
    assert first != second  # the same seed: the noise is another


# --- from_job -----------------------------------------------------------------------------------


def test_a_later_job_writes_with_the_earlier_ones_prompt_shots_and_layers(model, released):
    texts = again(model, released, samples=5, label=LABELS[1])
    assert {each.label for each in texts} == {LABELS[1]}
    assert 0 < len(texts) <= 5
    released_with = Scaffold.released(Released(released["shots"].name, released["shots"].content))
    assert released_with.template == SMALL["template"]


def test_artifacts_that_do_not_fit_are_named(model, released):
    other = released["vectors"].tensors()
    narrow = Artifact.of_tensors(
        "vectors", "dataset-vectors", other | {"vectors": other["vectors"][:, :, :9]}
    )
    with pytest.raises(DataError, match="width"):
        again(model, released | {"vectors": narrow})
    with pytest.raises(DataError, match="'new'"):
        again(model, released, Terms(public_size=40, labels=(*LABELS, "new")))
    with pytest.raises(DataError, match="max_tokens"):
        again(model, released, max_tokens=500)
    assert PRICE.artifacts_need_model


# --- rejection ----------------------------------------------------------------------------------


def test_a_judge_without_an_answer_drops_texts_and_never_hangs(model, released):
    """The bundled model writes reviews and no JSON."""
    public = Public(models={"judge": model})
    asked = []
    original = quality.answers

    def counting(writer, prompts, manner):
        asked.append(len(prompts))
        return original(writer, prompts, manner)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "answers", counting)
        patch.setattr(quality, "ANSWER", replace(quality.ANSWER, max_tokens=8))
        texts = again(
            model,
            released,
            public=public,
            rejection="judge",
            judge="small",
            samples=2,
            label=LABELS[0],
        )
    assert texts == []
    assert asked == [2] * (quality.TRIES * ROUNDS)


def test_a_judge_is_asked_again_and_its_rating_decides(model, released, monkeypatch):
    answers: Iterator[str] = iter(
        [
            '{"overall": 6',
            "no idea",
            '{"overall": 5',
            '{"fluency": 2, "overall": 9',
            '{"overall": 7',
        ]
    )
    monkeypatch.setattr(
        quality, "answers", lambda writer, prompts, manner: [next(answers) for _ in prompts]
    )
    public = Public(models={"judge": model})
    texts = again(
        model,
        released,
        public=public,
        rejection="judge",
        judge="j",
        samples=3,
        label=LABELS[0],
        seed=9,
    )
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("answer", "rating"),
    [
        ('{"overall": 7}', 7),
        ('```json\n{"fluency": 3, "overall": 10}\n```', 10),
        ('{"overall": 7.5}', None),
        ('{"overall": true}', None),
        ('{"overall": 11}', None),
        ('{"score": 7}', None),
        ("7", None),
        ("{not json}", None),
        ("{" * 10_000, None),
        ("", None),
    ],
)
def test_only_a_whole_rating_in_json_counts(answer, rating):
    assert quality.overall(answer) == rating


def test_the_rule_tells_texts_from_noise():
    good = Written("The room was clean and the staff were kind to us all week.", True)
    rates = quality.by_rule(
        [
            good,
            replace(good, complete=False),
            Written("la la la la la la la la", True),
            Written("", True),
            Written("I'm sorry, but I can't write a text about rooms and staff.", True),
            Written("The room was clean and these are the people who worked there:", True),
            Written("The room was clean, all week.", True),
        ]
    )
    assert rates[0] == 10
    assert rates[1] == 8
    assert rates[2] == 6
    assert rates[3] <= 4
    assert rates[4:6] == [0, 0]
    assert rates[6] == 8
    own = [
        "Rooms. The room was clean and the staff were kind to us.",
        "** Rooms **:\nThey were kind.",
    ]
    request = ["Describe a stay in rooms that were clean when we came.", good.text]
    texts = [Written(each, True) for each in own + request]
    template = "Describe a stay in {label}. Be short."
    assert quality.by_rule(texts, template, "rooms") == [0, 0, 0, 10]
    assert quality.by_rule([replace(good, text="...and " + good.text)]) == [10]
    told = replace(good, text=f"Bed and Breakfast: {good.text}")
    assert quality.by_rule([told], label="bed & breakfast") == [0]


def test_readable_drafts_surprise_nowhere_and_do_not_repeat_their_words(monkeypatch):
    losses = {
        "calm": [9.0, 9.0, 9.0, 9.0] + [1.0] * 16,  # an opening surprises always
        "even": [0.1, 0.1, 0.1, 0.1] + [2.0] * 16,
        "slip": [0.1, 0.1, 0.1, 0.1] + [0.1] * 14 + [8.0, 8.0],
        "long": [1.0] * 4 + [1.0] * 60,
        "short": [0.1] * 4,
    }
    monkeypatch.setattr(
        quality, "token_losses", lambda _, texts, tokens: [np.array(losses[t]) for t in texts]
    )
    found = quality.readable(None, list(losses), 96)
    assert found.tolist() == [True, True, False, True, False]
    losses |= {f"{way} kind kind": losses["calm"] for way in ("this", "that")}
    varied = quality.readable(None, [*list(losses)[:4], *list(losses)[5:]], 96)
    assert varied.tolist() == [True, False, False, True, False, False]
    assert quality.readable(None, [], 96).tolist() == []


def test_a_heading_is_the_label_as_the_prompt_says_it(model, monkeypatch):
    terms, said = Terms(public_size=40, labels=("OfficeHolder",)), []
    raw = {"shots": 0, "template": "A {label}:", "coefficient": 0, "rejection": "rule"}
    parameters = PRICE.parse(SMALL | raw | {"max_tokens": 2}, terms)
    own = steering.Steered(
        Scaffold.of(parameters), {"OfficeHolder": []}, np.array([1, 2]), np.zeros((1, 2, 8))
    )
    monkeypatch.setattr(
        steering, "by_rule", lambda texts, template, label: said.append(label) or [10] * len(texts)
    )
    writer = LocalWriter(model, generator(model.device, 1))
    progress = Progress(3)
    texts = steering.texts_of(
        parameters, terms, writer, own, "OfficeHolder", None, progress, KeptDraws()
    )
    assert {each.label for each in texts} == {"OfficeHolder"}
    assert set(said) == {"office holder"}


def test_the_rule_drops_texts_and_fewer_come_out(model, released):
    texts = again(model, released, rejection="rule", min_quality=10, samples=6)
    assert len(texts) <= 12
    assert quality.by_rule([Written(each.text, each.complete) for each in texts]) == [10] * len(
        texts
    )


def test_of_several_drafts_the_readable_that_lie_furthest_the_labels_way_are_kept(model, released):
    parameters, texts, artifacts, _, _ = run(model, {"drafts": 3, "rejection": "none"})
    assert artifacts["texts-left-out"].json()["written"] == 2 * 3 * 3
    assert sum(artifacts["texts-left-out"].json()["left_out"].values()) == 18 - len(texts)
    raw = {"label": LABELS[1], "rejection": "none", "temperature": 1.0, "max_tokens": 24}
    every = again(model, released, samples=12, **raw)
    kept = again(model, released, samples=3, drafts=4, **raw)
    assert len(kept) == len({each.text for each in kept}) == 3
    assert {each.text for each in kept} < {each.text for each in every}
    found = released["vectors"].tensors()
    direction = found["vectors"][1] - found["vectors"][0]
    scaffold = Scaffold.released(Released("shots", released["shots"].content))
    shots = [each["text"] for each in released["shots"].json()["labels"][1]["shots"]]
    prompt = scaffold.prompt(model.tokenizer, constant(LABELS[1]), [constant(e) for e in shots])
    layers = layer_range(parameters)

    def scores(texts: list[Text]) -> list[float]:
        states = vectors.states(model, prompt, [each.text for each in texts], 24, layers)
        return [float(np.sum(state * direction)) for state in states]

    first = quality.readable(model, [each.text for each in every], 24)
    readable = [each for each, is_first in zip(every, first, strict=True) if is_first]
    rest = [each for each in readable if each.text not in {one.text for one in kept}]
    assert len(rest) == len(readable) - 3 > 0
    assert min(scores(kept)) >= max(scores(rest))


# --- prompts ------------------------------------------------------------------------------------


def test_prompts_for_base_and_instruction_models(model):
    scaffold = Scaffold.of(PRICE.parse({"epsilon": 1.0, "description": "{label} note"}, LARGE))
    tokenizer = model.tokenizer
    base = scaffold.prompt(tokenizer, vouch("sad"), [vouch("One shot.")])
    text = tokenizer.decode(base.ids)
    assert text.count("[start]\nKind: sad\nContent:") == 2
    assert "Content: One shot.\n[end]\n\n" in text
    assert text.endswith("Content:")
    assert base.ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(base.read("A record.", 50)) == " A record."
    assert len(base.read("word " * 10_000, 7)) == 7
    assert base.read("  \n", 7) == []
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    before = tokenizer.chat_template
    tokenizer.chat_template = template
    try:
        chat = tokenizer.decode(scaffold.prompt(tokenizer, vouch("sad"), [vouch("One shot.")]).ids)
        plain = replace(scaffold, prompting="plain").prompt(
            tokenizer, vouch("sad"), [vouch("One shot.")]
        )
    finally:
        tokenizer.chat_template = before
    assert chat.startswith("<user>")
    assert chat.endswith("alone.<assistant>")
    assert plain.ids == base.ids


def test_a_template_without_a_place_for_shots_is_the_whole_request(model):
    template = "Write about {label}."
    parameters = PRICE.parse({"epsilon": 1.0, "shots": 0, "template": template}, LARGE)
    tokenizer, before = model.tokenizer, model.tokenizer.chat_template
    tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    try:
        prompt = Scaffold.of(parameters).prompt(tokenizer, vouch("sad"))
    finally:
        tokenizer.chat_template = before
    assert str(prompt.asked.text) == "Write about sad."
    assert tokenizer.decode(prompt.ids) == "<Write about sad.>"


def test_what_a_shot_or_record_says_is_never_read_as_a_slot(model):
    scaffold = Scaffold.of(PRICE.parse({"epsilon": 1.0}, LARGE))
    prompt = scaffold.prompt(model.tokenizer, vouch("{examples}"), [vouch("{label} {examples}")])
    assert "Content: {label} {examples}\n" in model.tokenizer.decode(prompt.ids)


def test_contexts_are_no_longer_than_what_was_announced(model):
    """The longest shots, a full record and a full text, against the figure that admission
    compares.
    """
    for raw in (
        {},
        {"template": "{examples}A {description}, {label}:", "stop": None, "description": "note"},
    ):
        parameters = PRICE.parse({"epsilon": 1.0, "max_tokens": 40, "shots": 3, **raw}, LARGE)
        template = models.template_tokens(MODEL_DIR, parameters.template, LABELS)
        shot = "The room was clean. " * 50
        prompt = Scaffold.of(parameters).prompt(
            model.tokenizer, vouch(LABELS[1]), [vouch(shot)] * 3
        )
        longest = len(prompt.ids) + max(parameters.record_tokens, parameters.max_tokens)
        assert longest <= PRICE.context_tokens(parameters, template)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"label": "garage"}, "label"),
        ({"template": "A review ({label}):"}, "template"),
        ({"template": "{examples}{record}"}, "template"),
        ({"description": "{text}"}, "description"),
        ({"judge": "someone"}, "judge"),
        ({"noise_multiplier": 1e9}, "noise_multiplier"),
        ({"shots_noise_multiplier": 1e9}, "shots_noise_multiplier"),
    ],
)
def test_bad_requests_are_refused_by_name(raw, field):
    with pytest.raises(InvalidRequest) as caught:
        PRICE.parse(SMALL | raw, TERMS)
    assert [each.field for each in caught.value.problems] == [field]


def test_a_judge_is_named_by_who_asks_for_one():
    problem = PRICE.missing(PRICE.parse(SMALL | {"rejection": "judge"}, TERMS))
    assert problem is not None
    assert problem.field == "judge"
    named = PRICE.parse(SMALL | {"rejection": "judge", "judge": "j", "embedding": "e"}, TERMS)
    assert PRICE.missing(named) is None
    assert PRICE.resources(named) == {"embedding": "embedding", "judge": "writer"}


def test_released_vectors_are_plain_json_and_safetensors(released):
    assert json.loads(released["shots"].content)["labels"][0]["shots"][0]["text"]
    assert set(released["vectors"].tensors()) == {"vectors", "layers"}
