"""Thirty exports whose hashes and sums are right and whose acts no rule allows: each is refused by
name.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger import entry_fields
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.reservations import read_event
from accountant.core.ledger.verifier import check_not_negative
from accountant.core.privacy.events import FREE, Event, to_json
from accountant.core.privacy.filters import Amount
from tests.ledger_exports import Ledger, Line, export, fewer, honest, name_of, output_of, two

Forgery = Callable[[Ledger], None]
FORGERIES: dict[str, tuple[str, Forgery]] = {}


def forgery(problem: str) -> Callable[[Forgery], Forgery]:
    """A change to an honest ledger, and what the verifier says of it."""

    def keep(change: Forgery) -> Forgery:
        FORGERIES[change.__name__] = (problem, change)
        return change

    return keep


def line(ledger: Ledger, kind: str, job: str | None = None, nth: int = 0) -> Line:
    """The nth entry of a kind, of a job where one is named."""
    wanted = None if job is None else name_of(job)
    found = [
        each for each in ledger.lines if each.kind == kind and (job is None or each.job == wanted)
    ]
    return found[nth]


def recharge(ledger: Ledger, job: str, event: Event) -> None:
    """A COMMIT that realizes `event`, with the costs that follow from it."""
    body = line(ledger, "COMMIT", job).body
    account = ledger.replay.books.account
    assert account is not None
    body |= {"event": to_json(event), "costs": costs_json(account.costs(event))}


# --- what a job gives back ----------------------------------------------------------------------


@forgery("noisy-count makes all of its releases")
def a_single_draw_is_refunded(ledger: Ledger) -> None:
    recharge(ledger, "count", FREE)


@forgery("epsvec makes all of its releases")
def some_of_the_vectors_are_refunded(ledger: Ledger) -> None:
    held = read_event(line(ledger, "RESERVE", "vectors").body["event"])
    recharge(ledger, "vectors", fewer(held))


@forgery("its outcome is 'halted'")
def an_outcome_that_there_is_not_returns_half(ledger: Ledger) -> None:
    held = read_event(line(ledger, "RESERVE", "lost").body["event"])
    recharge(ledger, "lost", fewer(held))
    line(ledger, "COMMIT", "lost").body["outcome"] = "halted"


@forgery("at least one")
def a_succeeded_job_released_nothing(ledger: Ledger) -> None:
    recharge(ledger, "early", FREE)
    ledger.lines = [each for each in ledger.lines if each.kind != "REVERSAL"]


@forgery("its outcome is 'succeeded'")
def a_job_that_succeeded_is_void(ledger: Ledger) -> None:
    line(ledger, "VOID").body["outcome"] = "succeeded"


@forgery("its job reads records, and it says that nothing was read")
def what_read_records_says_that_it_did_not(ledger: Ledger) -> None:
    line(ledger, "COMMIT", "count").body["read"] = False


@forgery("its read is 0")
def a_void_after_reading_says_zero_for_no(ledger: Ledger) -> None:
    line(ledger, "VOID").body["read"] = 0


# --- balances and numbers -----------------------------------------------------------------------


@forgery("'-7000000000' is no amount")
def an_ex_post_cap_is_negative(ledger: Ledger) -> None:
    line(ledger, "REVERSAL").body |= {"cap": "-7000000000", "ex_post": "-7000000000"}


@forgery("is no amount")
def an_amount_has_digits_of_another_script(ledger: Ledger) -> None:
    line(ledger, "REVERSAL").body["secret"] = "\u0660"


@forgery("is no amount")
def an_amount_is_a_number_too_long_to_read(ledger: Ledger) -> None:
    line(ledger, "REVERSAL").body["cap"] = "9" * 5000


@forgery("its attempt is True")
def an_attempt_is_a_truth(ledger: Ledger) -> None:
    line(ledger, "COMMIT", "early").body["attempt"] = True


@forgery("its number is True")
def an_entry_has_a_truth_for_its_number(ledger: Ledger) -> None:
    ledger.lines[0].raw["seq"] = True


# --- terms --------------------------------------------------------------------------------------


def terms_of_jobs(ledger: Ledger, **changed: Any) -> None:
    for each in ledger.lines:
        if each.kind == "RESERVE":
            each.body["terms"] |= changed


@forgery("its public_size in terms is 5000, registered is 1000")
def jobs_are_priced_for_another_public_size(ledger: Ledger) -> None:
    body = line(ledger, "RESERVE", "live").body
    body["terms"]["public_size"] = 5000


@forgery("its labels in terms is")
def a_job_is_priced_with_other_labels(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").body["terms"]["labels"] = ["praise", "blame", "neither"]


@forgery("it registers other terms after data was found right")
def the_public_size_is_registered_anew(ledger: Ledger) -> None:
    ledger.register(public_size=5000)


@forgery("its delta is 0.01")
def a_job_is_stated_at_another_delta(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").body["terms"]["delta"] = 0.01


@forgery("it reads version 2, which nobody registered")
def a_job_reads_data_that_nobody_registered(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").body["source"] = {"version": 2}


# --- people -------------------------------------------------------------------------------------


@forgery("'ana' approved a job of their own")
def an_analyst_approves_their_own_job(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "early").body["approval"]["by"] = "ana"


@forgery("nobody approved it")
def a_job_runs_without_the_approval_it_needs(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "early").body["approval"] = None


@forgery("the policy does not allow the analyst 'eve'")
def somebody_asks_who_may_not(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").actor = "eve"


@forgery("the policy does not allow the mechanism 'private-prediction'")
def a_mechanism_runs_that_may_not(ledger: Ledger) -> None:
    line(ledger, "POLICY", nth=1).body["policy"]["mechanisms"] = ["noisy-count"]
    line(ledger, "POLICY", nth=2).body["policy"]["mechanisms"] = ["noisy-count"]


@forgery("one person made it")
def one_person_raises_the_allowance(ledger: Ledger) -> None:
    body = line(ledger, "ALLOW", nth=1).body
    for name in ("proposed_by", "confirmed_by", "confirmation"):
        del body[name]


@forgery("not written by whoever confirmed it")
def a_raise_is_confirmed_in_the_name_of_another(ledger: Ledger) -> None:
    line(ledger, "ALLOW", nth=1).actor = "sam"


@forgery("it weakens solo, and one person made it")
def one_person_weakens_the_policy(ledger: Ledger) -> None:
    found = line(ledger, "POLICY", nth=2)
    found.body = {"policy": found.body["policy"]}


@forgery("one person proposed and confirmed it")
def the_second_person_is_the_first(ledger: Ledger) -> None:
    line(ledger, "POLICY", nth=2).body |= two("tom", "tom")


@forgery("one person proposed and confirmed it")
def one_person_corrects_a_charge(ledger: Ledger) -> None:
    line(ledger, "REVERSAL").body["proposed_by"] = "tom"


# --- lineage ------------------------------------------------------------------------------------


@forgery("names an output of a job that did not succeed")
def a_failed_job_publishes(ledger: Ledger) -> None:
    line(ledger, "COMMIT", "lost").body["output_sha256"] = output_of("lost")


@forgery("it reads an output that no job before it published")
def the_output_of_a_failed_job_is_read(ledger: Ledger) -> None:
    body = line(ledger, "RESERVE", "judged").body
    body["parameters"]["from_job"] = name_of("lost")
    body["source"] |= {"job": name_of("lost"), "output": output_of("lost")}


@forgery("its parameters name")
def a_job_names_one_source_and_reads_another(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "reuse").body["parameters"]["from_job"] = name_of("early")


# --- time ---------------------------------------------------------------------------------------


@forgery("before that of the entry before it")
def an_approval_is_dated_back(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").at = "2026-02-01T09:00:00.000000Z"


# --- the tests ----------------------------------------------------------------------------------


def test_there_are_thirty():
    assert len(FORGERIES) == 30


def test_the_honest_export_stands():
    found = verify_lines(export(honest().lines))
    assert (found.entries, found.live, found.unproved) == (24, 2, ())


def test_a_policy_from_before_a_change_states_all_of_its_fields_or_none(monkeypatch):
    ledger = honest()
    policies = [each.body["policy"] for each in ledger.lines if each.kind == "POLICY"]
    shares = ("shares", "share_by_project")
    for policy in policies:
        for name in shares:
            del policy[name]
    lines = export(ledger.lines)
    with pytest.raises(VerificationFailed, match="its policy lacks 'share_by_project'"):
        verify_lines(lines)
    monkeypatch.setattr(entry_fields, "LATER", (shares,))
    assert verify_lines(lines).entries == 24
    policies[-1]["shares"] = []
    with pytest.raises(VerificationFailed, match="its policy lacks 'share_by_project'"):
        verify_lines(export(ledger.lines))


@pytest.mark.parametrize("name", FORGERIES)
def test_it_is_refused_by_entry_and_rule(name):
    problem, change = FORGERIES[name]
    ledger = honest()
    change(ledger)
    with pytest.raises(VerificationFailed) as told:
        verify_lines(export(ledger.lines))
    assert problem in str(told.value)
    assert told.value.seq is not None


# --- every ledger has its rules -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "problem"),
    [
        (("REGISTER",), "entry 1: no REGISTER before it states the terms of the data"),
        (("POLICY",), "entry 3: no POLICY before it states who may ask"),
        (("REGISTER", "POLICY"), "entry 1: no REGISTER before it"),
    ],
)
def test_a_ledger_begins_with_its_rules(without, problem):
    """The owner of a database may leave them out and hash all anew: then nothing could be
    judged.
    """
    lines = [each for each in honest().lines if each.kind not in without]
    with pytest.raises(VerificationFailed, match=problem):
        verify_lines(export(lines))


# --- exports for publication, and people who are hidden in them ---------------------------------


def test_a_public_export_stands_and_what_is_shown_of_its_rules_is_checked():
    ledger = honest()
    found = verify_lines(export(ledger.lines, public=True))
    assert (found.entries, found.unproved) == (24, ())
    shown = "".join(export(ledger.lines, public=True))
    assert not any(f'"{name}"' in shown for name in ("ana", "sam", "tom"))
    line(ledger, "RESERVE", "live").body["approval"] = None
    with pytest.raises(VerificationFailed, match="nobody approved it"):
        verify_lines(export(ledger.lines, public=True))


# --- other rules --------------------------------------------------------------------------------


def test_a_request_of_somebody_who_left_needs_a_policy_that_admits_it():
    for admitted in (False, True):
        ledger = honest()
        ledger.policy(two(), departed_analysts=admitted)
        ledger.reserve("later", tokens_per_batch=5, batches_per_label=1)
        line(ledger, "RESERVE", "later").body["approval"]["departed"] = (
            "the account of ana is closed"
        )
        if admitted:
            assert verify_lines(export(ledger.lines)).entries == 26
            continue
        with pytest.raises(VerificationFailed, match="had left"):
            verify_lines(export(ledger.lines))


def test_a_small_job_needs_no_approval_where_the_policy_says_so():
    ledger = honest()
    ledger.policy(two(), auto_approve_epsilon="1000")
    ledger.reserve("small", tokens_per_batch=5, batches_per_label=1)
    line(ledger, "RESERVE", "small").body["approval"] = None
    assert verify_lines(export(ledger.lines)).entries == 26


WEAKER: list[dict[str, Any]] = [
    {"auto_approve_epsilon": "0.1"},
    {"solo": True},
    {"share_artifacts": True},
    {"secret_jobs": True},
    {"departed_analysts": True},
    {"two_people": False},
    {"charge_each_attempt": False},
    {"mechanisms": []},
    {"mechanisms": ["noisy-count", "epsvec"]},
    {"analysts": []},
    {"models": ["large"]},
    {"analyst_epsilon": None},
    {"project_epsilon": "3"},
]
STRICT = {
    "mechanisms": ["noisy-count"],
    "analysts": ["ana"],
    "models": ["small"],
    "analyst_epsilon": "1",
    "project_epsilon": "2",
    "charge_each_attempt": True,
}


@pytest.mark.parametrize("change", WEAKER, ids=str)
def test_weakening_any_field_takes_two_people(change):
    (name,) = change
    ledger = Ledger()
    ledger.register()
    ledger.policy(**STRICT)
    ledger.policy(**(STRICT | change))
    with pytest.raises(VerificationFailed, match=f"it weakens {name}, and one person made it"):
        verify_lines(export(ledger.lines))
    ledger.lines[-1].body |= two()
    ledger.lines[-1].actor = "tom"
    ledger.policy(**(STRICT | change))  # back, or the same again
    assert verify_lines(export(ledger.lines)).entries == 4


STRICTER: list[dict[str, Any]] = [
    {
        "analysts": [],
        "models": [],
    },  # what the first policy says; these admit less or are nobody's protection:
    {"mechanisms": ["noisy-count"]},
    {"analyst_epsilon": "0.5", "project_epsilon": "2"},
    {"approval_days": 3, "time_limit_seconds": None},
    {"charge_each_attempt": True},
]


@pytest.mark.parametrize("change", STRICTER, ids=str)
def test_one_person_may_ask_for_more(change):
    ledger = Ledger()
    ledger.register()
    ledger.policy()
    ledger.policy(**change)
    assert verify_lines(export(ledger.lines)).entries == 3


@pytest.mark.parametrize(
    "terms",
    [
        {"labels": "praise"},
        {"labels": [3]},
        {"max_records_per_unit": 2},
        {"max_records_per_unit": True, "unit_column": "who"},
        {"neighbours": "both"},
        {"public_size": "1000"},
        {"public_size": 0},
        {"unit_column": 5},
    ],
    ids=str,
)
def test_terms_are_of_their_kind(terms):
    ledger = Ledger()
    ledger.register(**terms)
    with pytest.raises(VerificationFailed, match="entry 1: its"):
        verify_lines(export(ledger.lines))


def test_terms_may_change_until_data_was_found_right():
    ledger = Ledger()
    ledger.register()
    ledger.register(public_size=5000)
    ledger.register(version=2, public_size=5000)
    assert verify_lines(export(ledger.lines)).entries == 3
    ledger.register(version=2, public_size=5000)
    with pytest.raises(
        VerificationFailed, match="entry 4: its version is 2, which is no new number"
    ):
        verify_lines(export(ledger.lines))


@pytest.mark.parametrize(
    "value", [None, [], {}, "x", 1e400, -1, True, "9" * 5000, "\ud800", [[]] * 3]
)
def test_any_value_anywhere_in_a_rule_is_refused_by_name(value):
    for kind, field in (("REGISTER", "terms"), ("REGISTER", "version"), ("POLICY", "policy")):
        ledger = honest()
        found = line(ledger, kind, nth=1)
        if found.body[field] == value:
            continue
        found.body[field] = value
        if (kind, field, value) == ("REGISTER", "version", None):
            continue  # it registers nothing new, and jobs that read version 1 are refused elsewhere
        with pytest.raises(VerificationFailed) as told:
            verify_lines(export(ledger.lines))
        assert told.value.seq is not None


def test_what_is_charged_says_which_data_it_reads():
    """Else it could say in the end that nothing was read, and two people could take its charge
    back.
    """
    ledger = honest()
    line(ledger, "RESERVE", "live").body["source"] = {}
    with pytest.raises(VerificationFailed, match="does not say which version of the data it reads"):
        verify_lines(export(ledger.lines))


def test_a_list_of_models_is_not_escaped_by_naming_none():
    ledger = honest()
    line(ledger, "RESERVE", "live").body["model"] = None
    with pytest.raises(VerificationFailed, match="names a model if and only if it uses one"):
        verify_lines(export(ledger.lines))


def test_both_people_say_why():
    ledger = honest()
    line(ledger, "POLICY", nth=2).body["confirmation"] = " "
    with pytest.raises(VerificationFailed, match="not both with their reasons"):
        verify_lines(export(ledger.lines))


@pytest.mark.parametrize("part", ["spent", "reserved"])
def test_no_balance_is_below_zero(part):
    """No entry gets there by the rules above; a mistake in them would be seen."""
    books = honest().replay.now
    check_not_negative(books)
    assert books.account is not None
    for place, each in enumerate(books.account.filters):
        filters = list(books.account.filters)
        filters[place] = each._replace(**{part: Amount(-1, 0)})
        account = replace(books.account, filters=tuple(filters))
        with pytest.raises(VerificationFailed, match="below zero"):
            check_not_negative(replace(books, account=account))
    with pytest.raises(VerificationFailed, match="below zero"):
        check_not_negative(replace(books, ex_post=replace(books.ex_post, **{part: -1})))
