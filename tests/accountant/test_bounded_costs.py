"""No entry charges less than nothing, more than was reserved, or what is no number.

A stolen process posts an entry with a true hash, and with the balances that PostgreSQL would
compute from it. The database bounds what the entry charges. `verify` computes the rest again.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DBAPIError

from accountant import tables
from accountant.core.errors import VerificationFailed
from accountant.core.ledger import entry_bodies, reversals
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.ledger.export_formats import read_document, verify_lines
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.reservations import read_reservation
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.events import FREE, Laplace, SelfComposed, from_json
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.database import connect
from accountant.queries import entries, integrity
from accountant.rights import Process
from accountant.tables.accounts_row import book_columns
from accountant.transactions import allowances, leases, locked_account, settlement
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import Claim, fenced, show
from accountant.transactions.settlement import Output
from tests.conftest import as_process
from tests.support import Bench, yes

pytestmark = pytest.mark.slow

Body = dict[str, Any]
#: The value of a balance instead of the honest one, from the balance before the entry.
Moved = Mapping[str, Callable[[int], object]]

DELTA = "0.0000029053"
PIN = SecretTerms(1e-4, 0.02, 1, 1.0, Without.REMOVED)
OUTPUT = Output("x", "0" * 64)


@pytest.fixture
def roles(owner_url) -> Iterator[dict[Process, Engine]]:
    """The credentials of a worker and of the web."""
    engines: dict[Process, Engine] = {
        process: connect(as_process(owner_url, process), pool_size=1)
        for process in ("worker", "web")
    }
    yield engines
    for engine in engines.values():
        engine.dispose()


@pytest.fixture
def worker(roles) -> Engine:
    return roles["worker"]


@pytest.fixture
def held(engine, worker) -> tuple[Bench, Claim]:
    """A dataset with budget spent on filters and secrets, and a claim on a job of it that has
    read.
    """
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    allowed = Allowance("10", DELTA, "x", secret=SecretDeclaration(PIN, SecretKind.MANY))
    allowances.allow(engine, bench.dataset, allowed, bench.steward)
    bench.warm()
    spent, running = (
        leases.claim(worker, bench.submit(tokens), 1, "w", 600) for tokens in (11, 12)
    )
    assert spent is not None
    assert running is not None
    leases.begin_reading(worker, spent)
    settlement.fail(worker, spent, "failed", "it broke", "w")
    leases.begin_reading(worker, running)
    return bench, running


def post(
    locked: LockedAccount, kind: EntryKind, job: UUID, body: Body, forged: Body, moved: Moved
) -> None:
    """Post `forged` with the balances of `body`, except for those that `moved` gives."""
    held = None if kind is EntryKind.RESERVE else read_reservation(locked.reservation(job))
    before, honest = locked.books, reversals.apply(locked.books, kind, str(job), body, held)
    stood = book_columns(before)
    after = book_columns(honest) | {
        name: str(change(int(stood[name]))) for name, change in moved.items()
    }
    with (
        mock.patch.object(locked_account, "judge", return_value=held),
        mock.patch.object(reversals, "apply", return_value=honest),
        mock.patch.object(locked_account, "book_columns", return_value=after),
    ):
        locked.append(kind, "me", job, forged)


def committed(locked: LockedAccount, job: UUID) -> Body:
    """The body of the COMMIT of all that the job reserved."""
    held = read_reservation(locked.reservation(job))
    others = entry_bodies.settled_part(locked.accounts, held, held.event)
    return entry_bodies.commit_body(
        locked.accounts.dp, held.event, "succeeded", 1, None, others=others, held=held.costs
    )


def commit(worker: Engine, claim: Claim, forge: Callable[[Body], object], moved: Moved) -> None:
    """Post a COMMIT that `forge` has changed, under the worker's own lease."""
    with writing(worker) as connection:
        show(connection, claim)
        locked, job = fenced(connection, claim)
        body = committed(locked, job.id)
        forged = copy.deepcopy(body)
        forge(forged)
        post(locked, EntryKind.COMMIT, job.id, body, forged, moved)


def cost(value: object, filter_: str = "renyi", part: str = "main") -> Callable[[Body], object]:
    return lambda body: body["costs"][filter_].update({part: value})


def costs(value: object) -> Callable[[Body], object]:
    return lambda body: body["costs"].update(renyi=value)


def secret(value: object) -> Callable[[Body], object]:
    return lambda body: body["secret"].update(cost=value)


def by(more: int, name: str = "renyi_spent") -> Moved:
    return {name: lambda before: before + more}


HONEST: Moved = {}
#: What a COMMIT says, and the balances that PostgreSQL would compute from it if nothing bounded a
#: cost.
FORGED: dict[str, tuple[Callable[[Body], object], Moved]] = {
    "a negative cost": (cost("-5"), by(-5)),
    "a negative delta": (cost("-1", "basic", "delta"), HONEST),
    "NaN": (cost("NaN"), HONEST),
    "infinity": (cost("Infinity"), HONEST),
    "minus infinity": (cost("-Infinity"), {"renyi_spent": lambda _: "-Infinity"}),
    "an exponent": (cost("1e1"), by(10)),
    "a number": (cost(10), by(10)),
    "more than was reserved": (cost("9" * 30), HONEST),
    "more than was reserved on another filter": (cost("9" * 30, "gaussian"), HONEST),
    "a cost without an amount": (costs({}), by(0)),
    "a cost that is a text": (costs("0"), by(0)),
    "a cost that is a list": (costs([]), by(0)),
    "a filter that does not exist": (
        lambda body: body["costs"].update(other={"main": "0", "delta": "0"}),
        HONEST,
    ),
    "no costs": (lambda body: body.pop("costs"), HONEST),
    "an ex-post cost of NaN": (lambda body: body.update(ex_post={"cap": "NaN"}), HONEST),
    "a negative secret cost": (secret("-5"), by(-5, "secret_spent")),
    "a secret cost of NaN": (secret("NaN"), HONEST),
    "a secret cost above the reserved one": (secret("9" * 30), HONEST),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_worker_charges_no_cost_that_is_out_of_bounds(worker, held, forged):
    with pytest.raises(DBAPIError):
        commit(worker, held[1], *FORGED[forged])
    assert integrity.check(held[0].engine, held[0].dataset) == []


def _median(bench: Bench, worker: Engine) -> Claim:
    """A claim on a job with an ex-post cost that has read."""
    job = bench.submit(1, aggregation="median", ex_post_cap=1.0)
    with bench.engine.connect() as connection:
        if (
            connection.execute(select(tables.jobs.c.state).filter_by(id=job)).scalar_one()
            == "submitted"
        ):
            bench.probe(job)
    yes(bench.engine, job, bench.steward, "it fits the study")
    claim = leases.claim(worker, job, 1, "w", 600)
    assert claim is not None
    leases.begin_reading(worker, claim)
    return claim


@pytest.mark.parametrize(
    ("cap", "moved"),
    [
        ("-5", lambda before: before - 5),
        ("NaN", lambda _: "NaN"),
        ("1e1", lambda before: before + 10),
        ("9" * 30, lambda before: before + int("9" * 30)),
    ],
)
def test_a_worker_pays_back_no_ex_post_cost(worker, engine, cap, moved):
    """The dataset settles realized costs: they depend on the data, so nothing computes them
    again.
    """
    bench = Bench(engine)
    allowed = Allowance("10", DELTA, "x", ex_post="5", ex_post_settlement="realized")
    allowances.allow(engine, bench.dataset, allowed, bench.steward)
    claim = _median(bench, worker)
    settlement.publish(worker, claim, FREE, OUTPUT, "w", ex_post=250_000_000)
    with pytest.raises(DBAPIError):
        commit(
            worker,
            _median(bench, worker),
            lambda body: body.update(ex_post={"cap": cap}),
            {"ex_post_spent": moved},
        )


@pytest.mark.parametrize(
    ("settlement_of_caps", "outcome", "cost", "told"),
    [
        ("planned", "succeeded", 10**9 - 1, "charged as it was reserved"),
        ("realized", "failed", 10**9 - 1, "charged whole"),
        ("realized", "succeeded", 10**11, "do not cost so much"),
        ("realized", "succeeded", None, "settles the ex-post part"),
    ],
)
def test_an_ex_post_cost_is_bounded(worker, engine, settlement_of_caps, outcome, cost, told):
    """A token of this job costs at most 4 * 6 / 1.5 ex post.."""
    bench = Bench(engine)
    allowed = Allowance("10", DELTA, "x", ex_post="5", ex_post_settlement=settlement_of_caps)
    allowances.allow(engine, bench.dataset, allowed, bench.steward)
    claim = _median(bench, worker)

    def forge(body: Body) -> None:
        body.update(outcome=outcome, ex_post={"cap": str(cost)})
        if cost is None:
            del body["ex_post"]

    charged = 10**9 if settlement_of_caps == "planned" or cost is None else cost
    with pytest.raises(DBAPIError, match=told):
        commit(worker, claim, forge, by(charged, "ex_post_spent"))
    if settlement_of_caps == "realized":
        with pytest.raises(VerificationFailed, match="cost so much"):
            settlement.publish(worker, claim, FREE, OUTPUT, "w", ex_post=17 * 10**9)
    settlement.publish(worker, claim, FREE, OUTPUT, "w", ex_post=16 * 10**9)
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_worker_may_state_a_lower_ex_post_cost_where_realized_ones_count(worker, engine):
    """What docs/powers.md says that a stolen worker can do: nobody else saw the logits."""
    bench = Bench(engine)
    allowed = Allowance("10", DELTA, "x", ex_post="5", ex_post_settlement="realized")
    allowances.allow(engine, bench.dataset, allowed, bench.steward)
    settlement.publish(worker, _median(bench, worker), FREE, OUTPUT, "w", ex_post=0)
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))


def test_a_void_states_no_costs(worker, held):
    bench = held[0]
    claim = leases.claim(worker, bench.submit(13), 1, "w", 600)
    assert claim is not None
    body = {"outcome": "failed", "reason": "x", "read": False}
    with writing(worker) as connection:
        show(connection, claim)
        locked, job = fenced(connection, claim)
        with pytest.raises(DBAPIError, match="no costs"):
            post(locked, EntryKind.VOID, job.id, body, {**body, "costs": {}}, HONEST)


def test_a_reservation_names_every_filter(roles, held):
    """A filter that is not named would hold nothing, and stay open."""
    bench = held[0]
    job = bench.submit(14, template="Another one: {record}")
    with writing(roles["web"]) as connection:
        locked = LockedAccount(connection, bench.dataset)
        body = _decided(connection, job)
        still: Moved = {
            f"{name}_reserved": lambda before: before for name in (*body["costs"], "basic_delta")
        }
        with pytest.raises(DBAPIError, match="every filter"):
            post(locked, EntryKind.RESERVE, job, body, {**body, "costs": {}}, still)


def _decided(connection: Connection, job: UUID) -> Body:
    """The body of the RESERVE that the web decided on."""
    body: Body = connection.execute(select(tables.jobs.c.to_reserve).filter_by(id=job)).scalar_one()
    return body


@pytest.mark.parametrize("value", ["0", "-5", "NaN"])
def test_a_correction_pays_back_nothing_of_a_job_that_read(roles, worker, held, value):
    bench, claim = held
    with worker.connect() as connection:
        event = connection.execute(
            select(tables.jobs.c.event).filter_by(id=claim.job_id)
        ).scalar_one()
    whole = from_json(event)
    assert isinstance(whole, SelfComposed)
    settlement.publish(worker, claim, SelfComposed(whole.event, 4), OUTPUT, "w")
    job = claim.job_id
    query = select(tables.entries.c.document).filter_by(job_id=job).order_by(tables.entries.c.seq)
    with writing(roles["web"]) as connection:
        locked = LockedAccount(connection, bench.dataset)
        reserve, charge = map(read_document, connection.execute(query).scalars())
        people = reversals.TwoPeople("one", "x", "two", "y")
        body = reversals.reversal_body(locked.accounts, reserve, charge, whole, 0, people)
        forged = copy.deepcopy(body)
        forged["costs"]["renyi"]["main"] = value
        paid = int(charge["body"]["costs"]["renyi"]["main"])
        moved: Moved = {
            "renyi_spent": lambda spent: value if value == "NaN" else spent - paid + int(value)
        }
        with pytest.raises(DBAPIError):
            post(locked, EntryKind.REVERSAL, job, body, forged, moved)


def test_a_correction_pays_back_nothing_in_another_currency(roles, worker, held, engine):
    secret, claim = held
    settlement.fail(worker, claim, "failed", "it broke", "w")
    _pays_back_nothing(roles["web"], secret, claim.job_id, "secret")
    bench = Bench(engine)
    allowed = Allowance("10", DELTA, "x", ex_post="5")
    allowances.allow(engine, bench.dataset, allowed, bench.steward)
    claim = _median(bench, worker)
    settlement.publish(worker, claim, FREE, OUTPUT, "w", ex_post=0)
    _pays_back_nothing(roles["web"], bench, claim.job_id, "ex_post")


def _pays_back_nothing(web: Engine, bench: Bench, job: UUID, currency: str) -> None:
    query = select(tables.entries.c.document).filter_by(job_id=job)
    with writing(web) as connection:
        locked = LockedAccount(connection, bench.dataset)
        documents = connection.execute(query.order_by(tables.entries.c.seq)).scalars()
        reserve, charge = map(read_document, documents)
        people = reversals.TwoPeople("one", "x", "two", "y")
        before = getattr(reversals.charge_of(reserve, charge), currency)
        more = SelfComposed(Laplace(1.0), 9)
        body = reversals.reversal_body(locked.accounts, reserve, charge, more, 0, people)
        forged = {**body, currency: str(before - 1)}
        moved = by(-1, f"{currency}_spent")
        with pytest.raises(DBAPIError, match="does not lower"):
            post(locked, EntryKind.REVERSAL, job, body, forged, moved)


def test_a_correction_reopens_no_filter(roles, worker, held):
    """The first one closes a filter, as a job does that it can't price."""
    bench, claim = held
    settlement.fail(worker, claim, "failed", "it broke", "w")
    query = select(tables.entries.c.document).filter_by(job_id=claim.job_id)
    people = reversals.TwoPeople("one", "x", "two", "y")

    def correct(tokens: int, renyi: object) -> None:
        with writing(roles["web"]) as connection:
            locked = LockedAccount(connection, bench.dataset)
            documents = connection.execute(query.order_by(tables.entries.c.seq)).scalars().all()
            reserve, charge = read_document(documents[0]), read_document(documents[-1])
            token = read_reservation(reserve["body"]).event.event
            event = SelfComposed(token, tokens)
            body = reversals.reversal_body(locked.accounts, reserve, charge, event, 0, people)
            before = charge["body"]["costs"]["renyi"]
            forged = copy.deepcopy(body)
            forged["costs"]["renyi"] = renyi
            change = int((renyi or before)["main"]) * (1 if renyi else -1)
            moved = by(change)
            post(locked, EntryKind.REVERSAL, claim.job_id, body, forged, moved)

    correct(13, None)
    with pytest.raises(DBAPIError, match="does not lower"):
        correct(14, {"main": "9" * 12, "delta": "0"})


# --- what only a calculation can see ------------------------------------------------------------


def test_a_cost_below_that_of_its_event_is_found(worker, held):
    """The database computes no price: `verify` and `ledger check` do."""
    bench, claim = held
    commit(worker, claim, cost("1"), by(1))
    (problem,) = integrity.check(bench.engine, bench.dataset)
    assert "its costs are not those of its event" in problem


def test_a_secret_cost_below_that_of_its_event_is_found(worker, held):
    bench, claim = held
    commit(worker, claim, secret("1"), by(1, "secret_spent"))
    (problem,) = integrity.check(bench.engine, bench.dataset)
    assert "its secret cost is not that of its event" in problem


def test_the_writer_posts_no_cost_below_that_of_its_event(worker, held):
    with writing(worker) as connection:
        show(connection, held[1])
        locked, job = fenced(connection, held[1])
        body = committed(locked, job.id)
        body["costs"]["renyi"]["main"] = "1"
        with pytest.raises(VerificationFailed, match="its costs are not those of its event"):
            locked.post(EntryKind.COMMIT, "w", job.id, body)
