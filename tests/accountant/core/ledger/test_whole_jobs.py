"""A first job that no filter admits takes the account for whole jobs: what follows it, what undoes
it.
"""

import pytest

from accountant.core.errors import InvalidRequest, VerificationFailed
from accountant.core.ledger import reversals
from accountant.core.ledger.accounts import Accounts, Demand
from accountant.core.ledger.admission import Admitted, Refused
from accountant.core.ledger.books import Books, filter_states
from accountant.core.ledger.capacity import binding
from accountant.core.ledger.caps import Usage
from accountant.core.ledger.entry_bodies import allow_body
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    FREE,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    SelfComposed,
)
from accountant.core.privacy.filters import Amount, Kind
from accountant.queries.account_views import account_view
from accountant.queries.standing import Shape, Standing
from tests.accountant.core.ledger.test_currencies import OPEN, Ledger

#: Alone (2.95, 1e-6) and (2.97, 1e-6): too much for every filter's share of delta.
LARGE, OTHER = PoissonSampled(0.1, Gaussian(0.8612)), Gaussian(1.5656)
SMALL = Laplace(1000.0)


def ledger_with(event: Event) -> Ledger:
    ledger = Ledger()
    ledger.reserve("large", Demand(event))
    return ledger


@pytest.mark.parametrize("event", [LARGE, OTHER])
def test_a_first_job_near_the_allowance_is_admitted_and_pays_its_exact_price(event):
    ledger = Ledger()
    alone, _ = epsilon_alone(event, 1e-6)
    assert 2.94 < alone < 3
    assert not ledger.books.account.admitting(ledger.books.account.costs(event))
    decision = ledger.decide(Demand(event))
    assert isinstance(decision, Admitted)
    assert decision.filters == (Kind.BASIC,)
    ledger.reserve("large", Demand(event))
    account = ledger.books.account
    *others, basic = account.filters
    assert [each.closed for each in others] == [1, 1, 1]
    assert basic.limit == Amount(3 * 10**9, 10**15)
    assert alone <= basic.reserved.main / 1e9 <= 3
    assert 0 < basic.reserved.delta <= 10**15
    assert basic.holds


def test_what_follows_is_added_up_on_the_basic_filter_alone():
    ledger = ledger_with(OTHER)
    ledger.commit("large", Demand(OTHER))
    assert ledger.books.account.whole
    assert isinstance(ledger.decide(Demand(SMALL)), Admitted)
    ledger.reserve("small", Demand(SMALL))
    assert isinstance(ledger.decide(Demand(Gaussian(20.0))), Refused)
    assert isinstance(ledger.decide(Demand(Laplace(20.0))), Refused)


def test_only_the_first_job_takes_an_account():
    ledger = Ledger()
    ledger.reserve("small", Demand(SMALL))
    assert isinstance(ledger.decide(Demand(OTHER)), Refused)
    ledger.void("small")
    assert isinstance(ledger.decide(Demand(OTHER)), Admitted)


# --- what undoes it -----------------------------------------------------------------------------


def test_a_void_gives_the_account_back():
    ledger = Ledger()
    before = ledger.books.account
    ledger.reserve("large", Demand(OTHER))
    ledger.void("large")
    assert ledger.books.account == before


def test_a_void_after_other_jobs_leaves_the_other_filters_closed():
    """They count on all of delta, so shares of it may not be spent beside them."""
    ledger = ledger_with(OTHER)
    ledger.reserve("small", Demand(SMALL))
    ledger.void("large")
    account = ledger.books.account
    assert [each.closed for each in account.filters] == [1, 1, 1, 0]
    assert account.whole
    assert {each.state for each in filter_states(ledger.books)} == {"closed", "open"}


def test_nothing_of_a_whole_job_returns():
    """Not even of its releases that were never made: its price covers the job and none of its
    prefixes.
    """
    step = Gaussian(1.5656 * 2)
    ledger = ledger_with(SelfComposed(step, 4))
    assert ledger.books.account.whole
    held = ledger.books.account.filters[-1].reserved
    ledger.commit("large", Demand(step))
    assert ledger.books.account.filters[-1].spent == held
    assert [each.closed for each in ledger.books.account.filters] == [1, 1, 1, 0]


def test_a_correction_never_reopens_what_a_whole_job_closed():
    ledger = ledger_with(OTHER)
    ledger.commit("large", Demand(OTHER))
    (_, _, reserve), (_, _, commit) = ledger.entries[1:]
    quoted = {"kind": "RESERVE", "job": "large", "body": reserve}
    unread = {"kind": "COMMIT", "job": "large", "body": {**commit, "read": False}}
    before = reversals.charge_of(quoted, unread)
    assert not before.read
    with pytest.raises(InvalidRequest, match="changes nothing"):
        reversals.corrected(ledger.books.accounts, quoted, before, FREE, 0)


# --- allowances, views, forgeries ---------------------------------------------------------------


def test_a_raised_allowance_raises_the_basic_filter_alone_and_a_lower_one_is_refused():
    ledger = ledger_with(OTHER)
    ledger.allow("4", "2e-6")
    basic = ledger.books.account.filters[-1]
    assert basic.limit == Amount(4 * 10**9, 2 * 10**15)
    assert isinstance(ledger.decide(Demand(EpsilonDelta(0.9, 1e-9))), Admitted)
    with pytest.raises(VerificationFailed, match="no filter holds"):
        ledger.allow("2", "1e-6")


def test_room_and_preview_are_those_of_the_decision():
    account = Ledger().books.account
    room = binding(Accounts(account), Demand(OTHER), OPEN, Usage(), 2.97)
    assert (room.jobs, room.cap) == (1, "basic")
    rows = Standing(Accounts(account), Usage(), OPEN).effect(Shape(Demand(OTHER), 2.97))["filters"]
    assert [row["after"] for row in rows[:3]] == [None] * 3
    assert 0.98 < rows[3]["after"] <= 1
    ledger = ledger_with(OTHER)
    told = account_view(ledger.books)
    assert told["best_filter"] == "basic"
    assert told["filters"][-1]["share"] == 1.0
    assert told["filters"][0]["closed_by"] == "large"


def test_a_forged_whole_job_is_refused():
    """An export may not take an account where its filters admit the job, nor under another
    allowance.
    """
    honest = ledger_with(OTHER).entries[-1][2]
    large = {**honest, "whole": {"epsilon": "4000000000", "delta": honest["whole"]["delta"]}}
    small = ledger_with(SMALL).entries[-1][2] | {"whole": honest["whole"], "costs": honest["costs"]}
    hidden = {key: value for key, value in honest.items() if key != "whole"}
    for body in (large, small, hidden):
        with pytest.raises(VerificationFailed):
            Ledger().add(EntryKind.RESERVE, "large", body)
    late = Ledger()
    late.reserve("small", Demand(SMALL))
    with pytest.raises(VerificationFailed):
        late.add(EntryKind.RESERVE, "large", honest)


@pytest.mark.parametrize("edition", [0, 2, 4, True, "3", None, 2.5])
def test_prices_by_other_rules_are_refused(edition):
    body = allow_body(None, "3", "1e-6", "why")
    body["filters"][0]["edition"] = edition
    with pytest.raises(VerificationFailed, match="not those of its allowance"):
        Books().apply(EntryKind.ALLOW, None, body)


@pytest.mark.parametrize(("place", "whole"), [(0, "1"), (3, "0"), (3, "-1")])
def test_the_epsilon_of_whole_jobs_stands_with_the_basic_filter(place, whole):
    body = allow_body(None, "3", "1e-6", "why")
    body["filters"][place]["whole_epsilon"] = whole
    with pytest.raises(VerificationFailed, match="whole jobs"):
        Books().apply(EntryKind.ALLOW, None, body)
