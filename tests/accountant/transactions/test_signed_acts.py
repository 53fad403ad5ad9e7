"""Where a policy asks for signatures, the service posts no act without one, and a worker runs
none.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select, text

from accountant import tables
from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotPermitted,
    SignatureNeeded,
    VerificationFailed,
)
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.policy import ACTS, Policy
from accountant.core.privacy.events import SelfComposed, from_json, to_json
from accountant.identities import credentials, passkeys, people
from accountant.queries import decisions as decision_queries
from accountant.queries import entries, jobs
from accountant.transactions import (
    allowances,
    corrections,
    leases,
    offers,
    policies,
    settlement,
    signed_acts,
)
from accountant.transactions.settlement import Output
from tests.passkeys import Passkey
from tests.support import Bench, person, unjudged, yes

DELTA = "0.0000029053"


@pytest.fixture
def desk(bench: Bench) -> Any:
    """A dataset of two stewards with passkeys, who sign everything; its allowance, ε 10, is from
    before.
    """
    bench.warm()
    made: Any = bench
    made.second = person(bench.engine, "steward")
    made.keys = {}
    for actor in (bench.steward, made.second):
        made.keys[actor.name] = key = Passkey(actor.name)
        register(bench, actor, key)
    made.policy = Policy(
        two_people=True, signed=ACTS, signers=tuple(str(key.signer) for key in made.keys.values())
    )
    policies.set_policy(bench.engine, bench.dataset, made.policy, bench.steward)
    return made


def register(bench: Bench, actor: Any, key: Passkey) -> Any:
    return passkeys.add(bench.engine, actor, "laptop", key.signer.key.encode(), b"", key.signer, 0)


def signed(desk: Any, act: Callable[..., Any]) -> Any:
    """An act as a page does it: it is asked for, signed, and asked for again with the signature."""
    with pytest.raises(SignatureNeeded) as needed:
        act(None)
    found = needed.value
    assert isinstance(found, NotPermitted)  # what a token is told
    return act(desk.keys[found.act["by"]].sign(found.act))


def allow(desk: Any, epsilon: str, by: Any = None) -> Callable[..., Any]:
    who, given = by or desk.steward, Allowance(epsilon, DELTA, "as planned")
    return lambda signature: allowances.allow(
        desk.engine, desk.dataset, given, who, signature=signature
    )


def confirm(desk: Any, proposal: Any, by: Any = None) -> Callable[..., Any]:
    who = by or desk.second
    return lambda signature: yes(desk.engine, proposal, who, "seen", signature)


def set_policy(desk: Any, policy: Policy, by: Any = None) -> Callable[..., Any]:
    who = by or desk.steward
    return lambda signature: policies.set_policy(
        desk.engine, desk.dataset, policy, who, signature=signature
    )


def approve(desk: Any, job: Any, reason: str = "fine") -> Callable[..., Any]:
    return lambda signature: yes(desk.engine, job, desk.steward, reason, signature)


def newest(desk: Any) -> int:
    with desk.engine.connect() as connection:
        query = select(func.max(tables.entries.c.seq)).join(tables.datasets)
        return int(
            connection.execute(query.where(tables.datasets.c.name == desk.dataset)).scalar_one()
        )


def exported(desk: Any) -> list[str]:
    return list(entries.export(desk.engine, desk.dataset, desk.auditor, "jsonl"))


def test_every_act_is_signed_by_all_who_make_it_and_the_export_verifies(desk):
    proposal = signed(desk, allow(desk, "20"))
    assert "signature" not in decision_queries.show(desk.engine, proposal, desk.second).asked
    signed(desk, confirm(desk, proposal))
    job = desk.submit(10)
    signed(desk, approve(desk, job))
    claim = leases.claim(desk.engine, job, 1, "worker", 60)
    leases.begin_reading(desk.engine, claim)
    whole = from_json(jobs.job(desk.engine, job, desk.steward)["event"])
    less = SelfComposed(whole.event, 3)
    settlement.publish(desk.engine, claim, less, Output("x", "0" * 64), "worker")
    correction = signed(
        desk,
        lambda signature: corrections.correct(
            desk.engine, job, desk.steward, "mispriced", event=to_json(whole), signature=signature
        ),
    )
    signed(desk, confirm(desk, correction))
    signed(desk, allow(desk, "9"))  # less: one person
    weaker = desk.policy.model_copy(update={"solo": True})
    signed(desk, confirm(desk, signed(desk, set_policy(desk, weaker))))
    lines = exported(desk)
    assert verify_lines(lines).unproved == ()
    count = sum(each.count('"client_data"') for each in lines)
    assert count == 2 + 1 + (2 + 1) + 1 + 2  # the correction quotes the approved reservation


def test_what_was_signed_is_what_is_posted_or_nothing_is(desk):
    jobs_ = [desk.submit(10), desk.submit(10)]
    with pytest.raises(SignatureNeeded) as needed:
        approve(desk, jobs_[0])(None)
    key, before = desk.keys[desk.steward.name], newest(desk)
    signature = key.sign(needed.value.act)
    with pytest.raises(Conflict, match="what was signed is not what the entry says"):
        approve(desk, jobs_[1])(signature)
    with pytest.raises(Conflict, match="what was signed is not what the entry says"):
        approve(desk, jobs_[0], "another reason")(signature)
    with pytest.raises(Conflict, match="not verified by the passkey"):
        approve(desk, jobs_[0])(key.sign(needed.value.act, flags=0x01))
    stricter = desk.policy.model_copy(update={"analysts": (desk.analyst.name,)})
    signed(desk, set_policy(desk, stricter))
    with pytest.raises(Conflict, match="what was signed is not what the entry says"):
        approve(desk, jobs_[0])(signature)  # under the policy of before
    assert newest(desk) == before + 1
    signed(desk, approve(desk, jobs_[0]))


def test_a_proposal_falls_with_the_policy_under_which_it_was_signed(desk):
    proposal = signed(desk, allow(desk, "20"))
    signed(desk, set_policy(desk, desk.policy.model_copy(update={"approval_days": 3})))
    with pytest.raises(Conflict, match="its proposer did not sign this as it stands now"):
        confirm(desk, proposal)(None)


def test_a_steward_whose_passkey_the_policy_does_not_name_does_nothing(desk):
    third = person(desk.engine, "steward")
    register(desk, third, Passkey(third.name))
    with pytest.raises(NotPermitted, match="names no passkey of yours"):
        allow(desk, "20", third)(None)
    with pytest.raises(NotPermitted, match="names no passkey of yours"):
        confirm(desk, signed(desk, allow(desk, "20")), third)(None)


def test_nothing_is_offered_where_approvals_are_signed(desk):
    with pytest.raises(NotPermitted, match="approvals are signed"):
        offers.offer(desk.engine, desk.submit(10), {"tokens_per_batch": 5}, desk.steward, "less")


@pytest.mark.parametrize("forged", ["approval", "policy", "allowance", "without"])
def test_a_worker_runs_nothing_that_a_stolen_web_process_did_in_somebodys_name(
    desk, monkeypatch, forged
):
    """It posts what it likes, with hashes and balances that are right; but nobody's passkey signs
    for it.
    """
    job = desk.submit(10)
    with monkeypatch.context() as stolen, unjudged():
        stolen.setattr(signed_acts, "by_one", lambda *_: None)
        stolen.setattr(signed_acts, "by_second", lambda *about: about[5])
        if forged == "policy":
            proposal = set_policy(desk, Policy())(None)
            confirm(desk, proposal)(None)
        elif forged == "allowance":
            confirm(desk, allow(desk, "900")(None))(None)
        # the row's policy is the web's to write, and asks for no approval
        elif forged == "without":
            forget = 'UPDATE datasets SET policy = policy || \'{"auto_approve_epsilon": "9"}\''
            with desk.engine.begin() as connection:
                connection.execute(text(forget + " WHERE name = :name"), {"name": desk.dataset})
            job = desk.submit(10)
        if forged in ("approval", "policy"):
            approve(desk, job)(None)
    if forged == "allowance":
        # no honest writer goes on from it
        with pytest.raises(VerificationFailed, match="is not signed"):
            signed(desk, approve(desk, job))
        with unjudged():
            signed(desk, approve(desk, job))
    with pytest.raises(VerificationFailed, match=r"entry \d+: .*(is not signed|nobody approved)"):
        leases.claim(desk.engine, job, 1, "worker", 60)
    assert jobs.job(desk.engine, job, desk.steward).state == "queued"
    with pytest.raises(VerificationFailed, match=r"is not signed|nobody approved"):
        verify_lines(exported(desk))


def test_a_policy_names_passkeys_that_stewards_registered(desk):
    stranger, analyst = Passkey(desk.steward.name), Passkey(desk.analyst.name)
    register(desk, desk.analyst, analyst)
    for key in (stranger, analyst):
        named = desk.policy.model_copy(update={"signers": (*desk.policy.signers, str(key.signer))})
        with pytest.raises(InvalidRequest) as told:
            set_policy(desk, named)(None)
        assert told.value.problems[0].field == "signers"


# --- passkeys and challenges
# ------------------------------------------------------------------------


def test_a_challenge_is_taken_once_by_whom_it_was_made_for_and_in_time(desk, owner):
    engine, me, other = desk.engine, desk.steward.id, desk.second.id
    made = passkeys.ask(engine, me, "act", b"bytes", "ab")
    for who, purpose in ((other, "act"), (me, "confirm"), (None, "act")):
        with pytest.raises(NotPermitted, match="too long ago, or has answered already"):
            passkeys.take(engine, made, who, purpose)
    assert passkeys.take(engine, made, me, "act") == passkeys.Challenge(b"bytes", "ab")
    with pytest.raises(NotPermitted):
        passkeys.take(engine, made, me, "act")
    late = passkeys.ask(engine, me, "act", b"bytes")
    with owner.begin() as connection:
        connection.execute(
            text("UPDATE passkey_challenges SET expires_at = now() - interval '1 second'")
        )
    with pytest.raises(NotPermitted):
        passkeys.take(engine, late, me, "act")
    for _ in range(60):
        passkeys.ask(engine, me, "act", b"bytes")
    with engine.connect() as connection:
        kept = select(func.count()).where(tables.passkey_challenges.c.user_id == me)
        assert connection.execute(kept).scalar_one() <= 51


def test_a_copy_of_a_passkey_is_noticed_by_its_count(desk):
    key = desk.keys[desk.steward.name]

    def found() -> Any:
        return passkeys.find(desk.engine, key.signer.key.encode())

    passkeys.used(desk.engine, found(), 0)  # one that counts nothing
    passkeys.used(desk.engine, found(), 7)
    for count in (7, 3, 0):
        with pytest.raises(NotPermitted, match="may be a copy"):
            passkeys.used(desk.engine, found(), count)


def test_passkeys_go_with_a_reset_and_are_removed_by_their_owner_alone(desk):
    (own,) = passkeys.of(desk.engine, desk.steward.id)
    with pytest.raises(NotFound):
        passkeys.remove(desk.engine, desk.second, own["id"])
    passkeys.remove(desk.engine, desk.steward, own["id"])
    assert passkeys.of(desk.engine, desk.steward.id) == []
    assert passkeys.find(desk.engine, own["credential_id"]) is None
    root = person(desk.engine, "administrator")
    people.reset_password(desk.engine, root, desk.second.name, "hash")
    assert passkeys.of(desk.engine, desk.second.id) == []
    credentials.set_password(desk.engine, desk.second.id, "hash")
    register(desk, desk.second, key := Passkey(desk.second.name))
    credentials.set_password(desk.engine, desk.second.id, "another", actor=desk.second)
    assert [each["signer"] for each in passkeys.of(desk.engine, desk.second.id)] == [
        str(key.signer)
    ]
    people.deactivate(desk.engine, root, desk.second.name)
    assert passkeys.find(desk.engine, key.signer.key.encode()) is None
    facts = SimpleNamespace(action="passkey removed", object=desk.steward.name)
    with desk.engine.connect() as connection:
        query = select(tables.activity.c.action).where(tables.activity.c.object_id == facts.object)
        assert facts.action in set(connection.execute(query).scalars())
