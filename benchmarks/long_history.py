"""A service that has run for a year, for benchmarks: ledgers written by the ledger's own writer, so
that they verify, and the people, files, lists and logs around them.

    make(ground, Size())        then       things(ground) names one of each for addresses

A job has a reservation and what settles it, so that a million entries are half a million jobs. Of
every ten jobs eight are charged and succeed, one fails and is charged, one is cancelled and void;
one request in twenty is refused. The first dataset has most of them; one mechanism and one analyst
occur in its first days alone.
"""

import hashlib
import json
import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Engine, Table, create_engine, text

from accountant import tables
from accountant.catalogue import corpora, datasets, models
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.caps import counted
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.entry_bodies import commit_body
from accountant.core.ledger.entry_forms import EntryForm
from accountant.core.ledger.hash_chain import SALT_BYTES, EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import Reservation, read_reservation
from accountant.database import logging_to
from accountant.identities import credentials, people
from accountant.identities.actor import Actor
from accountant.ledger_log.lines import Logged
from accountant.queries import exports, quotes
from accountant.settings import Settings
from accountant.tables.accounts_row import book_columns
from accountant.transactions import (
    allowances,
    answers,
    approval,
    locked_account,
    offers,
    policies,
    spending_sums,
    submission,
)
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import log_of, writing
from accountant.transactions.locked_account import LockedAccount, as_json, insert
from accountant.transactions.settlement import UNSAID
from benchmarks.admission import Ground, found_right, superuser_url
from web.api.jobs import ORDER as JOBS
from web.api.ledgers import ACTIVITY, ENTRIES
from web.api.paging import encoded

YEAR = timedelta(days=365)
LIVE = 40  # jobs that are queued or run at any time
TIGHT = "tight"  # a dataset whose allowance is nearly used


@dataclass(frozen=True)
class Size:
    """The sizes of the history; `listed` is the number of rows of each short list, from people to
    uploads.
    """

    entries: int = 1_000_000
    listed: int = 60
    logged: int = 100_000  # sign-ins and as many acts


@dataclass
class Shape:
    """A kind of job: its row as admission wrote it, and the bodies of its entries."""

    job: dict[str, Any]
    reserve: dict[str, Any]
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)


# --- all of it ----------------------------------------------------------------------------------


def before_the_history() -> Any:
    """Return a block in which the database's clock dates entries before the first of `make`."""
    clock, then = "clock_timestamp()", "clock_timestamp() - interval '366 days'"
    locks = ("_LOCK_BY_ID", "_LOCK_BY_NAME")
    earlier = {name: getattr(locked_account, name).replace(clock, then) for name in locks}
    return mock.patch.multiple(locked_account, **earlier)


def make(ground: Ground, size: Size, say: Any = print) -> None:
    """Fill a new ground. Needs four datasets of it."""
    random.seed(1)
    analysts = [
        ground.analyst,
        *(person_named(ground.engine, f"analyst-{n}") for n in range(1, 20)),
    ]
    shapes = [shape(ground, mechanism, parameters) for mechanism, parameters in KINDS]
    refused = refusal_of(ground)
    parts = {ground.datasets[0]: 0.8, ground.datasets[1]: 0.1, ground.datasets[2]: 0.1}
    for name, part in parts.items():
        write_jobs(ground, name, round(part * size.entries), shapes, analysts)
        write_refused(ground, name, max(5, round(part * size.entries / 40)), refused, analysts)
        say(f"{name}: {round(part * size.entries):,} entries written")
    write_lists(ground, size)
    write_logs(ground, size)
    while spending_sums.roll(ground.engine):
        pass
    with create_engine(ground.owner_url).connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


def person_named(engine: Engine, name: str, role: str = "analyst") -> Actor:
    user = credentials.find_user(engine, user_id=credentials.add_user(engine, name, None, [role]))
    return credentials.actor_of(user)  # type: ignore[arg-type]


# --- jobs and their entries ---------------------------------------------------------------------

TEXTS = "".join(
    json.dumps({"text": f"text {number} " + 30 * "words "}) + "\n" for number in range(200)
).encode()
SHA256 = hashlib.sha256(TEXTS).hexdigest()
#: Of each job of the first kind that succeeded.
ARTIFACT = {"name": "votes.json", "kind": "votes", "sha256": SHA256}
QUEUED = "cancelled in the queue"
RARE = "invisible-ink"
KINDS = [
    *(
        ("private-prediction", {"tokens_per_batch": n, "temperature": 100.0, "clip": 0.1})
        for n in range(1, 11)
    ),
    ("noisy-count", {"epsilon": 0.001}),
    (RARE, {}),
]


def shape(ground: Ground, mechanism: str, parameters: dict[str, Any]) -> Shape:
    """Ask the service for one such job, on the last dataset, and keep what it wrote."""
    model = ground.model if mechanism != "noisy-count" else None
    dataset = ground.datasets[-1]
    asked = JobRequest(dataset, mechanism, model, parameters, "benchmark")
    job_id = submission.submit(ground.engine, asked, ground.analyst, None)
    approval.probed(ground.engine, job_id, {"template_tokens": 20}, None)
    with ground.engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": job_id}).one()
        stored = connection.execute(
            text("SELECT document FROM entries WHERE job_id = :id"), {"id": job_id}
        )
        reserve = opened(json.loads(stored.scalar_one()))["body"]
        locked = LockedAccount(connection, dataset)
        event, account = read_reservation(reserve).event, locked.accounts.dp
    made = Shape(
        {name: value for name, value in row._mapping.items() if value is not None}, reserve
    )
    artifacts = [ARTIFACT] if parameters == KINDS[0][1] else []
    made.bodies["succeeded"] = commit_body(
        account, event, "succeeded", 1, SHA256, artifacts=artifacts
    )
    made.bodies["failed"] = commit_body(account, event, "failed", 1, None)
    made.bodies["cancelled"] = {"outcome": "cancelled", "reason": QUEUED, "read": False}
    return made


def plan(count: int, shapes: list[Shape], analysts: list[Actor]) -> Iterator[tuple[Shape, Actor]]:
    """The jobs of a dataset: a few of the rare mechanism, and the last analyst's, among the first
    alone.
    """
    for number in range(count):
        early = number < count / 50
        if early and number % 40 == 5:
            yield shapes[-1], analysts[0]
        else:
            usual = analysts if early else analysts[:-1]
            yield shapes[number % 10 if number % 17 else 10], usual[number % len(usual)]


_VERSION = (
    "SELECT v.id FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_id WHERE "
    "d.name = :name"
)


def write_jobs(
    ground: Ground, name: str, entries: int, shapes: list[Shape], analysts: list[Actor]
) -> None:
    """`entries` entries of half as many jobs, over a year that ends now."""
    jobs = entries // 2 + LIVE // 2
    ids = [UUID(int=random.getrandbits(128), version=4) for _ in range(jobs)]
    planned = list(plan(jobs, shapes, analysts))
    began, step = datetime.now(UTC) - YEAR, YEAR / (jobs + 1)
    used: dict[tuple[str, str], list[int]] = {}
    # of the tables: guards let nobody else write what is long past
    log = log_of(ground.engine)
    owner = logging_to(create_engine(ground.owner_url), log.folder if log else None)
    with owner.connect() as connection:
        version = one(connection, _VERSION, name=name)
    lag = min(LIVE, jobs // 2)
    chain: Chain | None = None
    # an entry is judged by those that are written: each statement settles what the last reserved
    for first in range(0, jobs, lag):
        with writing(owner) as connection:
            ledger = chain or LockedAccount(connection, name)
            rows: list[dict[str, Any]] = []
            for number in range(first, min(jobs, first + lag)):
                ledger.now = began + number * step
                each, analyst = planned[number]
                ledger.post(EntryKind.RESERVE, analyst.name, ids[number], each.reserve)
                settled = number + lag < jobs
                state = outcome(number) if settled else "queued"
                rows.append(
                    job_row(each, ids[number], ledger, analyst, version, number, state, step)
                )
                count_use(used, rows[-1], settled, state)
                if number >= lag:
                    settle(ledger, number - lag, planned[number - lag][0], ids[number - lag])
            ledger.write([(tables.jobs, rows)])
        if isinstance(ledger, LockedAccount) and first >= JUDGED * lag:
            chain = Chain(
                ground,
                ledger,
                {job: each.reserve for job, (each, _) in zip(ids, planned, strict=True)},
            )
    if chain is not None:
        chain.flush()
    owner.dispose()
    write_use(ground, name, used)


#: Rounds of jobs that the ledger's own writer judges: every kind of entry is among them.
JUDGED = 2
#: Rows of entries that are written at once.
AT_ONCE = 4_000


class Chain:
    """A ledger that goes on in bulk: entries like those that the ledger's own writer judged before.

    They are written past the guards of the tables, which would look at each of them again.
    """

    def __init__(
        self, ground: Ground, ledger: LockedAccount, reserves: Mapping[UUID, dict[str, Any]]
    ) -> None:
        self.dataset, self.dataset_id, self.now = ledger.dataset, ledger.dataset_id, ledger.now
        self.seq, self.head, self.books = ledger.seq, ledger.head, ledger.books
        self._ground, self._reserves = ground, reserves
        self._jobs: list[dict[str, Any]] = []
        self._entries: list[dict[str, Any]] = []
        self._standings: list[dict[str, Any]] = []
        self._forms: dict[tuple[EntryKind, str, int], EntryForm] = {}
        self._held: dict[int, Reservation] = {}
        row = "SELECT row_to_json(a) FROM accounts a WHERE dataset_id = :dataset"
        with ground.engine.connect() as connection:
            self._row = one(connection, row, dataset=ledger.dataset_id)

    def post(self, kind: EntryKind, actor: str, job_id: UUID, body: dict[str, Any]) -> None:
        """Apply the next entry, for `write`."""
        key = kind, actor, id(body)
        if key not in self._forms:
            self._forms[key] = EntryForm(self.dataset, kind, actor, body)
        reserve = self._reserves[job_id]
        if id(reserve) not in self._held:
            self._held[id(reserve)] = read_reservation(reserve)
        self.books = self.books.apply(kind, str(job_id), body, self._held[id(reserve)])
        self.seq += 1
        salt = secrets.token_bytes(SALT_BYTES)
        text, recorded = self._forms[key].write(self.seq, self.now, str(job_id), self.head, salt)
        place = {"dataset_id": self.dataset_id, "job_id": job_id, "previous": self.head}
        row = {"seq": self.seq, "kind": str(kind), "at": self.now, "actor": actor, **place}
        self._entries.append({**row, "document": text, "hash": recorded})
        self.head = recorded
        if self.seq % 256 == 0:  # as a trigger of accounts does
            standing = {"dataset_id": self.dataset_id, "seq": self.seq}
            self._standings.append({**standing, "account": self._account()})

    def _account(self) -> dict[str, Any]:
        head = {"chain_seq": self.seq, "chain_head": self.head}
        return {**self._row, **head, **book_columns(self.books)}

    def write(self, besides: Sequence[tuple[Table, Sequence[dict[str, Any]]]]) -> None:
        """Write what was posted and the rows of its jobs, once they are many."""
        self._jobs += [row for _, rows in besides for row in rows]
        if len(self._entries) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write it, the balances, and the log outside the database."""
        columns = dict.fromkeys(name for row in self._jobs for name in row)
        taken = text("SELECT COALESCE(max(place), 0) FROM jobs WHERE dataset_id = :dataset")
        with self._ground.engine.connect() as connection:
            last = connection.execute(taken, {"dataset": self.dataset_id}).scalar_one()
        jobs = [
            {name: row.get(name) for name in columns} | {"place": place}
            for place, row in enumerate(self._jobs, last + 1)
        ]
        rows = {"jobs": jobs, "entries": self._entries, "standings": self._standings}
        past_guards(self._ground, rows, self._account())
        tell_log(self._ground, self.dataset, self._entries)
        self._jobs, self._entries, self._standings = [], [], []


def past_guards(
    ground: Ground,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    account: Mapping[str, Any] | None = None,
) -> None:
    """Insert rows of tables, and set an account's row, as the server's superuser."""
    with psycopg.connect(superuser_url(ground)) as server:
        server.execute("SET session_replication_role = replica")
        server.execute("SET synchronous_commit = off")
        for table, several in rows.items():
            if several:
                server.execute(insert(table, tuple(several[0])), (as_json(several),))
        if account is not None:
            listed = ", ".join(account)
            row = f"SELECT {listed} FROM json_populate_record(NULL::accounts, %s::json)"
            server.execute(
                f"UPDATE accounts SET ({listed}) = ({row}) WHERE dataset_id = %s",
                (as_json(account), account["dataset_id"]),
            )


def tell_log(ground: Ground, dataset: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Append entries to the log outside the database, if there is one."""
    log = log_of(ground.engine)
    if log is not None:
        told = [Logged(each["seq"], each["previous"], each["hash"], each["document"])
                for each in entries]  # fmt: skip
        assert log.append([(dataset, told)]) == [None]


def settle(ledger: LockedAccount | Chain, number: int, each: Shape, job_id: UUID) -> None:
    state = outcome(number)
    kind = EntryKind.VOID if state == "cancelled" else EntryKind.COMMIT
    ledger.post(kind, f"worker-{number % 4}", job_id, each.bodies[state])


def outcome(number: int) -> str:
    return {3: "failed", 7: "cancelled"}.get(number % 10, "succeeded")


def job_row(
    each: Shape,
    job_id: UUID,
    ledger: LockedAccount | Chain,
    analyst: Actor,
    version: UUID,
    number: int,
    state: str,
    step: timedelta,
) -> dict[str, Any]:
    ended = state != "queued"
    row = {
        **each.job,
        "id": job_id,
        "dataset_id": ledger.dataset_id,
        "version_id": version,
        "model_id": each.job.get("model_id"),
        "analyst_id": analyst.id,
        "project": f"project-{number % 30}",
        "state": state,
        "created_at": ledger.now,
        "queued_at": ledger.now,
        "started_at": ledger.now if state in ("succeeded", "failed") else None,
        "reading_began_at": ledger.now if state in ("succeeded", "failed") else None,
        "finished_at": ledger.now + LIVE * step if ended else None,
        "decided_by": None,
        "decided_at": None,
        "decision_reason": None,
        "output_sha256": SHA256 if state == "succeeded" else None,
        "failure": {"failed": UNSAID, "cancelled": QUEUED}.get(state),
        "refusal": None,
        "attempt": int(ended),
        "cancel_requested": state == "cancelled",
    }
    row.pop("idempotency_key", None)
    return row


def count_use(
    used: dict[tuple[str, str], list[int]], row: dict[str, Any], settled: bool, state: str
) -> None:
    amount = counted(row.get("epsilon_alone"))
    for holder in (("analyst", str(row["analyst_id"])), ("project", row["project"])):
        sums = used.setdefault(holder, [0, 0])
        sums[0] += amount if settled and state != "cancelled" else 0
        sums[1] += 0 if settled else amount


def write_use(ground: Ground, name: str, used: dict[tuple[str, str], list[int]]) -> None:
    """Write each person's and project's use of a dataset, as the ledger keeps it."""
    statement = text(
        "INSERT INTO usage (dataset_id, kind, holder, spent, reserved) "
        "SELECT id, :kind, :holder, :spent, :reserved FROM datasets WHERE name = :name "
        "ON CONFLICT (dataset_id, kind, holder) DO UPDATE SET spent = usage.spent + "
        "excluded.spent, "
        "reserved = usage.reserved + excluded.reserved"
    )
    rows = [
        {"name": name, "kind": kind, "holder": holder, "spent": spent, "reserved": reserved}
        for (kind, holder), (spent, reserved) in used.items()
    ]
    with ground.engine.begin() as connection:
        connection.execute(statement, rows)


def refusal_of(ground: Ground) -> UUID:
    """A request that does not fit, refused by the service."""
    request = ground.request(ground.datasets[3], 0)
    request.parameters.update(tokens_per_batch=10**4, clip=1_000.0, temperature=0.001)
    return submission.submit(ground.engine, request, ground.analyst, None)


def write_refused(
    ground: Ground, name: str, count: int, model: UUID, analysts: list[Actor]
) -> None:
    """Refused requests like `model`, half of them refused by a steward."""
    columns = [each.name for each in tables.jobs.columns]
    new = {
        "id": "gen_random_uuid()",
        "dataset_id": "d.id",
        "version_id": "v.id",
        "analyst_id": "(:people)[1 + n % :many]",
        "created_at": "now() - (:count - n) * (interval '1 year' / :count)",
        "finished_at": "now() - (:count - n) * (interval '1 year' / :count)",
        "decided_at": "CASE WHEN n % 2 = 0 THEN now() - (:count - n) * (interval '1 year' / "
        ":count) END",
        "decided_by": "CASE WHEN n % 2 = 0 THEN cast(:steward AS uuid) END",
        "decision_reason": "CASE WHEN n % 2 = 0 THEN 'not this quarter' END",
        "refusal": 'CASE WHEN n % 2 = 0 THEN j.refusal || \'{"cap": "steward"}\' ELSE j.refusal '
        "END",
    }
    taken = ", ".join(new.get(each, f"j.{each}") for each in columns)
    statement = text(
        f"INSERT INTO jobs ({', '.join(columns)}) SELECT {taken} FROM jobs j, "
        "generate_series(1, :count) AS n, datasets d "
        "JOIN dataset_versions v ON v.dataset_id = d.id WHERE j.id = :job AND d.name = :name"
    )
    values = {"count": count, "job": model, "name": name, "steward": ground.steward.id}
    with ground.engine.begin() as connection:
        connection.execute(
            statement, {**values, "people": [a.id for a in analysts], "many": len(analysts)}
        )


# --- what is around them ------------------------------------------------------------------------


def one(connection: Any, statement: str, **values: Any) -> Any:
    return connection.execute(text(statement), values).scalar_one()


def write_lists(ground: Ground, size: Size) -> None:
    """`size.listed` of each: datasets, people, tokens, models, corpora, requests that wait,
    decisions, checkpoints, messages of notices, artifacts, uploads.
    """
    engine, steward, many = ground.engine, ground.steward, size.listed
    second = person_named(engine, "second-steward", "steward")
    seed = Settings(home=ground.home / "web").secret("checkpoint")
    for number in range(many):
        name = f"more-{number:03}"
        spec = {
            "name": name,
            "uri": f"/{name}.csv",
            "public_size": 1000,
            "description": "a small dataset",
        }
        found_right(engine, datasets.add_dataset(engine, datasets.read_dataset(spec), steward))
        allowances.allow(engine, name, Allowance("8", "0.000001", "benchmark"), steward)
        models.add_model(engine, f"model-{number:03}", "/nowhere", "public text", steward)
        corpus = {
            "name": f"corpus-{number:03}",
            "uri": f"/nowhere-{number}.csv",
            "statement": "made up",
        }
        corpora.add(engine, corpora.CorpusSpec.model_validate(corpus), steward)
        person_named(engine, f"person-{number:03}")
        people.make_token(engine, ground.analyst, f"token {number}", ["read"], 30)
        exports.checkpoint(engine, dataset_id(ground, name), seed)
        policies.set_policy(engine, name, Policy(two_people=True), second)
        allowances.allow(engine, name, Allowance("9", "0.000001", "benchmark"), second)
    write_waiting(ground, many)
    hook_id = uuid4()
    with create_engine(ground.owner_url).begin() as connection:
        for statement in SMALL:
            connection.execute(
                text(statement),
                {"many": many, "hook": hook_id, "analyst": ground.analyst.id, "steward": steward.id,
                 "file": ARTIFACT["name"], "kind": ARTIFACT["kind"], "sha256": SHA256},
            )  # fmt: skip


#: Rows that no function makes without a worker or a file.
SMALL = (
    "INSERT INTO uploads (sha256, address, format, bytes, uncompressed_bytes, columns, "
    "uploaded_by) "
    "SELECT repeat(md5(n::text), 2), '/nowhere', 'csv', 100, 100, '[\"text\"]', :steward "
    "FROM generate_series(1, :many) AS n",
    "INSERT INTO hooks (id, owner_id, kind, url, events) "
    "VALUES (:hook, :analyst, 'json', 'https://receiver.example/', '{job.failed}')",
    "INSERT INTO hook_deliveries (id, hook_id, event, analyst_id, facts) "
    "SELECT gen_random_uuid(), :hook, 'job.failed', :analyst, '{}' "
    "FROM generate_series(1, 100 * :many) AS n",
    "INSERT INTO artifacts (job_id, name, kind, media_type, sha256, size, created_at) "
    "SELECT id, :file, :kind, 'application/json', :sha256, 100, created_at FROM jobs "
    "WHERE state = 'succeeded' AND parameters->>'tokens_per_batch' = '1'",
    "INSERT INTO parts (job_id, number, state, attempt, progress_done, progress_total) "
    "SELECT id, 0, CASE WHEN state = 'queued' THEN 'queued' ELSE 'stopped' END, 1, 0, 10 FROM jobs "
    "WHERE purpose = 'benchmark' AND state IN ('queued', 'succeeded', 'failed') "
    "ON CONFLICT DO NOTHING",
)


def dataset_id(ground: Ground, name: str) -> UUID:
    with ground.engine.connect() as connection:
        return UUID(str(one(connection, "SELECT id FROM datasets WHERE name = :name", name=name)))


#: Of jobs that a small allowance holds some hundred tokens of.
DEAR = {"temperature": 10.0, "clip": 1.0}


def write_waiting(ground: Ground, many: int) -> None:
    """Requests that wait, half of them beyond what is left by now; and offers that nobody
    answered.
    """
    spec = datasets.read_dataset({"name": TIGHT, "uri": "/tight.csv", "public_size": 1000})
    found_right(ground.engine, datasets.add_dataset(ground.engine, spec, ground.steward))
    allowances.allow(ground.engine, TIGHT, Allowance("1", "0.000001", "benchmark"), ground.steward)
    policies.set_policy(ground.engine, ground.datasets[2], Policy(), ground.steward)

    def ask(dataset: str, tokens: int) -> UUID:
        parameters = {"tokens_per_batch": tokens, **DEAR}
        request = JobRequest(
            dataset, "private-prediction", ground.model, parameters, "for the autumn report"
        )
        return submission.submit(ground.engine, request, ground.analyst, None)

    raw = {"tokens_per_batch": 1, **DEAR}
    whole = quotes.quote_on(
        ground.engine, TIGHT, "private-prediction", raw, fit_field="tokens_per_batch"
    )
    most = int(whole.fit.value)
    for number in range(many - many // 2):
        ask(TIGHT, max(1, most * (50 + number) // (50 + many)))
        ask(ground.datasets[2], 1 + number)
    offered = [ask(ground.datasets[2], 10 + number) for number in range(many)]
    for job in offered:
        offers.offer(
            ground.engine, job, {"tokens_per_batch": 2}, ground.steward, "smaller would do"
        )
    first = ask(TIGHT, max(1, most * 8 // 10))
    answers.answer(ground.engine, first, ground.steward, True, "first of these")


def write_logs(ground: Ground, size: Size) -> None:
    """Acts and sign-ins over the year; `steward` and `analyst` are among those who did."""
    since = "now() - (:count - n) * (interval '1 year' / :count)"
    activity = (
        "INSERT INTO activity (at, actor_id, actor_name, action, object_kind, object_id, detail) "
        f"SELECT {since}, :steward, CASE WHEN n % 5 = 0 THEN 'steward' ELSE 'somebody-' || n % 50 "
        "END, "
        "(ARRAY['policy set', 'ledger exported', 'output downloaded', 'roles set'])[1 + n % 4], "
        "(ARRAY['dataset', 'dataset', 'job', 'account'])[1 + n % 4], "
        "(ARRAY['data-0', 'data-1', gen_random_uuid()::text, 'analyst'])[1 + n % 4], "
        '\'{"form": "jsonl"}\' '
        "FROM generate_series(1, :count) AS n"
    )
    sign_ins = (
        "INSERT INTO sign_ins (at, name, user_id, method, address, user_agent, outcome) "
        f"SELECT {since}, CASE WHEN n % 5 = 0 THEN 'analyst' ELSE 'somebody-' || n % 50 END, NULL, "
        "'page', "
        "'192.0.2.1', 'a browser', CASE WHEN n % 7 = 0 THEN 'wrong password' ELSE 'signed in' END "
        "FROM generate_series(1, :count) AS n"
    )
    with create_engine(ground.owner_url).begin() as connection:
        for statement in (activity, sign_ins):
            connection.execute(
                text(statement), {"count": size.logged, "steward": ground.steward.id}
            )


# --- one of each, for addresses -----------------------------------------------------------------

_MOMENT = "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"
_DEEP = "FROM jobs WHERE state = 'succeeded' ORDER BY created_at OFFSET 40 LIMIT 1"
_DONE = (
    "SELECT j.id FROM jobs j JOIN datasets d ON d.id = j.dataset_id WHERE d.name = 'data-0' AND "
    "j.state = 'succeeded' AND j.analyst_id = :analyst ORDER BY j.created_at LIMIT 1"
)
_ONE = {
    "job": _DONE,
    "other": f"{_DONE} OFFSET 1",
    "moment": f"SELECT replace({_MOMENT}, '+', '%2B') {_DEEP}",
    "old": "SELECT to_char(min(created_at) + interval '5 days', 'YYYY-MM-DD') FROM jobs "
    "WHERE purpose = 'benchmark' AND state = 'cancelled'",
    "middle": "SELECT chain_seq / 2 FROM accounts a JOIN datasets d ON d.id = a.dataset_id "
    "WHERE d.name = 'data-0'",
    "sha256": "SELECT a.sha256 FROM artifacts a JOIN jobs j ON j.id = a.job_id "
    "WHERE j.analyst_id = :analyst LIMIT 1",
    "upload": "SELECT sha256 FROM uploads LIMIT 1",
    "decision": "SELECT id FROM decisions WHERE kind = 'offer' LIMIT 1",
    "hook": "SELECT id FROM hooks LIMIT 1",
    "reference": "SELECT d.name || ':' || c.seq || ':' || c.key_id FROM checkpoints c JOIN "
    "datasets d "
    "ON d.id = c.dataset_id LIMIT 1",
}
#: Places deep in a list.
_PLACES = {
    "jobs_cursor": (JOBS, f"SELECT {_MOMENT}, id::text {_DEEP}"),
    "acts_cursor": (ACTIVITY, f"SELECT {_MOMENT}, 0, id::text {_DEEP}"),
    "entries_cursor": (
        ENTRIES,
        "SELECT d.name, chain_seq / 2 FROM accounts a JOIN datasets d ON d.id = a.dataset_id "
        "WHERE d.name = 'data-0'",
    ),
}


def things(ground: Ground) -> dict[str, str]:
    """One of each thing that addresses name; what its job published is a real file of 200 texts."""
    with ground.engine.connect() as connection:
        found = {
            name: str(one(connection, statement, analyst=ground.analyst.id))
            for name, statement in _ONE.items()
        }
        for name, (order, statement) in _PLACES.items():
            found[name] = encoded(order, list(connection.execute(text(statement)).one()))
    publish(ground)
    return {**found, "dataset": ground.datasets[0], "model": ground.model, "person": "analyst",
            "rare": RARE, "early": "analyst-19"}  # fmt: skip


def publish(ground: Ground) -> None:
    """Put the texts that the entries name into the results folder."""
    results = Path(Settings(home=ground.home / "web").results)
    results.mkdir(parents=True, exist_ok=True)
    (results / SHA256).write_bytes(TEXTS)
