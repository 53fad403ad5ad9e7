"""REVERSAL and other acts of two people, on a real PostgreSQL."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotPermitted,
    VerificationFailed,
)
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import json_header, json_row, verify_lines
from accountant.core.ledger.hash_chain import canonical, digest
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import FREE, SelfComposed, from_json, to_json
from accountant.identities import activity_log
from accountant.queries import datasets, entries, integrity, jobs
from accountant.queries import decisions as decision_queries
from accountant.transactions import allowances, asking, corrections, leases, policies, settlement
from accountant.transactions.settlement import Output
from tests.support import Bench, no, person, yes

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(open_bench):
    """A bench with a second steward."""
    open_bench.second = person(open_bench.engine, "steward")
    return open_bench


def event(desk: Bench, job_id, times: int | None = None):
    whole = from_json(jobs.job(desk.engine, job_id, desk.steward)["event"])
    return whole if times is None else SelfComposed(whole.event, times)


def settled(desk: Bench, tokens: int = 10, realized: int | None = None):
    job_id = desk.submit(tokens)
    claim = leases.claim(desk.engine, job_id, 1, "worker", 60)
    leases.begin_reading(desk.engine, claim)
    settlement.publish(
        desk.engine, claim, event(desk, job_id, realized), Output("x", "0" * 64), "worker"
    )
    return job_id


def corrected(desk: Bench, job_id, true) -> int:
    asked = None if true is None else to_json(true)
    found = corrections.correct(desk.engine, job_id, desk.steward, "it was mispriced", event=asked)
    return yes(desk.engine, found, desk.second, "seen")


def dataset(desk: Bench) -> dict:
    return datasets.dataset(desk.engine, desk.dataset, desk.steward)


def spent(desk: Bench) -> str:
    return dataset(desk)["account"]["filters"][0]["spent"]


def exported(desk: Bench) -> list[str]:
    return list(entries.export(desk.engine, desk.dataset, desk.auditor, "jsonl"))


def sound(desk: Bench) -> None:
    assert integrity.check(desk.engine, desk.dataset) == []
    verify_lines(exported(desk))


# --- corrections --------------------------------------------------------------------------------


def test_a_charge_is_raised_by_two_people_and_the_entry_names_both(desk):
    job_id = settled(desk, 10, realized=4)
    before = float(spent(desk))
    corrected(desk, job_id, None)
    assert float(spent(desk)) == pytest.approx(before / 4 * 10, rel=1e-6)
    entry = entries.entries(desk.engine, desk.dataset, desk.auditor)[0]
    assert entry["kind"] == "REVERSAL"
    assert entry["body"]["proposed_by"] == desk.steward.name
    assert entry["body"]["confirmed_by"] == desk.second.name == entry["actor"]
    assert entry["body"]["reason"] == "it was mispriced"
    sound(desk)


def test_nobody_corrects_alone_not_even_under_the_solo_policy(desk):
    policies.set_policy(
        desk.engine, desk.dataset, Policy(solo=True, auto_approve_epsilon="10"), desk.steward
    )
    found = corrections.correct(desk.engine, settled(desk, 10, realized=4), desk.steward, "why")
    with pytest.raises(NotPermitted, match="for themselves: it takes two people"):
        yes(desk.engine, found, desk.steward, "me again")
    for other, error in ((desk.analyst, NotFound), (desk.auditor, NotPermitted)):
        with pytest.raises(error):
            yes(desk.engine, found, other, "not mine to say")
    change = "UPDATE decisions SET state = 'accepted', entry_seq = 1, answered_by = asked_by"
    with pytest.raises(DBAPIError, match="two_people"), desk.engine.begin() as connection:
        connection.execute(text(change))
    sound(desk)


def test_a_charge_is_not_lowered_after_a_read(desk):
    job_id = settled(desk, 10)
    for true in (None, event(desk, job_id, 4), FREE):
        with pytest.raises(InvalidRequest, match="changes nothing"):
            corrected(desk, job_id, true)


def test_a_void_job_that_did_read_is_charged_and_stays_charged(desk):
    job_id = desk.submit(10)
    settlement.cancel(desk.engine, job_id, desk.analyst)
    corrected(desk, job_id, None)
    assert float(spent(desk)) > 0
    with pytest.raises(InvalidRequest, match="changes nothing"):
        corrected(desk, job_id, None)
    sound(desk)


def test_a_raise_beyond_the_allowance_is_recorded_and_nothing_costly_is_admitted(desk):
    job_id = settled(desk, 300)
    waiting = desk.submit(20)
    corrected(desk, job_id, event(desk, job_id, 2000))
    facts = dataset(desk)
    assert facts["overdrawn"]
    assert "Overdrawn" in facts["statements"][0]["text"]
    assert not facts["statements"][0]["unqualified"]
    refused = jobs.job(desk.engine, desk.submit(1), desk.analyst)["refusal"]
    assert refused["cap"] == "overdrawn"
    sound(desk)
    # what was admitted before still settles
    claim = leases.claim(desk.engine, waiting, 1, "worker", 60)
    leases.begin_reading(desk.engine, claim)
    settlement.publish(desk.engine, claim, event(desk, waiting), Output("x", "0" * 64), "worker")
    with pytest.raises(Conflict):
        desk.allow("11")
    desk.allow("200")
    assert not dataset(desk)["overdrawn"]
    assert jobs.job(desk.engine, desk.submit(1), desk.analyst)["state"] == "queued"
    sound(desk)


def test_without_a_correction_the_database_still_refuses_an_overdraft(desk):
    settled(desk, 10)
    where = "WHERE dataset_id = (SELECT id FROM datasets WHERE name = :name)"
    change = ", ".join(f"{kind}_closed = 1" for kind in ("renyi", "gaussian", "renyi2", "basic"))
    with pytest.raises(DBAPIError, match="a_filter_holds"), desk.engine.begin() as connection:
        connection.execute(text(f"UPDATE accounts SET {change} {where}"), {"name": desk.dataset})


def test_a_live_job_and_an_unknown_one_have_no_charge_to_correct(desk):
    with pytest.raises(Conflict, match="no charge yet"):
        corrections.correct(desk.engine, desk.submit(10), desk.steward, "why")
    with pytest.raises(NotFound):
        corrections.correct(desk.engine, desk.steward.id, desk.steward, "why")


# --- proposals ----------------------------------------------------------------------------------


def test_two_who_confirm_at_once_write_one_entry(desk):
    third = person(desk.engine, "steward")
    found = corrections.correct(desk.engine, settled(desk, 10, realized=4), desk.steward, "why")

    def confirm(actor):
        try:
            return yes(desk.engine, found, actor, "seen")
        except Conflict as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(confirm, [desk.second, third] * 4))
    kinds = [e["kind"] for e in entries.entries(desk.engine, desk.dataset, desk.auditor)]
    assert kinds.count("REVERSAL") == 1
    # Whoever won is told the entry's number however often they ask; the other that it is done.
    assert sorted(map(str, answers)).count("the decision is accepted already") == 4
    assert len({each for each in answers if isinstance(each, int)}) == 1
    sound(desk)


def test_a_proposal_whose_entry_was_corrected_meanwhile_is_refused_with_the_reason(desk):
    job_id = settled(desk, 10, realized=4)
    stale = corrections.correct(desk.engine, job_id, desk.steward, "one")
    corrected(desk, job_id, event(desk, job_id, 20))
    with pytest.raises(Conflict, match="propose it anew"):
        yes(desk.engine, stale, desk.second, "late")
    no(desk.engine, stale, desk.second, "stale")
    with pytest.raises(Conflict, match="refused already"):
        yes(desk.engine, stale, desk.second, "later")
    sound(desk)


def overdue(desk) -> uuid.UUID:
    """A proposal whose time is over."""
    found = corrections.correct(desk.engine, settled(desk, 10, realized=4), desk.steward, "why")
    with desk.engine.begin() as connection:
        change = (
            "UPDATE decisions SET expires_at = clock_timestamp() - interval '1 s' WHERE id = :id"
        )
        connection.execute(text(change), {"id": found})
    return found


@pytest.mark.parametrize("act", [yes, no])
def test_an_overdue_proposal_is_answered_no_more(desk, act):
    found = overdue(desk)
    with pytest.raises(Conflict, match="expired"):
        act(desk.engine, found, desk.second, "late")
    assert decision_queries.show(desk.engine, found, desk.auditor)["state"] == "expired"
    sound(desk)


def test_a_sweep_expires_what_is_overdue_once(desk):
    found = overdue(desk)
    assert asking.sweep(desk.engine) == 1
    assert asking.sweep(desk.engine) == 0
    assert decision_queries.show(desk.engine, found, desk.auditor)["state"] == "expired"


def test_a_raise_needs_two_people_where_the_policy_says_so_and_a_cut_never_does(desk):
    policies.set_policy(desk.engine, desk.dataset, Policy(two_people=True), desk.steward)
    allowance = Allowance("12", "0.0000029053", "more")
    found = allowances.allow(desk.engine, desk.dataset, allowance, desk.steward)
    other = allowances.allow(
        desk.engine, desk.dataset, Allowance(None, None, "x", ex_post="5"), desk.steward
    )
    assert dataset(desk)["account"]["epsilon"] == "10"
    assert (
        allowances.allow(desk.engine, desk.dataset, Allowance("9", "1e-6", "less"), desk.steward)
        is None
    )
    with pytest.raises(Conflict, match="propose it anew"):  # 12 was a raise of 10; it is 9 now
        yes(desk.engine, found, desk.second, "seen")
    again = allowances.allow(desk.engine, desk.dataset, allowance, desk.steward)
    yes(desk.engine, again, desk.second, "seen")
    assert dataset(desk)["account"]["epsilon"] == "12"
    body = entries.entries(desk.engine, desk.dataset, desk.auditor)[0]["body"]
    assert (body["proposed_by"], body["confirmed_by"]) == (desk.steward.name, desk.second.name)
    assert other is not None
    sound(desk)


@pytest.mark.parametrize(
    ("change", "why"), [("roles = ARRAY['auditor']", "no steward"), ("active = false", "is closed")]
)
def test_a_proposal_of_somebody_who_is_no_steward_any_more_is_not_confirmed(
    desk, owner, change, why
):
    policies.set_policy(desk.engine, desk.dataset, Policy(two_people=True), desk.steward)
    raised = Allowance("12", "0.0000029053", "more")
    found = allowances.allow(desk.engine, desk.dataset, raised, desk.steward)
    with owner.begin() as connection:
        connection.execute(
            text(f"UPDATE users SET {change} WHERE id = :id"), {"id": desk.steward.id}
        )
    with pytest.raises(Conflict, match=why):
        yes(desk.engine, found, desk.second, "seen")
    assert dataset(desk)["account"]["epsilon"] == "10"
    assert decision_queries.show(desk.engine, found, desk.auditor)["state"] == "open"
    no(desk.engine, found, desk.second, "its proposer has left")


def _policy(desk) -> Policy:
    return Policy.model_validate(dataset(desk)["policy"])


def test_one_steward_cannot_switch_two_people_off_and_raise_alone(desk):
    """Other changes in the same policy wait as well, and both names are told."""
    both, alone = Policy(two_people=True, approval_days=3), Policy(approval_days=5)
    assert policies.set_policy(desk.engine, desk.dataset, both, desk.steward) is None
    found = policies.set_policy(desk.engine, desk.dataset, alone, desk.steward)
    assert found is not None
    # sent twice
    assert found == policies.set_policy(desk.engine, desk.dataset, alone, desk.steward)
    assert _policy(desk) == both
    raised = Allowance("12", "0.0000029053", "more")
    assert allowances.allow(desk.engine, desk.dataset, raised, desk.steward) is not None
    with pytest.raises(NotPermitted, match="two people"):
        yes(desk.engine, found, desk.steward, "me again")
    assert yes(desk.engine, found, desk.second, "the board wants it") is None
    assert yes(desk.engine, found, desk.second, "the board wants it") is None
    assert _policy(desk) == alone
    shown = decision_queries.show(desk.engine, found, desk.auditor)
    assert (shown["state"], shown["entry"]) == ("accepted", None)
    (done, *_) = activity_log.listing(desk.engine, desk.auditor, action="policy set")
    assert (done["actor"], done["detail"]["proposed_by"]) == (desk.second.name, desk.steward.name)
    assert allowances.allow(desk.engine, desk.dataset, raised, desk.steward) is None


@pytest.mark.parametrize(
    "weaker",
    [{"solo": True}, {"auto_approve_epsilon": "3"}, {"mechanisms": ()}, {"analyst_epsilon": None}],
    ids=str,
)
def test_one_steward_weakens_no_field_and_two_do(desk, weaker):
    """They could switch solo on, approve a job of their own, and switch it off again."""
    stands = Policy(two_people=True, mechanisms=("noisy-count",), analyst_epsilon="5")
    policies.set_policy(desk.engine, desk.dataset, stands, desk.steward)
    wanted = stands.model_copy(update=weaker)
    found = policies.set_policy(desk.engine, desk.dataset, wanted, desk.steward)
    assert found is not None
    assert _policy(desk) == stands
    assert next(iter(weaker)) in decision_queries.show(desk.engine, found, desk.auditor)["reason"]
    yes(desk.engine, found, desk.second, "seen")
    assert _policy(desk) == wanted
    newest = entries.entries(desk.engine, desk.dataset, desk.auditor)[0]
    assert (newest["kind"], newest["actor"]) == ("POLICY", desk.second.name)
    assert newest["body"]["proposed_by"] == desk.steward.name
    sound(desk)


def test_a_policy_that_was_changed_after_another_was_proposed_is_not_undone(desk):
    both = Policy(two_people=True)
    policies.set_policy(desk.engine, desk.dataset, both, desk.steward)
    found = policies.set_policy(desk.engine, desk.dataset, Policy(), desk.steward)
    narrower = Policy(two_people=True, mechanisms=("noisy-count",))
    assert policies.set_policy(desk.engine, desk.dataset, narrower, desk.second) is None
    with pytest.raises(Conflict, match="propose it anew"):
        yes(desk.engine, found, desk.second, "seen")
    assert _policy(desk) == narrower
    assert decision_queries.show(desk.engine, found, desk.auditor)["state"] == "open"
    no(desk.engine, found, desk.second, "stale")


# --- what an auditor finds ----------------------------------------------------------------------


def forged(lines: list[str], change) -> list[str]:
    """The export with its last REVERSAL changed and every hash after it made anew."""
    header, previous, out = json.loads(lines[0]), "0" * 64, []
    for line in lines[1:]:
        document = json.loads(line)
        document.pop("hash")
        if document["kind"] == "REVERSAL":
            change(document)
        document["previous"] = previous
        previous = digest(document)
        out.append(json_row(previous, canonical(document).decode()))
    return [json_header({**header, "head": previous}), *out]


def lower(document):
    document["body"]["costs"]["renyi"]["main"] = "1"


def alone(document):
    document["body"]["proposed_by"] = document["body"]["confirmed_by"]


def unread(document):
    document["body"]["corrects"]["body"]["read"] = False


def another_writer(document):
    document["actor"]["value"] = "somebody"


def no_such_entry(document):
    document["body"]["corrects"]["seq"] = 1


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lower, "its charge is not that of its event"),
        (alone, "one person proposed and confirmed it"),
        (unread, "that this ledger does not hold"),
        (no_such_entry, "that this ledger does not hold"),
        (another_writer, "not written by whoever confirmed it"),
    ],
)
def test_a_forged_correction_is_found_from_the_entries_alone(desk, change, found):
    corrected(desk, settled(desk, 10, realized=4), None)
    lines = exported(desk)
    verify_lines(lines)
    with pytest.raises(VerificationFailed, match=found):
        verify_lines(forged(lines, change))
