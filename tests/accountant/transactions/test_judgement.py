"""No writer writes what `verify` refuses, whatever rows say, and wherever the service judged
otherwise.
"""

import uuid

import pytest
from sqlalchemy import select, text

from accountant import tables
from accountant.catalogue import datasets
from accountant.core.errors import Conflict, InvalidRequest, VerificationFailed
from accountant.core.ledger.admission import alone
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import read_document, verify_lines
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.verifier import Verifier
from accountant.core.privacy.events import from_json
from accountant.queries import entries, integrity, jobs
from accountant.transactions import (
    allowances,
    job_requests,
    judgement,
    leases,
    policies,
    settlement,
)
from accountant.transactions.artifacts import Stored
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.settlement import Output
from accountant.transactions.submission import submit
from tests import tallies
from tests.support import Bench, found_right, kinds, person, unjudged, yes

OPEN = {"auto_approve_epsilon": "10"}


@pytest.fixture
def waiting(bench):
    """A bench with a job that waits for a steward."""
    bench.warm()
    bench.job = bench.submit()
    return bench


def change_row(owner, table: str, change: str, bench: Bench) -> None:
    """Change a row of a dataset past every writer, as who owns the tables can."""
    column = "id" if table == "datasets" else "dataset_id"
    where = f"{column} = (SELECT id FROM datasets WHERE name = '{bench.dataset}')"
    with owner.begin() as connection:
        for statement in (
            f"ALTER TABLE {table} DISABLE TRIGGER USER",
            f"UPDATE {table} SET {change} WHERE {where}",
            f"ALTER TABLE {table} ENABLE TRIGGER USER",
        ):
            connection.exec_driver_sql(statement)


def exported(bench: Bench) -> list[str]:
    return list(entries.export(bench.engine, bench.dataset, bench.auditor, "jsonl"))


def sound(bench: Bench) -> None:
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(exported(bench))


# --- the state that judges
# --------------------------------------------------------------------------


def replayed(connection, dataset_id) -> Verifier:
    """A verifier that was fed every entry of a dataset."""
    table = tables.entries
    query = select(table.c.document, table.c.hash).where(table.c.dataset_id == dataset_id)
    verifier = Verifier()
    for row in connection.execute(query.order_by(table.c.seq)):
        verifier.add(read_document(row.document), row.hash)
    return verifier


def test_rules_that_are_loaded_are_those_of_a_replay_after_every_act(engine):
    bench = Bench(engine, policy=OPEN)
    second = person(engine, "steward")
    bench.allow()
    bench.warm()

    def both_agree() -> None:
        with engine.connect() as connection:
            dataset_id = LockedAccount(connection, bench.dataset).dataset_id
            wanted = replayed(connection, dataset_id).rules
            for _ in range(2):  # read from its entries, then from memory
                rules = judgement.rules_of(connection, dataset_id)
                assert (rules.terms, rules.versions) == (wanted.terms, wanted.versions)
                assert (rules.policy, rules.acts.basis) == (wanted.policy, wanted.acts.basis)

    def version() -> None:
        with engine.begin() as connection:
            query = "SELECT id FROM datasets WHERE name = :name"
            dataset = connection.execute(text(query), {"name": bench.dataset}).scalar_one()
            row = {
                "id": uuid.uuid4(),
                "dataset_id": dataset,
                "number": 2,
                "uri": "/b",
                "state": "checking",
            }
            row |= {"text_template": "{text}", "created_by": bench.steward.id}
            connection.execute(tables.dataset_versions.insert().values(row))
        found_right(engine, row["id"])

    def propose() -> None:
        made = policies.set_policy(engine, bench.dataset, Policy(**OPEN), bench.steward)
        assert made is not None
        yes(engine, made, second, "fine")

    strict = Policy(**OPEN, two_people=True)
    judgement._known.clear()
    acts = (
        lambda: None,
        bench.submit,
        lambda: bench.allow("12"),
        version,
        lambda: policies.set_policy(engine, bench.dataset, strict, bench.steward),
        propose,
        bench.submit,
        lambda: settlement.cancel(engine, bench.submit(), bench.analyst),
    )
    for act in acts:
        act()
        both_agree()
    sound(bench)


def test_rules_of_a_transaction_that_is_undone_are_forgotten(bench):
    solo = {"policy": Policy(solo=True).model_dump()}
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        locked.append(EntryKind.POLICY, bench.steward.name, None, solo)
        assert locked.rules.policy.solo
        connection.rollback()
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        assert not locked.rules.policy.solo
        again = locked.rules.versions[1]

        def two_entries() -> None:
            with locked.whole():
                locked.post(EntryKind.POLICY, bench.steward.name, None, solo)
                locked.post(EntryKind.REGISTER, bench.steward.name, None, again)

        with pytest.raises(
            VerificationFailed, match="its version is 1, which is no new number of one"
        ):
            two_entries()
        assert not locked.rules.policy.solo


def test_a_writer_goes_on_from_no_rule_that_was_changed(bench, owner):
    """Entries are read where the rules of a dataset are not in memory, and held against their
    hashes.
    """
    judgement._known.clear()
    weaker = "replace(document, '\"solo\":false', '\"solo\":true')"
    change_row(owner, "entries", f"document = {weaker}", bench)
    with pytest.raises(Conflict, match="its content does not match its hash"):
        bench.allow("11")


# --- rows that say otherwise than the entries
# -------------------------------------------------------

#: By rule: the table, a change of the dataset's row, and what the RESERVE of the next job is
#: refused for.
ROWS = {
    "terms": (
        "datasets",
        "public_size = 5000",
        "its public_size in terms is 5000, registered is 1000",
    ),
    "labels": ("datasets", "labels = '[\"a\"]'", r"its labels in terms is \['a'\]"),
    "neighbours": (
        "datasets",
        "neighbours = 'replace-one'",
        "its neighbours in terms is 'replace-one'",
    ),
    "version": ("dataset_versions", "number = 7", "it reads version 7, which nobody registered"),
    "approval": (
        "datasets",
        'policy = policy || \'{"auto_approve_epsilon":"10"}\'',
        "nobody approved it, and the policy asks",
    ),
}


@pytest.mark.parametrize("rule", ROWS)
def test_a_job_is_not_reserved_by_a_row_that_no_entry_states(bench, owner, rule):
    table, change, problem = ROWS[rule]
    bench.warm()
    if rule != "approval":
        policies.set_policy(bench.engine, bench.dataset, Policy(**OPEN), bench.steward)
    before = len(exported(bench))
    change_row(owner, table, change, bench)
    with pytest.raises(VerificationFailed, match=problem):
        bench.probe(bench.submit())
    assert len(exported(bench)) == before


def test_who_may_not_ask_is_not_admitted_by_a_row(engine, owner):
    other = person(engine, "analyst")
    listed = {**OPEN, "analysts": [other.name], "mechanisms": ["noisy-count"], "models": ["gpt"]}
    for name, problem in (
        ("analysts", "does not allow the analyst"),
        ("mechanisms", "does not allow the mechanism"),
        ("models", "does not allow the model"),
    ):
        bench = Bench(engine, policy={**OPEN, name: listed[name]})
        bench.allow()
        change_row(owner, "datasets", f"policy = policy || '{{\"{name}\":[]}}'", bench)
        job = bench.submit()
        with pytest.raises(VerificationFailed, match=problem):
            bench.probe(job)
        assert kinds(bench) == ["ALLOW"]


def test_an_approval_is_held_against_the_entries_not_the_row(waiting, owner):
    """Solo, and who decides: the row of the policy says more than its entry."""
    mine = submit(waiting.engine, waiting.request(), waiting.steward)
    change_row(owner, "datasets", "policy = policy || '{\"solo\":true}'", waiting)
    with pytest.raises(
        VerificationFailed, match="approved a job of their own, and the policy is not solo"
    ):
        yes(waiting.engine, mine, waiting.steward, "mine")
    owned = Policy(stewards=(waiting.steward.name,))
    other = person(waiting.engine, "steward")
    change_row(owner, "datasets", "policy = policy || '{\"solo\":false}'", waiting)
    policies.set_policy(waiting.engine, waiting.dataset, owned, waiting.steward)
    change_row(owner, "datasets", "policy = policy || '{\"stewards\":[]}'", waiting)
    with pytest.raises(VerificationFailed, match="approved it, who is not among the stewards"):
        yes(waiting.engine, waiting.job, other, "fine")
    with pytest.raises(Conflict, match="is not among the stewards"):
        allowances.allow(waiting.engine, waiting.dataset, Allowance("9", "1e-6", "less"), other)
    with pytest.raises(VerificationFailed, match="is not among the stewards"):
        policies.set_policy(waiting.engine, waiting.dataset, Policy(), other)
    assert kinds(waiting) == ["ALLOW"]


def test_a_raise_and_a_weaker_policy_take_two_whatever_the_row_says(engine, owner):
    bench = Bench(engine, policy={"two_people": True})
    change_row(owner, "datasets", "policy = policy || '{\"two_people\":false}'", bench)
    with pytest.raises(Conflict, match="the policy asks for two people"):
        bench.allow()
    with pytest.raises(VerificationFailed, match="it weakens two_people, and one person made it"):
        policies.set_policy(engine, bench.dataset, Policy(), bench.steward)
    assert kinds(bench) == []


def test_data_in_use_is_not_registered_under_other_terms(engine, owner):
    bench = Bench(engine, unit_column="patient", max_records_per_unit=2)
    change_row(owner, "datasets", "max_records_per_unit = 3", bench)
    change_row(owner, "dataset_versions", "state = 'invalid'", bench)
    with pytest.raises(
        VerificationFailed, match="it registers other terms after data was found right"
    ):
        datasets.correct_dataset(bench.engine, bench.dataset, {"uri": "/else.csv"}, bench.steward)


def test_a_charge_says_what_its_reservation_read(waiting, owner):
    """The row says that nothing was read: a COMMIT would say so, and a VOID would give all back."""
    yes(waiting.engine, waiting.job, waiting.steward, "fine")
    claim = leases.claim(waiting.engine, waiting.job, 1, "worker", 60)
    change_row(owner, "jobs", "reads_records = false", waiting)
    event = from_json(jobs.job(waiting.engine, waiting.job, waiting.steward)["event"])
    with pytest.raises(
        VerificationFailed, match="its job reads records, and it says that nothing was read"
    ):
        settlement.publish(waiting.engine, claim, event, Output("x", "0" * 64), "worker")
    assert kinds(waiting) == ["RESERVE", "ALLOW"]


# --- what the service judged otherwise
# --------------------------------------------------------------


def test_a_policy_approves_by_the_epsilon_that_every_verifier_computes(bench, monkeypatch):
    """A server quotes less for some jobs (decision 23): nobody offline could follow that figure."""

    def half(event, delta):
        return alone(event, delta) / 2, "loss distribution"

    bench.warm()
    monkeypatch.setattr(job_requests, "quoted", half)
    stated = jobs.job(bench.engine, bench.submit(37), bench.steward)["epsilon_alone"]
    policy = Policy(auto_approve_epsilon=str(round(1.5 * stated, 9)))
    policies.set_policy(bench.engine, bench.dataset, policy, bench.steward)
    assert jobs.job(bench.engine, bench.submit(37), bench.steward)["state"] == "awaiting_approval"
    verify_lines(exported(bench))


def test_where_every_job_needs_approval_one_that_costs_next_to_nothing_does_too(engine):
    """Its epsilon alone is 0: so much noise that delta covers all of it."""
    bench = Bench(engine)
    bench.allow("10", "0.01")
    request = JobRequest(bench.dataset, "noisy-count", None, {"noise_multiplier": 1000.0}, "test")
    job_id = submit(engine, request, bench.analyst)
    job = jobs.job(engine, job_id, bench.steward)
    assert (job["epsilon_alone"], job["state"]) == (0.0, "awaiting_approval")
    yes(engine, job_id, bench.steward, "fine")
    sound(bench)


def test_a_job_that_is_read_is_named_in_one_spelling(bench):
    """The entry has to name what its parameters name, letter for letter."""
    bench.warm()
    policies.set_policy(bench.engine, bench.dataset, Policy(**OPEN), bench.steward)
    tallies.register()
    try:
        source = submit(
            bench.engine,
            JobRequest(bench.dataset, "tally", None, {"epsilon": 1.0}, ""),
            bench.analyst,
        )
        claim = leases.claim(bench.engine, source, 1, "worker", 60)
        leases.begin_reading(bench.engine, claim)
        released = Stored(
            "counts", "noisy-counts", "application/json", "a" * 64, 12, "/nowhere.json"
        )
        event = from_json(jobs.job(bench.engine, source, bench.steward)["event"])
        settlement.publish(bench.engine, claim, event, Output("x", "0" * 64, (released,)), "worker")
        for named in (str(source).upper(), source.hex):
            request = JobRequest(bench.dataset, "tally", None, {"from_job": named}, "")
            with pytest.raises(InvalidRequest, match="is no job of this dataset"):
                submit(bench.engine, request, bench.analyst)
        request = JobRequest(bench.dataset, "tally", None, {"from_job": str(source)}, "")
        submit(bench.engine, request, bench.analyst)
        verify_lines(exported(bench))
    finally:
        tallies.forget()


def test_a_stolen_process_writes_them_all_the_same_and_verify_tells(waiting, owner):
    """The rules are judged in the process that writes; against a stolen one stand guards and
    `verify`.
    """
    change_row(owner, "datasets", 'policy = policy || \'{"auto_approve_epsilon":"10"}\'', waiting)
    with unjudged():
        waiting.submit()
    with pytest.raises(VerificationFailed, match="nobody approved it"):
        verify_lines(exported(waiting))
