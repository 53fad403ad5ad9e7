"""InvisibleInk against its definition, and one unit's influence against its price."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import workers
from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms.invisible_ink import shift, token_event
from accountant.core.privacy.events import releases
from accountant.core.privacy.price import Neighbours, Terms
from workers import models
from workers.data.records import Layout, Record, Records, read
from workers.engine import Decoder
from workers.engine.aggregation import GRID
from workers.interface import Progress
from workers.mechanisms import invisible_ink
from workers.mechanisms.invisible_ink import Runner, difference_steps, top_k_plus
from workers.models import Prompt
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

PRICE = mechanisms.get("invisible-ink")
SIZE = 300  # tokens of a made-up vocabulary


@pytest.fixture(scope="module")
def model():
    folder = Path(workers.__file__).parent / "sample" / "model"
    return models.load(folder, models.digest(folder))


def run(model, parameters: dict, data: Records, terms: Terms):
    parsed = PRICE.parse(
        {"record_tokens": 24, "batches_per_label": 2, "max_tokens": 6, **parameters}, terms
    )
    meter = Meter(PRICE.price(parsed, terms).dp)
    progress = Progress(Runner().total(parsed, terms))
    texts = list(Runner().run(parsed, terms, data, model, meter, progress))
    return parsed, texts, meter, progress


def reviews(count: int, label: str | None = None) -> tuple[Record, ...]:
    return tuple(
        Record(f"u{i}", label, f"The soup was cold on day {i} and I left.") for i in range(count)
    )


# --- what is paid -------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_meter_equals_price_and_progress_is_public(model, neighbours):
    """If no token ends a text, every paid token is drawn; label b has no record and runs too."""
    terms = Terms(neighbours, labels=("a", "b"))
    data = Records(("a", "b"), reviews(5, "a"), b"k" * 32)
    endless = replace(model, end_tokens=frozenset())
    parsed, texts, meter, progress = run(
        endless, {"texts_per_batch": 2, "batch_size": 4}, data, terms
    )
    assert releases(meter.realized) == releases(PRICE.price(parsed, terms).dp)
    assert progress.done == progress.total == 2 * 2 * 2 * 6
    assert Counter(text.label for text in texts)["b"] > 0
    assert not any(text.complete for text in texts)


def test_an_end_token_ends_a_text_and_what_was_not_drawn_is_not_spent(model, monkeypatch):
    """Every text's third token ends it: 3 of 6 tokens a text are spent; progress is whole all the
    same.
    """
    drawn = Counter()
    real = Meter.sample_token

    def count(self, scores, scale, event, part=None):
        drawn[part] += 1
        return real(self, scores, scale, event, part)

    monkeypatch.setattr(Meter, "sample_token", count)
    decide = invisible_ink._Writer.ended

    def third(self, token):
        end = next(iter(self.model.end_tokens))
        return decide(self, end if len(self.written) == 2 else 9)

    monkeypatch.setattr(invisible_ink._Writer, "ended", third)
    data = Records((None,), reviews(5), b"k" * 32)
    _, texts, meter, progress = run(model, {"texts_per_batch": 2}, data, Terms())
    assert set(drawn.values()) == {2 * 3}
    assert sum(releases(meter.realized).values()) == 2 * 3
    assert progress.done == progress.total
    (counts,) = texts  # what it wrote has no letters
    assert counts.json() == {"written": 2 * 2, "left_out": {"empty": 2 * 2}}


def test_realized_is_what_the_longest_batch_drew(model, monkeypatch):
    drawn = Counter()
    real = Meter.sample_token

    def count(self, scores, scale, event, part=None):
        drawn[part] += 1
        return real(self, scores, scale, event, part)

    monkeypatch.setattr(Meter, "sample_token", count)
    data = Records((None,), reviews(9), b"k" * 32)
    parameters = {"max_tokens": 40, "batches_per_label": 3, "temperature": 0.5, "stop": "."}
    parsed, _, meter, progress = run(model, parameters, data, Terms())
    (event,) = releases(PRICE.price(parsed, Terms()).dp)
    assert releases(meter.realized) == {event: max(drawn.values())}
    assert progress.done == progress.total


def test_stop_text_ends_a_text_and_is_left_out(model):
    data = Records((None,), reviews(12), b"k" * 32)
    parameters = {"max_tokens": 40, "texts_per_batch": 3, "stop": ".", "temperature": 0.5}
    _, texts, _, _ = run(model, parameters, data, Terms())
    assert texts
    assert not any("." in text.text for text in texts)


# --- one unit's influence -----------------------------------------------------------------------


def made_up_logits(text: str) -> np.ndarray:
    """Logits that depend on a record alone, as those of its context do; some records break
    theirs.
    """
    drawn = np.random.default_rng(list(text.encode())).normal(0, 4, SIZE).astype(np.float32)
    if text.startswith("nan"):
        drawn[7] = np.nan
    if text.startswith("inf"):
        drawn[3], drawn[4] = np.inf, -np.inf
    return drawn


def sums(data: Records, parsed) -> dict:
    """The exact sum of every batch over its candidates, added in two pieces."""
    found = {}
    for part, texts in data.batches(parsed.batches_per_label).items():
        chosen = top_k_plus(torch.from_numpy(made_up_logits(f"public {part}")), parsed)
        total = torch.zeros(len(chosen.tokens), dtype=torch.float64)
        for piece in (texts[:2], texts[2:]):
            if piece:
                logits = torch.from_numpy(np.stack([made_up_logits(text) for text in piece]))
                total += difference_steps(logits[:, chosen.tokens], chosen.logits, parsed.clip)
        found[part] = (chosen, chosen.scores + total.long().numpy())
    return found


TEXTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "nan", "inf"]), st.integers(0, 99)),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(TEXTS, max_size=5),
    TEXTS.filter(len),
    st.binary(min_size=32, max_size=32),
    st.integers(1, 3),
    st.sampled_from([(1, 1.0), (8, 0.3), (64, 9.0)]),
    st.sampled_from([1, 5, 10_000]),
)
def test_a_record_in_or_out_changes_one_batch_by_at_most_the_priced_shift(
    tmp_path_factory, others, own, key, bound, sizes, top_k
):
    """Exact integers, with and without one unit of at most `bound` records, under any key."""
    batch_size, clip = sizes
    file = tmp_path_factory.mktemp("ink") / "data.csv"
    layout = Layout("{text}", "who", "label", ("a", "b"), bound)
    terms = Terms(max_records_per_unit=bound, labels=("a", "b"))
    raw = {"batches_per_label": 3, "batch_size": batch_size, "clip": clip, "top_k": top_k}
    parsed = PRICE.parse(raw, terms)

    def of(units) -> dict:
        rows = [f"{who},{label},{kind} {n}" for who, unit in units for label, kind, n in unit]
        file.write_text("\n".join(["who,label,text", *rows]) + "\n")
        return sums(read(str(file), layout, key), parsed)

    rest = [(f"u{i}", unit) for i, unit in enumerate(others)]
    without, with_it = of(rest), of([*rest, ("own", own)])
    scale = Fraction(parsed.clip) / (GRID * parsed.batch_size * Fraction(parsed.temperature))
    moved = []
    for part, (chosen, scores) in without.items():
        again, changed = with_it[part]
        assert torch.equal(again.tokens, chosen.tokens)
        assert (again.scores == chosen.scores).all()
        if (scores != changed).any():
            moved.append(int(np.abs(scores - changed).max()))
    assert sum(moved) * scale <= shift(parsed, terms)
    assert len(moved) <= min(bound, 2)  # one batch for each of the unit's labels
    if len(own) == 1:
        assert len(moved) <= 1


def test_the_shift_that_is_priced_is_reached():
    """The charge is not more than can happen."""
    parsed = PRICE.parse({"batch_size": 4, "clip": 0.5, "batches_per_label": 1}, Terms())
    public = torch.zeros(SIZE)
    one = difference_steps(torch.full((1, SIZE), 3.0), public, parsed.clip)
    assert (one == GRID).all()
    step = Fraction(parsed.clip) / (GRID * parsed.batch_size * Fraction(parsed.temperature))
    assert GRID * step == shift(parsed, Terms())


def test_a_context_with_nan_contributes_zero_and_no_value_passes_the_clip():
    public = torch.tensor([0.0, 1.0, -1.0])
    broken = torch.tensor([[torch.nan, 5.0, 5.0], [torch.nan] * 3])
    assert (difference_steps(broken, public, 2.0) == 0).all()
    wild = torch.tensor([[torch.inf, -torch.inf, 0.5]])
    assert difference_steps(wild, public, 2.0).tolist() == [GRID, -GRID, round(1.5 / 2 * GRID)]


# --- the candidates -----------------------------------------------------------------------------


@given(
    st.integers(0, 2**32),
    st.integers(1, 400),
    st.sampled_from([(1, 1.0), (8, 0.3), (64, 9.0), (10**6, 1e-6)]),
)
def test_top_k_plus_is_the_public_top_k_widened_by_two_steps_of_a_record(seed, top_k, sizes):
    parsed = PRICE.parse(
        {"batch_size": sizes[0], "clip": sizes[1], "top_k": top_k}, Terms(public_size=10)
    )
    public = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, SIZE).astype(np.float32))
    chosen = set(top_k_plus(public, parsed).tokens.tolist())
    exact = public.double().numpy()
    ordered = np.sort(exact)[::-1]
    lowest = ordered[min(top_k, SIZE) - 1] - 2 * sizes[1] / sizes[0]
    step = sizes[1] / (GRID * sizes[0]) + 1e-12
    assert (
        set(np.flatnonzero(exact >= lowest + step))
        <= chosen
        <= set(np.flatnonzero(exact >= lowest - step))
    )
    assert len(chosen) >= min(top_k, SIZE)


def test_without_finite_public_logits_tokens_are_alike_and_minus_infinity_is_never_drawn():
    parsed = PRICE.parse({"top_k": SIZE}, Terms(public_size=10))
    nothing = top_k_plus(torch.full((SIZE,), torch.nan), parsed)
    assert len(nothing.tokens) == SIZE
    assert (nothing.scores == 0).all()
    masked = torch.zeros(SIZE)
    masked[5] = -torch.inf
    assert 5 not in top_k_plus(masked, parsed).tokens


@pytest.mark.parametrize("other", [0, 1, 40])
def test_candidates_do_not_depend_on_private_contexts(model, monkeypatch, other):
    """The same tokens drawn: sets and public scores are equal to the last bit, whatever the batches
    hold.
    """
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: len(scores) // 2)
    found = top_k_plus

    def sets(count: int) -> list:
        seen = []

        def keep(public, parameters):
            seen.append(found(public, parameters))
            return seen[-1]

        monkeypatch.setattr(invisible_ink, "top_k_plus", keep)
        run(
            model,
            {"texts_per_batch": 2, "top_k": 10},
            Records((None,), reviews(count), b"k" * 32),
            Terms(),
        )
        return seen

    one, two = sets(17), sets(other)
    assert len(one) == len(two) >= 2 * 6
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(a.logits, b.logits)
        assert (a.scores == b.scores).all()


def test_the_sampled_distribution_is_that_of_a_direct_computation(model, monkeypatch):
    """Draws of the first token, and of the second after it, against softmax in float64 of plain
    passes.
    """
    laws = []

    def catch(self, scores, scale, event):
        laws.append((scores, scale, event))
        return int(np.argmax(scores))

    monkeypatch.setattr("workers.noise.meter.Branch.sample_token", catch)
    tokens = []
    real_ended = invisible_ink._Writer.ended
    monkeypatch.setattr(
        invisible_ink._Writer,
        "ended",
        lambda self, token: tokens.append(token) or real_ended(self, token),
    )
    data = Records((None,), reviews(6), b"k" * 32)
    raw = {"batches_per_label": 1, "max_tokens": 2, "clip": 1.5, "temperature": 1.2, "top_k": 20}
    raw["min_tokens"] = 0
    parsed, _, _, _ = run(model, raw, data, Terms())
    public = Prompt(model.tokenizer, parsed.public_template, None).before
    prompt = Prompt(model.tokenizer, parsed.template, None)
    contexts = [prompt.tokens(text, parsed.record_tokens) for text in data.batches(1)[None, 0]]
    written: list[int] = []
    for (scores, scale, event), token in zip(laws, tokens, strict=True):
        with torch.inference_mode():
            rows = [
                model.network(torch.tensor([ids + written])).logits[0, -1]
                for ids in [public, *contexts]
            ]
        reference, *private = (row.double().numpy() for row in rows)
        moved = sum(np.clip(row - reference, -parsed.clip, parsed.clip) for row in private)
        final = (reference + moved / parsed.batch_size) / parsed.temperature
        lowest = np.sort(reference)[-parsed.top_k] - 2 * parsed.clip / parsed.batch_size
        kept = np.flatnonzero(reference >= lowest)
        expected = np.exp(final[kept] - final[kept].max())
        expected /= expected.sum()
        assert len(kept) == len(scores) < model.vocabulary
        meter = Meter(PRICE.price(PRICE.parse({**raw, "max_tokens": 20_000}, Terms()), Terms()).dp)
        assert event == token_event(parsed, Terms())
        drawn = Counter(meter.sample_token(scores, scale, event) for _ in range(20_000))
        common = expected * 20_000 >= 100
        seen = np.array([drawn[i] for i in range(len(kept))], dtype=float)
        observed = np.append(seen[common], seen[~common].sum())
        wanted = np.append(expected[common], expected[~common].sum()) * 20_000
        if wanted[-1] < 100:
            observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
        assert stats.chisquare(observed, wanted).pvalue > 1e-9
        written.append(token)


# --- batches ------------------------------------------------------------------------------------


def test_batches_side_by_side_write_what_they_write_one_after_another(model, monkeypatch):
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: int(np.argmax(scores)))
    terms = Terms(labels=("negative", "positive"))
    data = Records(
        terms.labels,
        tuple(
            Record(f"u{i}", terms.labels[i % 2], f"The soup was cold on day {i}.")
            for i in range(30)
        ),
        b"k" * 32,
    )
    parameters = {"texts_per_batch": 2, "max_tokens": 25, "clip": 3.0}
    together = run(model, parameters, data, terms)
    alone = run(replace(model, memory_bytes=1), parameters, data, terms)
    assert sorted(map(str, together[1])) == sorted(map(str, alone[1]))
    assert len(together[1]) == 2 * 2 * 2
    assert together[2].realized == alone[2].realized


def test_parts_of_a_job_write_its_batches_between_them(model):
    terms = Terms(labels=("a", "b"))
    data = Records(terms.labels, reviews(10, "a"), b"k" * 32)
    parsed = PRICE.parse({"batches_per_label": 2}, terms)
    assert PRICE.batches(parsed, terms) == 4
    endless = replace(model, end_tokens=frozenset())
    done = [run(endless, {}, replace(data, share=(part, 4)), terms)[3].done for part in range(4)]
    assert done == [6, 6, 6, 6]


def test_a_public_prompt_is_read_once_for_all_batches_of_a_label(model, monkeypatch):
    read_prefix, seen = Decoder._read_prefix, Counter()

    def count(self, prefix):
        seen[prefix] += 1
        return read_prefix(self, prefix)

    monkeypatch.setattr(Decoder, "_read_prefix", count)
    terms = Terms(labels=("a", "b"))
    parsed, *_ = run(model, {"batches_per_label": 5}, Records(terms.labels, (), b"k" * 32), terms)
    prompts = [
        tuple(Prompt(model.tokenizer, parsed.public_template, label).before[:-1]) for label in "ab"
    ]
    assert seen == dict.fromkeys(prompts, 1)


def test_bad_requests_name_the_field():
    for raw, field in (
        ({"template": "no slot"}, "template"),
        ({"public_template": "{record}"}, "public_template"),
        ({"public_template": "  "}, "public_template"),
        ({"top_k": -1}, "top_k"),
        ({"clip": 0}, "clip"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            PRICE.parse(raw, Terms())
        assert [problem.field for problem in refused.value.problems] == [field]
