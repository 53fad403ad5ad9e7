"""Events of other tools are read as what they mean under the dataset's relation, or refused by
name.
"""

import json

import dp_accounting
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import pure_epsilon
from accountant.core.privacy.events import (
    FREE,
    Allocated,
    AllocatedReplaced,
    Composed,
    EpsilonDelta,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    ZCDp,
    releases,
    to_json,
)
from accountant.core.privacy.foreign_events import MOST_KINDS, as_dp_event, read_event
from accountant.core.privacy.price import Neighbours

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
DELTA = 1e-6


def dp_json(event: object) -> object:
    """Return an event of dp-accounting as a program would send it: its named tuple, as JSON."""

    def plain(value: object) -> object:
        if hasattr(value, "_asdict"):
            return {name: plain(each) for name, each in value._asdict().items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return json.loads(json.dumps(plain(event.to_named_tuple())))  # type: ignore[attr-defined]


def exact(event: object, relation: str) -> float:
    accountant = PLDAccountant(getattr(dp_accounting.NeighboringRelation, relation))
    return float(accountant.compose(event).get_epsilon(DELTA))


GAUSSIAN = dp_accounting.GaussianDpEvent(2.0)
SAMPLED = dp_accounting.PoissonSampledDpEvent(0.01, GAUSSIAN)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (GAUSSIAN, Gaussian(2.0)),
        (dp_accounting.LaplaceDpEvent(4), Laplace(4.0)),
        (dp_accounting.ZCDpEvent(0.1), ZCDp(0.1)),
        (dp_event.DiscreteLaplaceDpEvent(0.25, 3), EpsilonDelta(0.75, 0.0)),
        (dp_accounting.NoOpDpEvent(), FREE),
        (SAMPLED, PoissonSampled(0.01, Gaussian(2.0))),
        (
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.ComposedDpEvent([SAMPLED, GAUSSIAN, SAMPLED]), 5
            ),
            Composed(
                (
                    SelfComposed(PoissonSampled(0.01, Gaussian(2.0)), 10),
                    SelfComposed(Gaussian(2.0), 5),
                )
            ),
        ),
    ],
)
def test_an_event_of_dp_accounting_is_read_as_object_and_as_json(
    event: object, expected: Event
) -> None:
    assert read_event(event, ADD) == expected
    assert read_event(dp_json(event), ADD) == expected


def test_under_replace_one_a_record_moves_results_twice_as_far() -> None:
    assert read_event(GAUSSIAN, REPLACE) == Gaussian(1.0)
    assert read_event(dp_accounting.LaplaceDpEvent(4.0), REPLACE) == Laplace(2.0)
    assert read_event(SAMPLED, REPLACE) == PoissonSwapped(0.01, Gaussian(1.0))
    assert read_event([(2.0, 0.01, 7)], REPLACE) == SelfComposed(
        PoissonSwapped(0.01, Gaussian(1.0)), 7
    )
    assert read_event(dp_event.DiscreteLaplaceDpEvent(0.25, 3), REPLACE) == EpsilonDelta(1.5, 0.0)
    drawn = dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, GAUSSIAN)
    assert read_event(drawn, REPLACE) == SampledWithoutReplacement(10, 1000, Gaussian(1.0))
    answered = read_event(dp_accounting.RandomizedResponseDpEvent(0.5, 4), REPLACE)
    assert float(pure_epsilon(answered) or 0) == pytest.approx(1.6094379124341003, rel=1e-11)


@pytest.mark.parametrize("relation", ["ADD_OR_REMOVE_ONE", "REPLACE_ONE"])
@pytest.mark.parametrize(
    "event", [GAUSSIAN, dp_accounting.PoissonSampledDpEvent(0.2, GAUSSIAN)], ids=["plain", "sample"]
)
def test_what_was_read_has_the_librarys_own_price(event: object, relation: str) -> None:
    """Its PLD reads both relations as documented, its Rényi accountant does not (trap 1)."""
    neighbours = ADD if relation.startswith("ADD") else REPLACE
    ours, theirs = epsilon_alone(read_event(event, neighbours), DELTA)[0], exact(event, relation)
    assert theirs * (1 - 1e-3) <= ours <= theirs * (1.15 if neighbours is REPLACE else 1.001)


def test_a_history_of_opacus() -> None:
    history = [(1.0, 0.01, 2000), (0.8, 0.01, 1000), (1.0, 0.01, 5)]
    steps = read_event(history, ADD)
    assert releases(steps) == {
        PoissonSampled(0.01, Gaussian(1.0)): 2005,
        PoissonSampled(0.01, Gaussian(0.8)): 1000,
    }
    assert read_event(json.loads(json.dumps(history)), ADD) == steps
    assert read_event([], ADD) == FREE


def test_as_many_kinds_as_a_schedule_of_noise_has() -> None:
    history = [[1 + step / 1000, 0.01, 1] for step in range(1000)]
    assert sum(releases(read_event(history, ADD)).values()) == 1000
    with pytest.raises(InvalidRequest, match="event: 4,097 kinds of releases"):
        read_event([[1 + step / 1000, 0.01, 1] for step in range(MOST_KINDS + 1)], ADD)


def test_stated_guarantees() -> None:
    assert read_event({"epsilon": 0.5, "delta": 1e-7}, ADD) == EpsilonDelta(0.5, 1e-7)
    assert read_event({"epsilon": 1}, REPLACE) == EpsilonDelta(1.0, 0.0)
    assert read_event({"rho": 0.1}, REPLACE) == ZCDp(0.1)


COIN = Allocated(4, 4, 10, Exponential(0.1))


@pytest.mark.parametrize(
    ("neighbours", "event", "field"),
    [
        (ADD, COIN, "event.type"),
        (ADD, Composed((Gaussian(1.0), SelfComposed(COIN, 2))), "event.events[1].event.type"),
        (REPLACE, WorstOf((AllocatedReplaced(4, 4, 10, Gaussian(1.0)),)), "event.events[0].type"),
        (ADD, PoissonSwapped(0.1, Gaussian(1.0)), "event.type"),
        (ADD, PoissonReplaced(0.1, Gaussian(1.0)), "event.type"),
        (ADD, SampledWithoutReplacement(1, 9, Gaussian(1.0)), "event.type"),
        (REPLACE, PoissonSampled(0.1, Gaussian(1.0)), "event.type"),
    ],
)
def test_secret_coins_and_samples_of_the_other_relation_are_refused(
    neighbours: Neighbours, event: Event, field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_event(to_json(event), neighbours)
    assert [each.field for each in refused.value.problems] == [field]


def test_our_own_events_are_read_as_they_are() -> None:
    event = Composed((SelfComposed(Gaussian(1.0), 3), PoissonSampled(0.1, Gaussian(2.0))))
    assert read_event(to_json(event), ADD) == event


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "event"),
        ("gaussian", "event"),
        (3, "event"),
        ({}, "event"),
        ({"type": "gaussian", "noise_multiplier": 0}, "event.noise_multiplier"),
        ({"type": "unheard-of"}, "event.type"),
        ({"epsilon": 1, "rho": 1}, "event.epsilon"),
        ({"epsilon": 1, "delta": 1.5}, "event.delta"),
        ({"epsilon": float("nan")}, "event.epsilon"),
        ({"rho": -1}, "event.rho"),
        ([[1.0, 0.1]], "event[0]"),
        ([[1.0, 0.1, 5], [1.0, 2.0, 5]], "event[1].probability"),
        ([[0, 0.1, 5]], "event[0].noise_multiplier"),
        ([[1.0, 0.1, 2.5]], "event[0].count"),
        ([[1.0, 0.1, 10**12], [1.0, 0.1, 1]], "event.count"),
        ({"class_name": "NonPrivateDpEvent"}, "event.class_name"),
        ({"class_name": "Popen", "module_name": "subprocess"}, "event.class_name"),
        (
            {"class_name": "GaussianDpEvent", "module_name": "os", "noise_multiplier": 1},
            "event.class_name",
        ),
        ({"class_name": "GaussianDpEvent"}, "event.noise_multiplier"),
        ({"class_name": "GaussianDpEvent", "noise_multiplier": 1, "more": 2}, "event.more"),
        ({"class_name": "ComposedDpEvent", "events": 4}, "event.events"),
        (
            {"class_name": "ComposedDpEvent", "events": [{"class_name": "NoOpDpEvent"}, 4]},
            "event.events[1]",
        ),
        ({"class_name": "ZCDpEvent", "rho": 1, "xi": 0.5}, "event.xi"),
        (
            {"class_name": "DiscreteLaplaceDpEvent", "noise_parameter": 1, "sensitivity": 0.5},
            "event.sensitivity",
        ),
        (
            {"class_name": "RandomizedResponseDpEvent", "noise_parameter": 0.5, "num_buckets": 2},
            "event.class_name",
        ),
        (
            {
                "class_name": "SelfComposedDpEvent",
                "count": 10**9,
                "event": {
                    "class_name": "SelfComposedDpEvent",
                    "count": 10**9,
                    "event": {"class_name": "LaplaceDpEvent", "noise_multiplier": 1},
                },
            },
            "event.count",
        ),
        (
            {
                "class_name": "PoissonSampledDpEvent",
                "sampling_probability": 0.1,
                "event": {"class_name": "LaplaceDpEvent", "noise_multiplier": 1},
            },
            "event.event",
        ),
    ],
)
def test_errors_name_the_field(value: object, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_event(value, ADD)
    assert [each.field for each in refused.value.problems] == [field]


def test_an_event_too_deep_is_refused() -> None:
    deep: dict[str, object] = {"class_name": "NoOpDpEvent"}
    for _ in range(2000):
        deep = {"class_name": "SelfComposedDpEvent", "count": 1, "event": deep}
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        read_event(deep, ADD)


# --- ours as theirs -----------------------------------------------------------------------------

multipliers = st.floats(0.5, 50)
equal = st.recursive(
    st.builds(Gaussian, multipliers)
    | st.builds(Laplace, multipliers)
    | st.builds(ZCDp, st.floats(1e-4, 1))
    | st.builds(PoissonSampled, st.floats(0.01, 0.9), st.builds(Gaussian, multipliers)),
    lambda inner: (
        st.builds(SelfComposed, inner, st.integers(1, 9))
        | st.builds(Composed, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(equal)
def test_what_is_written_as_theirs_is_read_back_as_the_same_releases(event: Event) -> None:
    written = as_dp_event(event)
    assert releases(read_event(json.loads(json.dumps(written)), ADD)) == +releases(event)


def test_theirs_is_composed_by_their_library() -> None:
    event = Composed((SelfComposed(Gaussian(2.0), 3), PoissonSampled(0.1, Gaussian(1.0))))
    written = as_dp_event(event)

    def theirs(value: dict[str, object]) -> object:
        kind = getattr(dp_accounting, str(value["class_name"]))
        fields = {k: v for k, v in value.items() if k not in ("module_name", "class_name")}
        if "event" in fields:
            fields["event"] = theirs(fields["event"])  # type: ignore[arg-type]
        if "events" in fields:
            fields["events"] = [theirs(each) for each in fields["events"]]  # type: ignore[attr-defined]
        return kind(**fields)

    assert exact(theirs(written), "ADD_OR_REMOVE_ONE") == pytest.approx(
        epsilon_alone(event, DELTA)[0], rel=1e-3
    )


def test_where_no_equal_exists_the_part_is_named() -> None:
    event = Composed((Gaussian(1.0), SelfComposed(Exponential(0.1), 4)))
    with pytest.raises(InvalidRequest, match=r"event\.events\[1\]\.event: .*'exponential'"):
        as_dp_event(event)
