"""The books over three currencies: admission, settlement, closed filters and what holds now."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, VerificationFailed
from accountant.core.ledger.accounts import (
    Demand,
    Settlement,
    decide_job,
    demand,
    entry_part,
    ex_post_json,
    new_secret_account,
    with_largest,
)
from accountant.core.ledger.admission import Admitted, NeedsApproval, Refused
from accountant.core.ledger.books import Books, closing_jobs, filter_states
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.export_formats import header, json_header, json_row, verify_lines
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, canonical
from accountant.core.ledger.lineage import of_version
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.reservations import read_reservation
from accountant.core.ledger.reversals import Charge, corrected
from accountant.core.ledger.statements import statements
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    FREE,
    Allocated,
    EpsilonDelta,
    Exponential,
    Gaussian,
    Laplace,
    SelfComposed,
    ZCDp,
)
from accountant.core.privacy.filters import Amount, Kind
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretKind, SecretRelease, SecretTerms, bound_after
from tests.ledger_exports import rules

TERMS = Terms()
SECRETS = SecretTerms(1e-4, 1e-2, 3, 0.5, Without.REMOVED)
OPEN = Policy(auto_approve_epsilon="1000")


class Ledger:
    """Entries as the ledger would write them, applied one by one."""

    def __init__(self, epsilon="3", delta="1e-6", **others):
        self.replay, self.entries = Replay(), []
        self.allow(epsilon, delta, **others)

    def add(self, kind, job, body):
        self.replay.apply(kind, job, body)
        self.entries.append((kind, job, body))

    @property
    def books(self):
        return self.replay.books

    def allow(self, epsilon, delta, **others):
        self.add(
            EntryKind.ALLOW, None, allow_body(self.books.account, epsilon, delta, "why", **others)
        )

    def reserve(self, job, asked):
        part = entry_part(self.books.accounts, asked)
        own = {"model": None, "approval": None, "source": of_version(1), "others": part}
        body = reserve_body(self.books.account, "m", {}, TERMS, asked.dp, **own)
        self.add(EntryKind.RESERVE, job, body)

    def commit(self, job, asked, outcome="succeeded"):
        part = entry_part(self.books.accounts, asked)
        if self.books.secret is not None and self.books.secret.kind is SecretKind.ONE:
            part["secret"]["cost"] = str(self.replay.held(job).secret_cost)
        self.add(
            EntryKind.COMMIT,
            job,
            commit_body(
                self.books.account,
                asked.dp,
                outcome,
                1,
                None,
                others=part,
                held=self.replay.held(job).costs,
            ),
        )

    def void(self, job):
        self.add(EntryKind.VOID, job, {"reason": "cancelled before reading", "read": False})

    def decide(self, asked, policy=OPEN, approved=True):
        return decide_job(self.books.accounts, asked, 1.0, policy, approved)

    def says(self):
        found = statements(self.books.accounts, self.books.history, "add-remove", "patient_id")
        return {each.currency: each for each in found}


# --- the order of entries -----------------------------------------------------------------------

events = st.one_of(
    st.builds(Gaussian, st.floats(50, 500)),
    st.builds(Laplace, st.floats(50, 500)),
    st.builds(Exponential, st.floats(0.001, 0.02)),
    st.builds(ZCDp, st.floats(1e-6, 1e-4)),
    st.builds(lambda shift: Allocated(8, 4, 2, Exponential(shift)), st.floats(0.001, 0.02)),
)
runs = st.lists(
    st.tuples(events, st.integers(1, 5), st.integers(0, 5), st.booleans()), min_size=1, max_size=6
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(runs, st.randoms(use_true_random=False))
def test_any_order_of_the_same_entries_gives_the_same_balances(jobs, chance: random.Random):
    """Jobs interleave as they may: each is reserved before it is settled, nothing else is fixed."""
    accounts = []
    for _ in range(3):
        ledger, waiting = Ledger("1000", "1e-6"), list(range(len(jobs)))
        running = []
        while waiting or running:
            if running and (not waiting or chance.random() < 0.5):
                place = running.pop(chance.randrange(len(running)))
                event, _, taken, voided = jobs[place]
                if voided:
                    ledger.void(str(place))
                else:
                    done = min(taken, jobs[place][1])
                    ledger.commit(str(place), Demand(SelfComposed(event, done) if done else FREE))
            else:
                place = waiting.pop(chance.randrange(len(waiting)))
                ledger.reserve(str(place), Demand(SelfComposed(jobs[place][0], jobs[place][1])))
                running.append(place)
        accounts.append(ledger.books.account)
    assert accounts[0] == accounts[1] == accounts[2]
    assert all(each.reserved.main == 0 == each.reserved.delta for each in accounts[0].filters)


# --- closed filters -----------------------------------------------------------------------------


def test_a_filter_names_the_job_that_closed_it_and_reopens_only_by_its_void():
    ledger = Ledger()
    ledger.reserve("a", Demand(Gaussian(20.0)))
    assert closing_jobs(ledger.books) == {}
    ledger.reserve("b", Demand(ZCDp(0.001)))
    ledger.reserve("c", Demand(ZCDp(0.001)))
    assert closing_jobs(ledger.books) == {Kind.GAUSSIAN: "b"}
    ledger.void("b")
    assert closing_jobs(ledger.books) == {Kind.GAUSSIAN: "c"}
    ledger.commit("c", Demand(FREE))  # it has been reserved: ending early reopens nothing
    assert closing_jobs(ledger.books) == {Kind.GAUSSIAN: "c"}
    shown = {each.filter.kind: (each.state, each.closed_by) for each in filter_states(ledger.books)}
    assert shown[Kind.GAUSSIAN] == ("closed", "c")
    assert shown[Kind.RENYI] == ("open", None)


def test_a_filter_that_another_one_passed_is_not_closed_but_where_it_pays_for_deltas():
    ledger = Ledger()
    # room on the Gaussian filter alone
    ledger.reserve("a", Demand(SelfComposed(Gaussian(10.0), 36)))
    shown = {each.filter.kind: each.state for each in filter_states(ledger.books)}
    assert shown == {
        Kind.RENYI: "passed",
        Kind.GAUSSIAN: "open",
        Kind.RENYI_LOW: "passed",
        Kind.BASIC: "closed",
    }
    ledger.commit("a", Demand(SelfComposed(Gaussian(10.0), 30)))
    assert {each.filter.kind: each.state for each in filter_states(ledger.books)}[
        Kind.RENYI
    ] == "open"


def test_where_batches_were_secret_the_statement_has_two_sentences():
    ledger, plain = Ledger("10", "1e-6"), Ledger("10", "1e-6")
    each = Allocated(100, 100, 40, Exponential(0.1))
    for name in ("a", "b"):
        ledger.reserve(name, Demand(SelfComposed(each, 3)))
        plain.reserve(name, Demand(SelfComposed(Exponential(0.1), 120)))
    ledger.commit("a", Demand(SelfComposed(each, 2)))
    plain.commit("a", Demand(SelfComposed(Exponential(0.1), 80)))
    said = ledger.says()["dp"]
    first, second, _ = said.text.split(". ", 1)[0], *said.text.split(". ", 1)[1].split("; ")
    assert first.startswith("All releases together are (10, 0.000001)-differentially private")
    assert second.startswith(
        "That is for whoever does not hold the keys, deleted as they ended, of 2 jobs"
    )
    shown = float(said.text.rsplit("add up to (", 1)[1].split(",")[0])
    exact = epsilon_alone(SelfComposed(Exponential(0.1), 200), 1e-6)[0]
    assert exact * 0.99 < shown < exact * 1.3, "what they cost together where the batches are known"
    assert not said.unqualified
    assert plain.says()["dp"].unqualified
    gaussian = {each.filter.kind: each for each in ledger.books.account.filters}[Kind.GAUSSIAN]
    known = {each.filter.kind: each for each in plain.books.account.filters}[Kind.GAUSSIAN]
    assert (gaussian.spent, gaussian.reserved) == (known.spent, known.reserved)
    ledger.reserve("c", Demand(ZCDp(1e-6)))  # it closes the Gaussian filter, so its total is none
    assert "was not added up" in ledger.says()["dp"].text


def test_what_was_reserved_by_a_secret_coin_is_not_charged_otherwise_afterwards():
    """The cheaper of "allocated" and "plain with refund", chosen after the run, would be
    unsound.
    """
    ledger = Ledger("10", "1e-6")
    ledger.reserve("a", Demand(Allocated(4, 4, 40, Exponential(0.1))))
    for event in (
        SelfComposed(Exponential(0.1), 3),
        Allocated(4, 4, 3, Exponential(0.1)),
        SelfComposed(Allocated(4, 4, 40, Exponential(0.1)), 2),
    ):
        with pytest.raises(VerificationFailed, match="more than was reserved"):
            ledger.commit("a", Demand(event))
    ledger.commit("a", Demand(FREE))


def test_a_voided_job_leaves_no_secret_batches_behind():
    ledger = Ledger("10", "1e-6")
    ledger.reserve("a", Demand(Gaussian(100.0)))
    ledger.reserve("b", Demand(Allocated(100, 100, 40, Exponential(0.1))))
    ledger.void("b")
    assert ledger.says()["dp"].unqualified


def test_a_reservation_is_read_back_from_its_entry():
    ledger = with_secrets()
    ledger.reserve("a", Demand(SelfComposed(Gaussian(100.0), 4)))
    assert read_reservation(ledger.entries[-1][2]) == ledger.replay.live()["a"]


def test_the_first_allowance_is_not_zero():
    with pytest.raises(InvalidRequest, match="fixes the filters"):
        Ledger("0", "0")


def test_a_secret_job_needs_no_dp_allowance():
    ledger = Ledger(None, None, secret=new_secret_account(SECRETS, SecretKind.MANY, "add-remove"))
    assert ledger.books.account is None
    ledger.reserve("a", Demand(secret=release(30.0)))
    ledger.commit("a", Demand(secret=release(30.0)))
    assert ledger.books.secret.spent > 0


def test_an_epsilon_delta_job_costs_what_a_pure_one_does_and_closes_nothing():
    ledger, pure = Ledger(), Ledger()
    ledger.reserve("a", Demand(EpsilonDelta(0.5, 4e-8)))
    pure.reserve("a", Demand(EpsilonDelta(0.5, 0.0)))
    assert closing_jobs(ledger.books) == {}
    for ours, other in zip(ledger.books.account.filters, pure.books.account.filters, strict=True):
        assert ours.used.main == other.used.main
    refused = ledger.decide(Demand(EpsilonDelta(0.1, 6.1e-8)))
    assert isinstance(refused, Refused)
    assert refused.cap == "basic δ"
    assert "known by (ε, δ) alone" in refused.why


def test_many_epsilon_delta_jobs_fit_that_no_sum_of_epsilons_would():
    ledger = Ledger()
    for number in range(80):
        ledger.reserve(str(number), Demand(EpsilonDelta(0.05, 1e-9)))
    assert ledger.books.account.filters[-1].used.main > 3_900_000_000
    assert isinstance(ledger.decide(Demand(EpsilonDelta(0.05, 1e-9))), Admitted)


def test_half_of_what_pays_for_deltas_is_kept_for_releases_that_need_it():
    ledger = Ledger()
    for number in range(60):
        ledger.reserve(str(number), Demand(Gaussian(20.0)))
    basic = ledger.books.account.filters[-1]
    assert basic.closed
    assert basic.used.delta <= basic.limit.delta // 2
    assert isinstance(ledger.decide(Demand(EpsilonDelta(0.01, 4.9e-8))), Admitted)
    ledger.reserve("stated", Demand(EpsilonDelta(0.01, 4.9e-8)))
    assert isinstance(ledger.decide(Demand(EpsilonDelta(0.01, 4.9e-8))), Refused)
    assert isinstance(ledger.decide(Demand(Gaussian(20.0))), Admitted)


def test_a_correction_to_more_delta_than_is_left_overdraws_until_an_allowance_covers_it():
    accounts = Ledger().books.accounts
    *others, basic = accounts.dp.filters
    over = basic._replace(spent=Amount(0, basic.limit.delta + 1))
    assert not accounts.overdrawn
    assert replace(accounts, dp=replace(accounts.dp, filters=(*others, over))).overdrawn


def test_entries_without_a_step_of_delta_still_replay():
    """The form of ALLOW before there was one: the basic filter then closes."""
    body = allow_body(None, "3", "1e-6", "why")
    for each in body["filters"]:
        each.pop("step_delta", None)
    books = Books().apply(EntryKind.ALLOW, None, body)
    assert books.account.costs(Gaussian(10.0))[Kind.BASIC] is None


def test_shares_and_order_are_chosen_once():
    shares = dict.fromkeys(Kind, Fraction(1, 4))
    ledger = Ledger(shares=shares, order=Fraction(20))
    assert {each.filter.share for each in ledger.books.account.filters} == {Fraction(1, 4)}
    ledger.allow("5", "1e-6")
    assert ledger.books.account.filters[0].filter.order == 20
    with pytest.raises(Exception, match="fixed at creation"):
        ledger.allow("6", "1e-6", shares=shares)


# --- ex-post ------------------------------------------------------------------------------------


def test_ex_post_jobs_need_an_allowance_of_their_own():
    ledger = Ledger()
    refused = ledger.decide(Demand(ex_post=10**9))
    assert isinstance(refused, Refused)
    assert (refused.cap, refused.left, refused.asked) == ("ex-post", "0", "1")
    ledger.allow("3", "1e-6", ex_post=ex_post_json("2.5", Settlement.PLANNED))
    assert isinstance(ledger.decide(Demand(ex_post=10**9)), Admitted)
    assert isinstance(ledger.decide(Demand(ex_post=10**9), approved=False), NeedsApproval)
    ledger.reserve("a", Demand(Laplace(10.0), 10**9))
    ledger.reserve("b", Demand(ex_post=1_500_000_000))
    assert isinstance(ledger.decide(Demand(ex_post=1)), Refused)
    ledger.void("b")
    ledger.commit("a", Demand(Laplace(10.0), 10**9))
    assert (ledger.books.ex_post.spent, ledger.books.ex_post.reserved) == (10**9, 0)
    assert "except for the outputs of 1 ex-post job" in ledger.says()["dp"].text


def test_a_cap_is_charged_whatever_the_run_cost():
    ledger = Ledger(ex_post=ex_post_json("2", Settlement.PLANNED))
    ledger.reserve("a", Demand(ex_post=10**9))
    with pytest.raises(VerificationFailed, match="as it was reserved"):
        ledger.commit("a", Demand(ex_post=5))


def test_realized_settlement_returns_and_overdraws():
    ledger = Ledger(ex_post=ex_post_json("2", Settlement.REALIZED))
    ledger.reserve("a", Demand(ex_post=10**9))
    ledger.commit("a", Demand(ex_post=3 * 10**9))
    assert ledger.books.ex_post.left == -(10**9)
    assert isinstance(ledger.decide(Demand(ex_post=1)), Refused)


# --- secrets ------------------------------------------------------------------------------------


def with_secrets(kind=SecretKind.MANY, terms=SECRETS):
    return Ledger(secret=new_secret_account(terms, kind, "add-remove"))


def release(sigma, rounds=1):
    return SecretRelease(3, 0.5, Without.REMOVED, sigma, rounds)


def test_dp_jobs_pay_on_the_secret_account_too():
    ledger = with_secrets()
    account = ledger.books.secret
    ledger.reserve("a", Demand(SelfComposed(Gaussian(100.0), 4)))
    expected = float(account.order) * 4 * (3 / 100) ** 2 / 2
    assert ledger.books.secret.reserved == pytest.approx(expected * 1e9, abs=1)
    ledger.commit("a", Demand(Gaussian(100.0)))
    assert ledger.books.secret.reserved == 0
    assert ledger.books.secret.spent == pytest.approx(expected / 4 * 1e9, abs=1)
    refused = ledger.decide(Demand(Gaussian(2.0)))
    assert isinstance(refused, Refused)
    assert refused.cap == "secret"


def test_a_dp_job_that_leaves_out_its_secret_cost_does_not_verify():
    ledger = with_secrets()
    account = ledger.books.account
    own = {"model": None, "approval": None, "source": of_version(1)}
    body = reserve_body(account, "m", {}, TERMS, Gaussian(100.0), **own)
    with pytest.raises(VerificationFailed, match="secret part"):
        ledger.add(EntryKind.RESERVE, "a", body)


def test_secret_jobs_need_policy_and_account():
    asked = Demand(secret=release(30.0))
    allowed = Policy(secret_jobs=True)
    assert with_secrets().decide(asked).cap == "policy"
    assert Ledger().decide(asked, allowed).cap == "secret"
    assert isinstance(with_secrets().decide(asked, allowed), Admitted)
    assert isinstance(with_secrets().decide(asked, allowed, approved=False), NeedsApproval)


def test_a_secret_job_priced_under_other_facts_is_refused():
    asked = Demand(secret=SecretRelease(2, 0.5, Without.REMOVED, 30.0, 1))
    refused = with_secrets().decide(asked, Policy(secret_jobs=True))
    assert isinstance(refused, Refused)
    assert "not the dataset's" in refused.why


def test_allowances_are_never_set_below_what_is_used():
    ledger = Ledger(ex_post=ex_post_json("2", Settlement.PLANNED))
    ledger.reserve("a", Demand(ex_post=10**9))
    with pytest.raises(VerificationFailed, match="at least 1"):
        ledger.allow("3", "1e-6", ex_post=ex_post_json("0.5", Settlement.PLANNED))
    secret = with_secrets()
    secret.reserve("a", Demand(Gaussian(20.0)))
    lower = replace(secret.books.secret, terms=replace(SECRETS, bound=1.1e-4))
    with pytest.raises(VerificationFailed, match=r"secret\.bound"):
        secret.allow("3", "1e-6", secret=lower)


def test_realized_costs_are_never_shown_as_caps():
    ledger = Ledger(ex_post=ex_post_json("2", Settlement.REALIZED))
    ledger.reserve("a", Demand(ex_post=10**9))
    ledger.commit("a", Demand(ex_post=123_456_789))
    assert "0.123" not in ledger.says()["ex-post"].text
    with pytest.raises(VerificationFailed, match="ex_post_settlement"):
        ledger.allow("3", "1e-6", ex_post=ex_post_json("2", Settlement.PLANNED))


def test_ex_post_jobs_are_refused_while_a_secret_statement_stands():
    ledger = with_secrets()
    ledger.allow("3", "1e-6", ex_post=ex_post_json("5", Settlement.PLANNED))
    assert "while a secret statement stands" in ledger.decide(Demand(ex_post=1)).why


def test_secrets_are_declared_before_the_first_job():
    ledger = Ledger()
    ledger.reserve("a", Demand(Gaussian(50.0)))
    with pytest.raises(VerificationFailed, match="outside the statement"):
        ledger.allow("3", "1e-6", secret=new_secret_account(SECRETS, SecretKind.MANY, "add-remove"))


def test_only_the_bound_may_change():
    ledger = with_secrets()
    ledger.reserve("a", Demand(secret=release(30.0)))
    raised = replace(SECRETS, bound=0.02)
    ledger.allow("3", "1e-6", secret=replace(ledger.books.secret, terms=raised))
    assert ledger.books.secret.terms.bound == 0.02
    assert ledger.books.secret.reserved > 0
    other = replace(SECRETS, records=4)
    with pytest.raises(VerificationFailed, match="only the bound"):
        ledger.allow("3", "1e-6", secret=replace(ledger.books.secret, terms=other))


def test_one_exact_job_keeps_its_charge():
    ledger = with_secrets(SecretKind.ONE)
    ledger.reserve("a", Demand(secret=release(10.0, 4)))
    charged = ledger.books.secret.reserved
    ledger.commit("a", Demand(secret=release(10.0, 1)))
    assert ledger.books.secret.spent == charged
    assert (
        ledger.decide(Demand(secret=release(1000.0)), Policy(secret_jobs=True)).why
        == "its one exact job is taken"
    )


def test_many_rounds_return_what_they_did_not_take():
    ledger = with_secrets()
    ledger.reserve("a", Demand(secret=release(30.0, 4)))
    reserved = ledger.books.secret.reserved
    with pytest.raises(VerificationFailed, match="not reserved"):
        ledger.commit("a", Demand(secret=release(30.0, 5)))
    ledger.commit("a", Demand(secret=release(30.0, 1)))
    assert ledger.books.secret.spent == pytest.approx(reserved / 4, abs=1)


# --- what holds now -----------------------------------------------------------------------------


def test_statements_say_what_holds_and_what_is_excepted():
    ledger = Ledger()
    assert ledger.says()["dp"].text == "Nothing has been released."
    ledger.reserve("a", Demand(Gaussian(20.0)))
    first = ledger.says()
    assert first["dp"].text == (
        "All releases together are (3, 0.000001)-differentially private "
        "for adding or removing one patient_id."
    )
    assert all(each.unqualified for each in first.values())
    ledger.commit("a", Demand(Gaussian(20.0)), outcome="failed")
    ledger.allow("4", "1e-6")
    ledger.allow("3.5", "1e-6")
    text = ledger.says()["dp"].text
    assert "(4, 0.000001)" in text  # the largest ever granted
    assert "1 raise of the allowance after a release" in text
    assert "1 job failed" in text
    assert not ledger.says()["dp"].unqualified


def test_secret_statements_name_prior_bound_and_cap():
    ledger = with_secrets()
    ledger.reserve("a", Demand(secret=release(30.0)))
    said = ledger.says()
    assert said["dp"].text.startswith("No (ε, δ) statement holds")
    for fact in ("0.0001", "0.01", "at most 3 records", "removed"):
        assert fact in said["secret"].text


def test_a_refusal_carries_the_largest_that_fits():
    ledger = Ledger("1", "1e-6")
    mechanism = mechanisms.get("private-prediction")
    raw = {"tokens_per_batch": 5000}
    event = mechanism.price(mechanism.parse(raw, TERMS), TERMS).dp
    refused = ledger.decide(Demand(event))
    assert isinstance(refused, Refused)
    told = with_largest(refused, mechanism, raw, TERMS, ledger.books.accounts)
    assert told.size_field == "tokens_per_batch"
    for tokens, fits in ((told.largest, True), (told.largest + 1, False)):
        event = mechanism.price(mechanism.parse({"tokens_per_batch": tokens}, TERMS), TERMS).dp
        assert ledger.books.accounts.fits(Demand(event)) is fits


def test_secpe_is_fitted_to_what_a_secret_account_has_left():
    ledger = with_secrets()
    terms = Terms(secret=SECRETS)
    secpe = mechanisms.get("secpe")
    refused = Refused("secret", "0", "1", "does not fit")
    told = with_largest(refused, secpe, {}, terms, ledger.books.accounts)
    assert told.size_field == "bound"
    assert 1e-4 < told.largest < 1e-2  # less than r: composition costs more than one exact job


# --- offline verification -----------------------------------------------------------------------


def export(entries):
    """Lines of an export of rules and `entries`, chained, with the header that their books give."""
    replay, head, lines = Replay(), GENESIS, []
    entries = [*((kind, None, body) for kind, body in rules(TERMS)), *entries]
    for seq, (kind, job, body) in enumerate(entries, start=1):
        replay.apply(kind, job, body)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        entry = Entry("d", seq, kind, at, "someone", job, body, head)
        head = entry.hash()
        lines.append(json_row(head, canonical(entry.document()).decode()))
    return [json_header(header("d", len(entries), head, replay.books, replay.live_count)), *lines]


def secpe_ledger(change=None):
    ledger, terms = with_secrets(), Terms(secret=SECRETS)
    secpe = mechanisms.get("secpe")
    parameters = secpe.parse({"bound": 5e-4}, terms)
    asked = demand(secpe.price(parameters, terms))
    if change is not None:
        asked = change(asked)
    body = reserve_body(
        ledger.books.account,
        "secpe",
        secpe.recorded(parameters),
        terms,
        asked.dp,
        model={"name": "small", "sha256": "c" * 64},
        approval={"by": "steward", "reason": "why"},
        source=of_version(1),
        others=entry_part(ledger.books.accounts, asked),
    )
    ledger.add(EntryKind.RESERVE, "a", body)
    ledger.commit("a", asked)
    return ledger


def test_a_ledger_with_secrets_verifies_offline():
    found = verify_lines(export(secpe_ledger().entries))
    assert found.entries == 6
    assert found.books.secret.spent > 0


def test_a_verifier_recomputes_the_noise():
    quieter = secpe_ledger(lambda asked: replace(asked, secret=replace(asked.secret, sigma=20.0)))
    with pytest.raises(VerificationFailed, match="not the price of its parameters"):
        verify_lines(export(quieter.entries))


def test_secret_statements_except_raises_and_failures_and_never_understate_what_is_used():
    ledger = with_secrets()
    ledger.reserve("a", Demand(secret=release(30.0)))
    said = ledger.says()["secret"]
    account = ledger.books.secret
    true = bound_after(Fraction(SECRETS.prior), account.order, account.reserved / 10**9)
    shown = float(said.text.split("(so far ")[1].split(")")[0])
    assert true <= shown < true * 1.02
    assert said.unqualified
    ledger.commit("a", Demand(secret=release(30.0)), outcome="failed")
    raised = replace(SECRETS, bound=0.0123456789)
    ledger.allow("3", "1e-6", secret=replace(ledger.books.secret, terms=raised))
    said = ledger.says()["secret"]
    for fact in (
        "1 job failed",
        "1 raise of the allowance after a release",
        "at most 0.0123456789 afterwards",
    ):
        assert fact in said.text
    assert not said.unqualified


def test_a_correction_to_a_delta_that_nothing_counts_closes_every_filter():
    accounts = Ledger().books.accounts
    stated = EpsilonDelta(0.1, 1e-8)
    before = Charge({**accounts.dp.costs(Gaussian(20.0)), Kind.BASIC: None})
    after = corrected(accounts, {"body": {}}, before, stated, 0)
    assert after.costs == dict.fromkeys(Kind)
    counted_by_basic = Charge(accounts.dp.costs(Gaussian(20.0)))
    assert None not in corrected(accounts, {"body": {}}, counted_by_basic, stated, 0).costs.values()
