"""What a process can't do when it is taken over: its credentials try, and the database refuses.

`docs/powers.md` says it in words, and names the tests of what else stops a stolen process.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

import pytest
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import DBAPIError

from accountant import tables
from accountant.catalogue import datasets
from accountant.core.errors import VerificationFailed
from accountant.core.ledger import entry_bodies, reversals
from accountant.core.ledger.checkpoints import introduction, public_key, sign
from accountant.core.ledger.export_formats import json_header, read_document, verify_lines
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.losses import loss_body
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.rules import register_body
from accountant.core.privacy.events import FREE, Event, SelfComposed, ZCDp, from_json, to_json
from accountant.database import connect
from accountant.queries import entries, integrity
from accountant.rights import PROCESSES, Process
from accountant.tables.accounts_row import book_columns
from accountant.transactions import (
    approval,
    decision,
    kept_draws,
    leases,
    policies,
    releases,
    settlement,
)
from accountant.transactions.ledger_log import Writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import Claim, locked_job, show
from tests.conftest import as_process
from tests.support import NO_FILES, Bench, person, unjudged, yes

UNITS = b"u" * 32


@pytest.fixture(scope="module")
def roles(owner_url) -> Iterator[dict[Process, Engine]]:
    """A connection with each process's credentials."""
    engines = {
        process: connect(as_process(owner_url, process), pool_size=1) for process in PROCESSES
    }
    yield engines
    for engine in engines.values():
        engine.dispose()


@pytest.fixture(scope="module")
def ground(engine, roles) -> dict[str, object]:
    """A dataset with a job that runs and has read, a queued one, an ended one, one of the thief's
    own.
    """
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    ended, read, queued, own = (bench.submit(tokens) for tokens in (11, 12, 13, 14))
    claim = leases.claim(engine, ended, 1, "worker", 600)
    assert claim is not None
    leases.begin_reading(engine, claim)
    settlement.fail(engine, claim, "failed", "it broke", "worker")
    claim = leases.claim(engine, read, 1, "worker", 600, 0, UNITS)
    assert claim is not None
    leases.begin_reading(engine, claim)
    kept_draws.keep(engine, claim, 0, b"drawn")
    stolen = leases.claim(roles["worker"], own, 1, "thief", 600, 0, UNITS)
    assert stolen is not None
    unseen = bench.submit(18, template="Another one: {record}")
    return {
        **{"unseen": unseen, "bench": bench, "ended": ended, "read": read, "queued": queued},
        **{"own": own, "claim": claim, "stolen": stolen},
    }


@contextmanager
def stolen(roles, ground, process: Process) -> Iterator[Connection]:
    """A connection of a stolen process; a worker's shows the secret of the one lease that it
    has.
    """
    forger = roles[process].connect().execution_options(ledger_writing=Writing(None))
    with forger as connection, unjudged():
        if process == "worker":
            show(connection, ground["stolen"])
        yield connection


def names(ground: dict[str, object]) -> dict[str, object]:
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    return {
        **{name: ground[name] for name in ("ended", "read", "queued", "own", "unseen")},
        **{"dataset": bench.dataset, "steward": bench.steward.id, "analyst": bench.analyst.id},
    }


# --- statements ---------------------------------------------------------------------------------

OWN = "dataset_id = (SELECT id FROM datasets WHERE name = :dataset)"
BALANCES = {
    "set spent budget to 0": f"UPDATE accounts SET renyi_spent = 0, gaussian_spent = 0 WHERE {OWN}",
    "give a reservation back": f"UPDATE accounts SET renyi_reserved = 0 WHERE {OWN}",
    "raise an allowance": f"UPDATE accounts SET renyi_limit = renyi_limit * 9 WHERE {OWN}",
    "state another history": f"UPDATE accounts SET job_count = 0 WHERE {OWN}",
    "move the head of a chain": f"UPDATE accounts SET chain_seq = chain_seq + 1 WHERE {OWN}",
}
LEDGER = {
    "change an entry": "UPDATE entries SET actor = 'me'",
    "delete an entry": "DELETE FROM entries",
    "truncate the ledger": "TRUNCATE entries CASCADE",
    "disable a trigger": "ALTER TABLE accounts DISABLE TRIGGER ALL",
    "name its own role another process": "UPDATE process_roles SET process = 'service'",
    "forge kept balances": "INSERT INTO standings SELECT dataset_id, 9, '{}' FROM accounts",
}
PEOPLE = {
    "make an account": "INSERT INTO users (id, name, roles) VALUES (gen_random_uuid(), 'me', "
    "'{steward}')",
    "change roles": "UPDATE users SET roles = '{steward,administrator}'",
    "mint a token": "INSERT INTO api_tokens (id, user_id, name, token_sha256, scopes) "
    "VALUES (gen_random_uuid(), :steward, 'x', sha256('x'), '{admin}')",
    "open a session": "INSERT INTO sessions (id, token_sha256, user_id, method, address, "
    "user_agent) "
    "VALUES (gen_random_uuid(), sha256('x'), :steward, 'page', 'x', 'x')",
    "forge a decision": "INSERT INTO decisions (id, dataset_id, kind, asked, reason, asked_by, "
    "expires_at) SELECT gen_random_uuid(), id, 'policy', '{}', 'x', :steward, now() FROM datasets "
    "WHERE name = :dataset",
    "forge an answer": "UPDATE decisions SET state = 'accepted', answered_by = :steward",
    "change a policy": """UPDATE datasets SET policy = policy || '{"solo": true}'""",
    "state an act of somebody's": "INSERT INTO activity (actor_id, actor_name, action, "
    "object_kind, "
    "object_id, detail) VALUES (:steward, 'x', 'x', 'x', 'x', '{}')",
    "read hashes of passwords": "SELECT password_hash FROM users",
    "read tokens": "SELECT token_sha256 FROM api_tokens",
    "read sessions": "SELECT token_sha256 FROM sessions",
    "read who signed in": "SELECT * FROM sign_ins",
    "set an address for notices": "INSERT INTO hooks (id, owner_id, kind, url, events) "
    "VALUES (gen_random_uuid(), :steward, 'json', 'x', '{job.queued}')",
}
ADDRESSES = {"read addresses of notices": "SELECT url FROM hooks"}
SIGNING = {
    "sign a checkpoint": "INSERT INTO checkpoints SELECT dataset_id, 1, 'x', now(), '{}' FROM "
    "accounts",
    "introduce a key": "INSERT INTO signing_keys VALUES ('x', 'y', now(), '{}')",
}
JOBS = {
    "make a job": "INSERT INTO jobs (id, dataset_id, version_id, analyst_id, mechanism, "
    "parameters, terms, "
    "breakdown, purpose, request_sha256, state) SELECT gen_random_uuid(), dataset_id, version_id, "
    "analyst_id, mechanism, parameters, terms, breakdown, purpose, request_sha256, 'queued' "
    "FROM jobs WHERE id = :queued",
    "change what a job asks for": "UPDATE jobs SET parameters = '{}' WHERE id = :queued",
    "give a job to somebody else": "UPDATE jobs SET analyst_id = :steward WHERE id = :queued",
}
UNREAD = {
    "forget that a job read": "UPDATE jobs SET reading_began_at = NULL WHERE id = :read",
    "run an ended job again": "UPDATE jobs SET state = 'queued' WHERE id = :ended",
    "delete a job": "DELETE FROM jobs WHERE id = :ended",
}
IDENTITY = {
    "read fingerprints": "SELECT * FROM fingerprints",
    "add a fingerprint": "INSERT INTO fingerprints SELECT decode(repeat('00', 16), 'hex'), id, "
    "true "
    "FROM datasets WHERE name = :dataset",
}
KEPT = {
    "read keys of jobs": "SELECT sealed FROM job_keys",
    "read draws": "SELECT sealed FROM kept_draws",
}
RUNNING = {
    "publish an output": "UPDATE jobs SET output_sha256 = 'x' WHERE id = :queued",
    "take a lease": "UPDATE parts SET worker = 'me' WHERE job_id = :queued",
}
LEASED = {
    "publish an output of another's": "UPDATE jobs SET output_sha256 = 'x' WHERE id = :read",
    "take a lease without a secret": "UPDATE parts SET state = 'running', lease_token = "
    "gen_random_uuid(), "
    "lease_expires = now(), worker = 'me' WHERE job_id = :queued",
    "take a lease that another holds": "UPDATE parts SET lease_token = gen_random_uuid(), worker = "
    "'me', "
    "lease_secret_sha256 = lease_shown() WHERE job_id = :read",
    "take two attempts at once": "UPDATE parts SET state = 'running', attempt = 2, lease_token = "
    "gen_random_uuid(), lease_expires = now(), lease_secret_sha256 = lease_shown() WHERE job_id = "
    ":queued",
    "state what another released": "INSERT INTO artifacts (job_id, name, kind, media_type, sha256, "
    "size) "
    "VALUES (:read, 'x', 'x', 'text/html', repeat('0', 64), 0)",
    "state what another spent": "INSERT INTO realized_ex_post (job_id, amount) VALUES (:read, 0)",
    "say that another's job began to read": "UPDATE jobs SET reading_began_at = now() WHERE id = "
    ":queued",
    "keep a draw for another": "INSERT INTO kept_draws VALUES (:read, 0, 1, '')",
    "draw a key for another": "INSERT INTO job_keys VALUES (:queued, '')",
}
LEASES = {
    "end another's lease": "UPDATE parts SET state = 'queued', attempt = attempt + 1, lease_token "
    "= NULL, "
    "lease_expires = NULL WHERE job_id = :read",
    "stop another's part": "UPDATE parts SET state = 'stopped', lease_token = NULL, lease_expires "
    "= NULL "
    "WHERE job_id = :read",
    "have a lease run out": "UPDATE parts SET lease_expires = now() - interval '1 hour' WHERE "
    "job_id = :read",
    "take a lease for nobody": "UPDATE parts SET state = 'running', lease_token = "
    "gen_random_uuid(), "
    "lease_expires = now() WHERE job_id = :queued",
}
LOOKS = {
    "queue what nothing is reserved for": "UPDATE jobs SET state = 'queued' WHERE id = :unseen",
    "state the price of a job": "UPDATE jobs SET event = '{}' WHERE id = :unseen",
    "state what is to be reserved": "UPDATE jobs SET to_reserve = '{}' WHERE id = :unseen",
    "change what a job is priced by": """UPDATE jobs SET terms = terms || '{"public_size": 9}' """
    "WHERE id = :unseen",
    "refuse a queued job": "UPDATE jobs SET state = 'refused', refusal = '{}' WHERE id = :queued",
    "add a part to a job": "INSERT INTO parts (job_id, number, state, attempt) "
    "VALUES (:queued, 1, 'queued', 1)",
}
STATES = {
    "say that another's job failed": "UPDATE jobs SET state = 'failed', failure = 'x' WHERE id = "
    ":read"
}
UNSEEN = {
    "call a file public": "INSERT INTO corpora (id, name, uri, text_template, declaration, "
    "statement, state, facts, created_by) SELECT gen_random_uuid(), 'taken', '/data.csv', "
    "'{text}', 'public', 'x', 'ready', '{}', id FROM users LIMIT 1",
    "move a corpus": "UPDATE corpora SET uri = '/data.csv'",
}
FACTS = {
    "find data right": "UPDATE dataset_versions SET state = 'ready'",
    "state facts of a model": "UPDATE models SET facts = '{}'",
}

REFUSED: dict[Process, dict[str, str]] = {
    "web": BALANCES
    | LEDGER
    | SIGNING
    | UNREAD
    | IDENTITY
    | KEPT
    | LEASES
    | UNSEEN
    | {"publish an output": RUNNING["publish an output"]},
    "relay": BALANCES
    | LEDGER
    | PEOPLE
    | SIGNING
    | JOBS
    | UNREAD
    | IDENTITY
    | KEPT
    | RUNNING
    | LEASES
    | STATES
    | FACTS,
    "worker": BALANCES
    | LEDGER
    | PEOPLE
    | ADDRESSES
    | SIGNING
    | JOBS
    | UNREAD
    | IDENTITY
    | RUNNING
    | LEASED
    | LEASES
    | STATES
    | FACTS,
    "checks": BALANCES
    | LEDGER
    | PEOPLE
    | ADDRESSES
    | SIGNING
    | JOBS
    | UNREAD
    | KEPT
    | RUNNING
    | LEASES
    | LOOKS
    | STATES,
    "signer": BALANCES
    | LEDGER
    | PEOPLE
    | ADDRESSES
    | JOBS
    | UNREAD
    | IDENTITY
    | KEPT
    | RUNNING
    | FACTS,
}
TRIES = [(process, act) for process, acts in REFUSED.items() for act in acts]


@pytest.mark.parametrize(("process", "act"), TRIES)
def test_a_stolen_process_is_refused(roles, ground, process, act):
    statement = REFUSED[process][act]
    bound = {name: value for name, value in names(ground).items() if f":{name}" in statement}
    with stolen(roles, ground, process) as connection, pytest.raises(DBAPIError) as refused:
        connection.execute(text(statement), bound)
    told = str(refused.value.orig)
    assert re.search("permission denied|may not do this|must be owner|row-level security", told), (
        act
    )


# --- entries ------------------------------------------------------------------------------------

Forgery = Callable[[Connection, dict[str, object]], object]


def _posted(kind: EntryKind, job: str | None, body: dict[str, object]) -> Forgery:
    """A forged entry with all that belongs to it: a true hash, its place in the chain, its
    balances.
    """

    def post(connection: Connection, ground: dict[str, object]) -> None:
        bench = ground["bench"]
        assert isinstance(bench, Bench)
        locked = LockedAccount(connection, bench.dataset)
        made, job_id = dict(body), None if job is None else ground[job]
        if kind is EntryKind.COMMIT:
            assert isinstance(job_id, uuid.UUID)
            held = from_json(locked.reservation(job_id)["event"])
            made = entry_bodies.commit_body(locked.accounts.dp, held, str(body["outcome"]), 1, None)
        locked.append(kind, "me", job_id, made)

    return post


def _reserved(connection: Connection, ground: dict[str, object]) -> None:
    """A RESERVE of a job that is reserved already, under another id: nobody decided on it."""
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    locked = LockedAccount(connection, bench.dataset)
    queued = ground["queued"]
    assert isinstance(queued, uuid.UUID)
    body, account = dict(locked.reservation(queued)), locked.accounts.dp
    assert account is not None  # what it would cost now is not what it cost then
    body["costs"] = entry_bodies.costs_json(account.charge(from_json(body["event"]))[0])
    locked.append(EntryKind.RESERVE, "me", queued, body)


def _half(connection: Connection, ground: dict[str, object]) -> None:
    """A RESERVE of a job that waits for its look, at another price than the web decided on."""
    bench, unseen = ground["bench"], ground["unseen"]
    assert isinstance(bench, Bench)
    assert isinstance(unseen, uuid.UUID)
    job = connection.execute(select(tables.jobs).filter_by(id=unseen)).one()
    locked = LockedAccount(connection, bench.dataset)
    event = {**job.to_reserve["event"], "count": 1}
    assert locked.accounts.dp is not None
    costs = entry_bodies.costs_json(locked.accounts.dp.charge(from_json(event))[0])
    body = {**job.to_reserve, "event": event, "costs": costs}
    locked.append(EntryKind.RESERVE, bench.analyst.name, unseen, body)


def _cheaper(connection: Connection, ground: dict[str, object]) -> None:
    """A COMMIT that says what was reserved, and balances that say nothing was spent."""
    job = ground["read"]
    assert isinstance(job, uuid.UUID)
    locked, _ = locked_job(connection, job)
    before = locked.books
    held = from_json(locked.reservation(job)["event"])
    locked.post(
        EntryKind.COMMIT,
        "me",
        job,
        entry_bodies.commit_body(locked.accounts.dp, held, "failed", 1, None),
    )
    locked.books = before
    locked.write()


def _unmoved(event: Event | None, part: str, more: int = 0) -> Forgery:
    """A RESERVE of the job that waits for its look; balances named `part` stay where they were, or
    `more`.

    `event`: what it reserves; None: what the web decided on.
    """

    def post(connection: Connection, ground: dict[str, object]) -> None:
        bench, unseen = ground["bench"], ground["unseen"]
        assert isinstance(bench, Bench)
        assert isinstance(unseen, uuid.UUID)
        body = connection.execute(
            select(tables.jobs.c.to_reserve).filter_by(id=unseen)
        ).scalar_one()
        locked = LockedAccount(connection, bench.dataset)
        assert locked.accounts.dp is not None
        if event is not None:
            costs = entry_bodies.costs_json(locked.accounts.dp.charge(event)[0])
            body = {**body, "event": to_json(event), "costs": costs}
        before = book_columns(locked.books)
        kept = {name: int(value) + more for name, value in before.items() if name.endswith(part)}
        locked.post(EntryKind.RESERVE, bench.analyst.name, unseen, body)
        after = book_columns(locked.books) | kept
        with mock.patch("accountant.transactions.locked_account.book_columns", return_value=after):
            locked.write()

    return post


def _without_outcome(connection: Connection, ground: dict[str, object]) -> None:
    """A COMMIT of a job that waits, which doesn't say what became of it."""
    job = ground["queued"]
    assert isinstance(job, uuid.UUID)
    locked, _ = locked_job(connection, job)
    held = from_json(locked.reservation(job)["event"])
    body = entry_bodies.commit_body(locked.accounts.dp, held, "cancelled", 1, None)
    del body["outcome"]
    locked.append(EntryKind.COMMIT, "me", job, body)


def _unreserved(connection: Connection, ground: dict[str, object]) -> None:
    """A COMMIT of a job that reserved nothing, and a limit that rises beside it."""
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    made = f"{JOBS['make a job']} RETURNING id"
    job = connection.execute(text(made), {"queued": ground["queued"]}).scalar_one()
    locked = LockedAccount(connection, bench.dataset)
    raised = book_columns(locked.books)
    raised["basic_delta_limit"] = int(raised["basic_delta_limit"]) + 1
    with (
        mock.patch(
            "accountant.transactions.locked_account.reversals.apply", return_value=locked.books
        ),
        mock.patch("accountant.transactions.locked_account.book_columns", return_value=raised),
        mock.patch("accountant.transactions.locked_account.judge"),
    ):
        locked.append(EntryKind.COMMIT, "me", job, {"outcome": "cancelled"})


def _without(name: str) -> Forgery:
    """An entry whose document leaves something out; its hash is that of the document."""
    document = Entry.document

    def post(connection: Connection, ground: dict[str, object]) -> None:
        def gap(entry: Entry) -> dict[str, object]:
            return {key: value for key, value in document(entry).items() if key != name}

        def unread(_: object, seq: int) -> Entry:
            return Entry(
                bench.dataset, seq, EntryKind.ALLOW, datetime.now(UTC), "me", None, ALLOW, ""
            )

        bench = ground["bench"]
        assert isinstance(bench, Bench)
        with (
            mock.patch.object(Entry, "document", gap),
            mock.patch("accountant.transactions.locked_account.read_entry", unread),
        ):
            _posted(EntryKind.ALLOW, None, ALLOW)(connection, ground)

    return post


def _unhashed(connection: Connection, ground: dict[str, object]) -> None:
    """An entry whose hash is of something else."""
    with mock.patch("accountant.transactions.locked_account.digest", return_value="0" * 64):
        _posted(EntryKind.COMMIT, "read", {"outcome": "failed"})(connection, ground)


def _lost(connection: Connection, ground: dict[str, object]) -> None:
    """A LOSS, which the database's owner alone posts for two people."""
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    locked = LockedAccount(connection, bench.dataset)
    people = {"proposed_by": "one", "reason": "x", "confirmed_by": "two", "confirmation": "y"}
    heads = [{"log": "exchequer.example/log", "entries": 9, "leaf": None}]
    locked.append(EntryKind.LOSS, "two", None, loss_body(people, locked.accounts, heads, None))


def _corrected(connection: Connection, ground: dict[str, object]) -> None:
    """A REVERSAL of what a job was charged, in the name of two people."""
    bench, job = ground["bench"], ground["ended"]
    assert isinstance(bench, Bench)
    assert isinstance(job, uuid.UUID)
    locked = LockedAccount(connection, bench.dataset)
    query = select(tables.entries.c.document).filter_by(job_id=job).order_by(tables.entries.c.seq)
    reserve, charge = map(read_document, connection.execute(query).scalars())
    event = from_json(charge["body"]["event"])
    assert isinstance(event, SelfComposed)
    more = SelfComposed(event.event, event.count + 1)
    people = reversals.TwoPeople("one", "x", "two", "y")
    body = reversals.reversal_body(locked.accounts, reserve, charge, more, 0, people)
    locked.append(EntryKind.REVERSAL, "two", job, body)


ALLOW = {"reason": "more", "ex_post": {"limit": "5", "settlement": "planned"}}
VOID = {"outcome": "cancelled", "reason": "x", "read": False}
FORGERIES: dict[str, tuple[tuple[Process, ...], Forgery]] = {
    "an ALLOW": (("relay", "worker", "checks", "signer"), _posted(EntryKind.ALLOW, None, ALLOW)),
    "a POLICY": (
        ("relay", "worker", "checks", "signer"),
        _posted(EntryKind.POLICY, None, {"policy": {"solo": True}}),
    ),
    "a REGISTER": (
        ("relay", "worker", "checks", "signer"),
        _posted(EntryKind.REGISTER, None, {"terms": {}, "version": 7}),
    ),
    "a RESERVE that nobody decided on": (("relay", "worker", "checks", "signer"), _reserved),
    "a RESERVE at another price": (("relay", "worker", "checks", "signer"), _half),
    "a VOID of a job that read": (PROCESSES, _posted(EntryKind.VOID, "read", VOID)),
    "a VOID of a job that has ended": (PROCESSES, _posted(EntryKind.VOID, "ended", VOID)),
    "a VOID of a job that waits": (
        ("relay", "worker", "checks", "signer"),
        _posted(EntryKind.VOID, "queued", VOID),
    ),
    "a COMMIT of a job that runs elsewhere": (
        PROCESSES,
        _posted(EntryKind.COMMIT, "read", {"outcome": "cancelled"}),
    ),
    "a COMMIT of a job that waits": (
        ("relay", "worker", "checks", "signer"),
        _posted(EntryKind.COMMIT, "queued", {"outcome": "cancelled"}),
    ),
    "a COMMIT that moves less than it says": (PROCESSES, _cheaper),
    "a REVERSAL": (("relay", "worker", "checks", "signer"), _corrected),
    "a LOSS": (PROCESSES, _lost),
    "an entry with another hash": (PROCESSES, _unhashed),
    "a RESERVE that holds nothing": (("web", "checks"), _unmoved(None, "_reserved")),
    "a RESERVE that closes nothing": (("web",), _unmoved(ZCDp(1e-6), "_closed")),
    "a RESERVE that closes more": (("web",), _unmoved(ZCDp(1e-6), "gaussian_closed", more=2)),
    "a COMMIT that says no outcome": (("web",), _without_outcome),
    "a COMMIT that nothing was reserved for": (("web",), _unreserved),
    "an entry that says no number": (PROCESSES, _without("seq")),
    "an entry that says no kind": (PROCESSES, _without("kind")),
    "an entry that says no entry before it": (PROCESSES, _without("previous")),
}


@pytest.mark.parametrize(
    ("process", "forged"),
    [(each, name) for name, (all_of, _) in FORGERIES.items() for each in all_of],
)
def test_a_stolen_process_posts_no_entry_that_is_not_its_own(roles, ground, process, forged):
    with stolen(roles, ground, process) as connection, pytest.raises(DBAPIError) as refused:
        FORGERIES[forged][1](connection, ground)
    told = str(refused.value.orig)
    assert re.search(
        "permission denied|may not do this|uq_entries_(resolved|reserved)_once|nobody reserved",
        told,
    ), told


@pytest.mark.parametrize("process", ["web", "relay", "worker", "checks"])
def test_a_lowered_sum_of_personal_caps_is_found(roles, ground, engine, process):
    """What docs/powers.md says that they can do: the sums are no entries."""
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    lower = f"UPDATE usage SET reserved = 0 WHERE {OWN} AND reserved > 0 RETURNING holder"
    with engine.connect() as connection:
        before = connection.execute(select(tables.usage)).all()
    with roles[process].begin() as connection:
        assert connection.execute(text(lower), {"dataset": bench.dataset}).all()
    found = integrity.check(engine, bench.dataset)
    with engine.begin() as connection:
        for row in before:
            own = tables.usage.c.dataset_id == row.dataset_id, tables.usage.c.holder == row.holder
            held = tables.usage.update().where(*own, tables.usage.c.kind == row.kind)
            connection.execute(held.values(reserved=row.reserved))
    assert [problem.startswith("the sums of analyst") for problem in found] == [True], found


def test_what_a_stolen_signer_signs_falsely_is_found(roles, ground, engine):
    """It introduces a key of its own and states another head; the reader of an export sees it."""
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    now, seed = datetime.now(UTC), b"t" * 32
    pieces = entries.export(engine, bench.dataset, bench.steward, "jsonl")
    first, *rest = "".join(pieces).splitlines(keepends=True)
    claimed, key = json.loads(first), introduction(public_key(seed), now, None)
    false = sign(bench.dataset, claimed["entries"], "0" * 64, claimed["balances"], now, seed, [key])
    row = {"id": key["key"]["id"], "introduced_at": now, "document": key}
    own = select(tables.datasets.c.id).where(tables.datasets.c.name == bench.dataset)
    made = {"seq": claimed["entries"], "key_id": row["id"], "at": now}
    with roles["signer"].connect() as connection:  # which is rolled back: others sign here too
        connection.execute(tables.signing_keys.insert().values(introduced_by="thief", **row))
        added = tables.checkpoints.insert().values(
            dataset_id=own.scalar_subquery(), document=json.dumps(false), **made
        )
        connection.execute(added)
    with pytest.raises(VerificationFailed, match="checkpoint"):
        verify_lines([json_header({**claimed, "checkpoint": false}), *rest])


# --- leases -------------------------------------------------------------------------------------


def test_a_stolen_worker_opens_no_key_and_no_draw_of_another_job(roles, ground):
    counts = "SELECT (SELECT count(*) FROM job_keys), (SELECT count(*) FROM kept_draws)"
    with roles["worker"].connect() as connection:
        assert connection.execute(text(counts)).one() == (0, 0)
    with stolen(roles, ground, "worker") as connection:
        assert connection.execute(text(counts)).one() == (1, 0)  # its own job's key
        assert connection.execute(text("DELETE FROM kept_draws")).rowcount == 0


def test_a_live_lease_is_claimed_by_nobody_else(roles, ground):
    assert leases.claim(roles["worker"], ground["read"], 1, "thief", 600) is None
    assert leases.claim(roles["worker"], ground["read"], 2, "thief", 600) is None


def _lost(claim: Claim) -> Claim:
    """The claim as who read all tables knows it: the token stands there, the secret does not."""
    return replace(claim, secret=b"")


OUTPUT = settlement.Output("x", "0" * 64)
TAKEN = {
    "heartbeat": lambda engine, claim: leases.renew(engine, claim, 600, 1, 2),
    "reading": leases.begin_reading,
    "hand back": lambda engine, claim: leases.hand_back(engine, claim, 3, True),
    "finish": lambda engine, claim: leases.finish(engine, claim, FREE, OUTPUT, None),
    "keep": lambda engine, claim: kept_draws.keep(engine, claim, 1, b"drawn"),
    "publish": lambda engine, claim: settlement.publish(engine, claim, FREE, OUTPUT, "thief"),
    "fail": lambda engine, claim: settlement.fail(engine, claim, "failed", "it broke", "thief"),
}


@pytest.mark.parametrize("act", TAKEN)
def test_the_token_alone_is_no_lease(roles, ground, act):
    """All that the service itself does under a lease, by a worker that has read another's token."""
    with pytest.raises(DBAPIError, match=r"may not do this|row-level security"):
        TAKEN[act](roles["worker"], _lost(ground["claim"]))


def test_a_worker_does_all_of_its_work_under_its_secret(roles, ground):
    """With the rights of a worker, from the claim to the end, over three attempts."""
    worker, bench = roles["worker"], ground["bench"]
    job = bench.submit(15)
    first = leases.claim(worker, job, 1, "w", 600, 0, UNITS)
    assert leases.renew(worker, first, 600, 1, 2) is False
    leases.begin_reading(worker, first)
    kept_draws.keep(worker, first, 0, b"drawn")
    leases.hand_back(worker, first, 3, True)
    second = leases.claim(worker, job, 2, "w", 0.01, 0, UNITS)
    assert kept_draws.kept(worker, second) == [b"drawn"]
    time.sleep(0.05)
    assert [each for each, _ in leases.expire(roles["relay"], 3)] == [job]
    third = leases.claim(worker, job, 3, "w", 600, 0, UNITS)
    with worker.connect() as connection:
        event = from_json(
            connection.execute(select(tables.jobs.c.event).filter_by(id=job)).scalar_one()
        )
    assert leases.finish(worker, third, event, OUTPUT, None) == [OUTPUT]
    settlement.publish(worker, third, event, OUTPUT, "w")
    failing = leases.claim(worker, bench.submit(16), 1, "w", 600, 0, UNITS)
    settlement.fail(worker, failing, "failed", "it broke", "w")


# --- releases -----------------------------------------------------------------------------------

RELEASES = {
    "queue what nothing is reserved for": "UPDATE jobs SET state = 'queued' WHERE id = :waiting",
    "state what is to be reserved": "UPDATE jobs SET to_reserve = '{}' WHERE id = :waiting",
    "change what it is priced by": """UPDATE jobs SET terms = terms || '{"public_size": 9}' """
    "WHERE id = :waiting",
    "expire it": "UPDATE jobs SET state = 'expired' WHERE id = :waiting",
    "add a part to it": "INSERT INTO parts (job_id, number, state, attempt) "
    "VALUES (:waiting, 0, 'queued', 1)",
}


def one_waits(engine: Engine) -> tuple[Bench, uuid.UUID]:
    """A job that waits for the release of a month that never comes."""
    shared = {"shared_epsilon": "9", "release_start": "9000-01", "release_months": 1}
    policy = {"auto_approve_epsilon": "10", "wait_for_release": True, **shared}
    bench = Bench(engine, policy=policy)
    bench.allow()
    bench.warm()
    return bench, bench.submit(10)


@pytest.fixture(scope="module")
def waiting(engine) -> tuple[Bench, uuid.UUID]:
    return one_waits(engine)


@pytest.mark.parametrize("act", RELEASES)
def test_a_stolen_relay_does_nothing_else_to_a_job_that_waits(roles, waiting, act):
    with roles["relay"].connect() as connection, pytest.raises(DBAPIError) as refused:
        connection.execute(text(RELEASES[act]), {"waiting": waiting[1]})
    assert re.search("permission denied|may not do this", str(refused.value.orig)), act


def test_a_stolen_relay_reserves_a_waiting_job_at_no_other_price(roles, waiting):
    bench, job = waiting
    with stolen(roles, {}, "relay") as connection, pytest.raises(DBAPIError, match="decided on"):
        _half(connection, {"bench": bench, "unseen": job})


def test_a_stolen_relay_reserves_no_job_that_waits_for_another_thing(roles, ground):
    with stolen(roles, ground, "relay") as connection:
        job = connection.execute(select(tables.jobs).filter_by(id=ground["unseen"])).one()
        locked = LockedAccount(connection, ground["bench"].dataset)
        with pytest.raises(DBAPIError, match="does not post RESERVE"):
            locked.append(EntryKind.RESERVE, ground["bench"].analyst.name, job.id, job.to_reserve)


def test_the_relay_admits_a_released_job_with_its_own_rights(roles, waiting):
    bench, job = waiting
    assert releases.admit(roles["relay"]) == 0
    with mock.patch("accountant.transactions.cap_usage.month_of", return_value=12 * 9000):
        assert releases.admit(roles["relay"]) == 1
    assert integrity.check(bench.engine, bench.dataset) == []
    claim = leases.claim(roles["worker"], job, 1, "w", 600, 0, UNITS)
    assert claim is not None


def test_the_relay_admits_what_was_approved_with_its_own_rights_and_names_no_other_approver(
    roles, engine
):
    bench, _ = one_waits(engine)
    shared = {"shared_epsilon": "9", "release_start": "9000-01", "release_months": 1}
    two = Policy(auto_approve_epsilon="0", wait_for_release=True, two_people=True, **shared)
    policies.set_policy(engine, bench.dataset, two, bench.steward)
    job = bench.submit(11)
    yes(engine, job, bench.steward, "worth it")
    with stolen(roles, {}, "relay") as connection:
        kept = connection.execute(select(tables.jobs).filter_by(id=job)).one().to_reserve
        other = {**kept, "approval": {**kept["approval"], "by": "another"}}
        locked = LockedAccount(connection, bench.dataset)
        with pytest.raises(DBAPIError, match="decided on"):
            locked.append(EntryKind.RESERVE, bench.analyst.name, job, other)
    with mock.patch("accountant.transactions.cap_usage.month_of", return_value=12 * 9000):
        assert releases.admit(roles["relay"]) == 2
    assert leases.claim(roles["worker"], job, 1, "w", 600, 0, UNITS) is not None


def test_the_relay_refuses_a_waiting_job_with_its_own_rights(roles, engine):
    bench, job = one_waits(engine)
    bench.allow(epsilon="0.01")
    with mock.patch("accountant.transactions.cap_usage.month_of", return_value=12 * 9000):
        assert releases.admit(roles["relay"]) == 1
    with bench.engine.connect() as connection:
        state = select(tables.jobs.c.state).filter_by(id=job)
        assert connection.execute(state).scalar_one() == "refused"


# --- looks at data ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def declared(engine) -> tuple[str, uuid.UUID]:
    """A dataset whose data waits for its check."""
    name = f"declared-{uuid.uuid4().hex[:8]}"
    raw = {
        "name": name,
        "uri": "/data/patients.csv",
        "unit_column": "patient",
        "max_records_per_unit": 2,
        "public_size": 100,
        "labels": ["a", "b"],
        "label_column": "label",
        "missing_units": "separate",
        "secret_patterns": ["[0-9]{9}"],
    }
    steward = person(engine, "steward")
    return name, datasets.add_dataset(engine, datasets.read_dataset(raw), steward)


def _registered(roles, declared, actor: str | None = None, **forged: dict[str, object]) -> None:
    """All that a check worker does once it has read the data, and facts of the entry forged.

    It leaves nothing behind.
    """
    name, version_id = declared
    with roles["checks"].connect() as connection, unjudged():
        versions = tables.dataset_versions
        ready = versions.update().where(versions.c.id == version_id)
        connection.execute(ready.values(state="ready", data=NO_FILES))
        version = connection.execute(select(versions).where(versions.c.id == version_id)).one()
        dataset = connection.execute(select(tables.datasets).filter_by(name=name)).one()
        body = register_body(dataset, version)
        for part, facts in forged.items():
            body[part] = {**body[part], **facts}
        users = select(tables.users.c.name).filter_by(id=version.created_by)
        by = actor or connection.execute(users).scalar_one()
        posting = connection.execution_options(ledger_writing=Writing(None))
        LockedAccount(posting, name).append(EntryKind.REGISTER, by, None, body)
        connection.rollback()


@pytest.mark.parametrize(
    ("part", "fact", "value"),
    [
        ("layout", "uri", "/data/staff.csv"),
        ("layout", "text_template", "{text} {diagnosis}"),
        ("layout", "label_column", None),
        ("layout", "group_column", "ward"),
        ("layout", "secret_column", "pin"),
        ("layout", "secrets", None),
        ("terms", "unit_column", None),
        ("terms", "unit_column", "visit"),
        ("terms", "neighbours", "replace-one"),
        ("terms", "max_records_per_unit", 9),
        ("terms", "public_size", 9),
        ("terms", "labels", ["a"]),
        ("terms", "groups", ["g"]),
        ("terms", "missing_units", "refuse"),
        ("terms", "unit_spelling", "merge"),
        ("data", "sha256", "1" * 64),
    ],
)
def test_a_check_worker_registers_what_was_declared_alone(roles, declared, part, fact, value):
    with pytest.raises(DBAPIError, match="it registers what a steward declared"):
        _registered(roles, declared, **{part: {fact: value}})


def test_a_check_worker_registers_in_the_name_of_who_declared_it(roles, declared, engine):
    with pytest.raises(DBAPIError, match="it registers what a steward declared"):
        _registered(roles, declared, actor=person(engine, "steward").name)
    _registered(roles, declared)  # what was declared may be registered


# --- looks at models ----------------------------------------------------------------------------


def test_a_check_worker_reserves_what_was_decided_and_no_more(roles, ground):
    """With the rights of a check worker: its look has come back, and nothing has changed
    meanwhile.
    """
    approval.probed(roles["checks"], ground["unseen"], {"template_tokens": 20}, None)
    with roles["web"].connect() as connection:
        job = connection.execute(select(tables.jobs).filter_by(id=ground["unseen"])).one()
    assert job.state == "queued"


def test_a_steward_decides_where_the_price_has_changed_since(roles, engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    job_id = bench.submit(10)
    bench.allow(delta="0.000001")
    approval.probed(roles["checks"], job_id, {"template_tokens": 20}, None)
    with engine.connect() as connection:
        job = connection.execute(select(tables.jobs).filter_by(id=job_id)).one()
    assert (job.state, job.decision_reason) == ("awaiting_approval", decision.CHANGED)


def test_after_all_tries_the_ledger_holds(ground):
    bench = ground["bench"]
    assert isinstance(bench, Bench)
    assert integrity.check(bench.engine, bench.dataset) == []
