"""Draws that outlive their attempt: none is made twice, and what is written has the law of one
attempt.
"""

import json
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from accountant.core.errors import MeterExceeded
from accountant.core.privacy.events import Composed, Exponential, Gaussian, Laplace, SelfComposed
from workers.engine import Continued
from workers.generation.kept_texts import kept_texts
from workers.generation.writer import Written
from workers.interface import Progress
from workers.noise import coins
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter, Turn

TOKEN = Exponential(0.5)
SCORES = np.array([0, 1, 2, 0], np.int64)
COSTS = np.array([0.125, 0.25, 0.5, 1.0])


class Memory:
    """A store that survives its attempts; `rows`: what each write kept."""

    def __init__(self) -> None:
        self.rows: list[list] = []

    def kept(self):
        return [draw for row in self.rows for draw in row]

    def keep(self, draws) -> None:
        self.rows.append([(name, json.loads(json.dumps(outcome))) for name, outcome in draws])

    @property
    def by_part(self) -> dict[str, list]:
        found: dict[str, list] = {}
        for name, outcome in self.kept():
            found.setdefault(name, []).append(outcome)
        return found


class Stopped(Exception):
    """An attempt ends here."""


def meter(store: Memory | None, tokens: int = 5) -> Meter:
    reserved = Composed((Laplace(2.0), SelfComposed(TOKEN, tokens)))
    return Meter(reserved, tokens, kept=KeptDraws(store) if store is not None else None)


def program(made: Meter, parts: int, tokens: int, stop=lambda: None) -> list:
    """Noisy counts, and each part's tokens, priced beforehand or ex post; `stop` may end it
    anywhere.
    """
    noisy = made.laplace(np.array([[3, 4]]), 1, Laplace(2.0)).tolist()
    told: list = [noisy]
    for _ in range(tokens):
        for part in range(parts):
            stop()
            own = made.parallel(("label", part))
            if part % 2:
                token = own.kept_ex_post_token()
                token = own.ex_post_token(SCORES, Fraction(1, 2), COSTS) if token is None else token
            else:
                token = own.kept_token(TOKEN)
                token = own.sample_token(SCORES, Fraction(1, 2), TOKEN) if token is None else token
            told.append((part, token))
        made.kept.keep()
    return told


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=4), st.integers(1, 4), st.integers(1, 5))
def test_whatever_the_cuts_what_was_kept_is_told_and_counted_once(cuts, parts, tokens):
    store = Memory()
    for cut in cuts:
        left = [cut]

        def stop(left=left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Stopped

        before = store.kept()
        with suppress(Stopped):
            program(meter(store), parts, tokens, stop)
        assert store.kept()[: len(before)] == before, "what is kept stays"
    last = meter(store)
    told = program(last, parts, tokens)
    assert not last.kept.left
    # As one attempt would have counted it.
    plain = meter(None)
    program(plain, parts, tokens)
    assert last.realized == plain.realized
    assert len(store.kept()) == 1 + parts * tokens
    assert store.by_part["null"] == [{"noisy": told[0]}]
    for part in range(parts):
        outcomes = store.by_part[f'["label", {part}]']
        tokens_of = [each[0] if isinstance(each, list) else each for each in outcomes]
        assert tokens_of == [token for place, token in told[1:] if place == part]
    costs = [
        sum(each[1] for each in found)
        for name, found in store.by_part.items()
        if isinstance(found[0], list)
    ]
    assert last.realized_ex_post == max([0, *(round(cost * 10**9) for cost in costs)])


def test_nothing_is_drawn_while_kept_draws_of_the_part_wait():
    store = Memory()
    first = meter(store)
    first.parallel("a").sample_token(SCORES, Fraction(1), TOKEN)
    first.laplace(np.zeros(2, np.int64), 1, Laplace(2.0))
    first.kept.keep()
    second = meter(store)
    with pytest.raises(ValueError, match="none of them is made again"):
        second.parallel("a").sample_token(SCORES, Fraction(1), TOKEN)
    with pytest.raises(ValueError, match="none of them is made again"):
        meter(store).parallel("a").ex_post_token(SCORES, Fraction(1), COSTS)
    second.parallel("b").sample_token(SCORES, Fraction(1), TOKEN)
    assert second.kept.left


def test_a_parts_draw_is_kept_before_its_next_one_is_made(monkeypatch):
    store = Memory()
    own = meter(store).parallel("a")
    for number in range(4):
        monkeypatch.setattr("workers.noise.meter.draw", lambda *_, number=number: seen(number))

        def seen(number: int) -> int:
            assert len(store.kept()) == number
            return number

        own.sample_token(SCORES, Fraction(1), TOKEN)


def test_a_draw_that_the_reservation_does_not_cover_is_not_taken_either():
    store = Memory()
    program(meter(store), 1, 5)
    short = meter(store, 4)
    own = short.parallel(("label", 0))
    for _ in range(4):
        assert own.kept_token(TOKEN) is not None
    with pytest.raises(MeterExceeded):
        own.kept_token(TOKEN)


def test_what_was_kept_of_another_kind_is_refused():
    store = Memory()
    store.keep([("null", {"noisy": [1]}), ('"a"', 3), ('"b"', [1, 0.5])])
    with pytest.raises(ValueError, match="another kind"):
        meter(store).laplace(np.zeros(2, np.int64), 1, Laplace(2.0))
    with pytest.raises(ValueError, match="another kind"):
        meter(store).parallel("a").kept_ex_post_token()
    with pytest.raises(ValueError, match="another kind"):
        meter(store).parallel("b").kept_token(TOKEN)
    gaussian = Meter(Gaussian(1.0), kept=KeptDraws(store))
    assert gaussian.gaussian(np.zeros((1,), np.int64), 1, Gaussian(1.0)).tolist() == [1]


def test_names_of_parts_differ_where_parts_do():
    store = Memory()
    made = meter(store)
    parts = [
        None,
        "a",
        ("a", 0),
        ("a", "0"),
        (None, 0),
        Turn(0, None, 0),
        Turn(0, "a", 0),
        ("0", "a", 0),
        '["a", 0]',
    ]
    for number, part in enumerate(parts):
        made.kept.add(part, number)
    made.kept.keep()
    assert list(store.by_part.values()) == [[number] for number in range(len(parts))]


# --- in law -------------------------------------------------------------------------------------

LENGTH, VOCABULARY = 3, 3


def scores_after(text: list[int]) -> np.ndarray:
    """What the next token is drawn from: any function of the text."""
    return np.array(
        [(7 * sum(text) + 3 * len(text) + 5 * token) % 4 for token in range(VOCABULARY)], np.int64
    )


class Tiny:
    """Two batches on a vocabulary of three, each with its text so far."""

    def __init__(self) -> None:
        self.texts: list[list[int]] = [[], []]

    def _laws(self, batches) -> dict[int, np.ndarray]:
        return {batch: scores_after(self.texts[batch] + [batch]) for batch in batches}

    def read(self):
        return self._laws((0, 1))

    def append(self, texts):
        self.texts = [list(texts.get(batch, ())) for batch in (0, 1)]
        return self._laws(texts)

    def step(self, tokens):
        for batch, token in tokens.items():
            self.texts[batch].append(token)
        return self._laws(tokens)

    def restart(self, batch: int) -> None:
        self.texts[batch] = []


def attempt(store, stops) -> tuple[tuple[int, ...], ...]:
    """Two texts side by side; after each kept step `stops` may end the attempt for what was
    drawn.
    """
    made = Meter(SelfComposed(TOKEN, LENGTH), kept=KeptDraws(store))
    group, texts = Continued(Tiny), ([], [])
    for _ in range(LENGTH):
        tokens = {}
        for batch in (0, 1):
            own = made.parallel(batch)
            token = own.kept_token(TOKEN)
            fresh = token is None
            if fresh:
                token = own.sample_token(group.law(batch), Fraction(1, 2), TOKEN)
            texts[batch].append(token)
            tokens[batch] = token
        made.kept.keep()
        if fresh and stops(texts):
            raise Stopped
        group.append(tokens)
    return tuple(map(tuple, texts))


def expected() -> dict:
    """The exact law of an uninterrupted run."""
    found = {}
    for texts in product(product(range(VOCABULARY), repeat=LENGTH), repeat=2):
        chance = 1.0
        for batch, text in enumerate(texts):
            for place, token in enumerate(text):
                weights = np.exp(scores_after([*text[:place], batch]) / 2)
                chance *= weights[token] / weights.sum()
        found[texts] = chance
    return found


def disliked(texts) -> bool:
    """Somebody who sees each draw pulls the plug where the sum is even: the worst that can be
    done.
    """
    return (sum(texts[0]) + sum(texts[1])) % 2 == 0


class Forgetful(Memory):
    """A store that keeps nothing: each attempt draws anew."""

    def keep(self, draws) -> None:
        pass


def p_value(store: type[Memory], runs: int) -> float:
    seen: Counter = Counter()
    for _ in range(runs):
        kept = store()
        for _ in range(50):
            try:
                seen[attempt(kept, disliked)] += 1
                break
            except Stopped:
                continue
    law = expected()
    # Cells of at least about ten each: the first text whole, and the second's last token.
    cells: Counter = Counter()
    observed: Counter = Counter()
    for texts, chance in law.items():
        cells[texts[0], texts[1][-1]] += chance
        observed[texts[0], texts[1][-1]] += seen[texts]
    total = sum(observed.values())
    return stats.chisquare(
        [observed[cell] for cell in cells], [total * chance for chance in cells.values()]
    ).pvalue


def test_texts_of_attempts_cut_by_what_was_drawn_have_the_law_of_one_attempt():
    assert p_value(Memory, 6000) > 1e-9


def test_drawn_anew_they_would_not():
    """The test sees it: attempts that are cut by what was drawn, and draw again, choose among
    draws.
    """
    assert p_value(Forgetful, 1000) < 1e-9


# --- steps --------------------------------------------------------------------------------------


def taking_part(store, stops: bool) -> int:
    """A private coin, and somebody who pulls the plug during what is computed from heads."""
    kept = KeptDraws(store)
    coin = kept.step("who takes part", lambda: int(coins.heads(0.5)))
    if coin and stops:
        raise Stopped
    return coin


def test_coins_are_kept_before_anything_is_computed_from_them():
    """Else an attempt that is cut because many take part is made anew with fewer: no price covers
    that.
    """

    def heads(store_of: type[Memory]) -> int:
        found = 0
        for _ in range(1_000):
            store = store_of()
            with suppress(Stopped):
                found += taking_part(store, stops=True)
                continue
            found += taking_part(store, stops=False)
        return found

    # 500 and 250 are expected: each bound is 6 standard deviations away or more.
    assert 400 < heads(Memory) < 600
    assert heads(Forgetful) < 400, "the test sees it"


def test_a_step_that_was_cut_begins_again_with_its_seed_and_a_stated_one_gives_each_step_its_own():
    store = Memory()
    first = KeptDraws(store).seed("texts", None)
    assert KeptDraws(store).seed("texts", None) == first
    assert KeptDraws(Memory()).seed("texts", None) != first
    stated = [KeptDraws(store).seed(name, 7) for name in ("texts", "texts", "more texts")]
    assert stated[0] == stated[1] != stated[2]
    assert len(store.rows) == 1, "a stated seed follows from the job's parameters"


def test_a_step_and_a_release_are_not_taken_for_one_another():
    store = Memory()
    store.keep([('["step", "x"]', {"noisy": [1]}), ("null", {"made": 1})])
    with pytest.raises(ValueError, match="another kind of step"):
        KeptDraws(store).step("x", lambda: 1)
    with pytest.raises(ValueError, match="another kind of release"):
        meter(store).laplace(np.zeros(1, np.int64), 1, Laplace(2.0))


def test_a_run_that_leaves_out_a_step_publishes_nothing():
    store = Memory()
    KeptDraws(store).step("x", lambda: [1, 2])
    assert KeptDraws(store).left
    again = KeptDraws(store)
    assert again.step("x", lambda: [3]) == [1, 2]
    assert not again.left


def test_only_public_texts_are_kept_as_such():
    def write(text):
        return lambda _: [Written(text, True)]

    store, progress = Memory(), Progress(1)
    writer = type("Writer", (), {"seeded": lambda self, _: self})()
    with pytest.raises(TypeError, match="only public"):
        kept_texts(KeptDraws(store), "x", 1, writer, progress, write("a record"))
    assert not store.rows
