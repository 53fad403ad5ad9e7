"""The migrations make the schema that accountant.tables states, and carry an older ledger over."""

import json
import uuid
from datetime import UTC, datetime

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from accountant import tables
from accountant.core import mechanisms
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, canonical
from accountant.core.ledger.replay import Replay
from accountant.core.privacy.price import Terms
from accountant.database import MIGRATIONS
from accountant.identities import credentials
from accountant.queries import datasets, integrity
from accountant.queries import entries as entry_queries
from accountant.schema.base import documents
from tests.support import Bench


@pytest.fixture
def alembic(owner_url, database_url) -> Config:
    config = Config(str(MIGRATIONS / "alembic.ini"))
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = owner_url
    config.attributes["application_url"] = database_url
    return config


def test_alembic_finds_nothing_to_add(alembic):
    command.check(alembic)


def test_checks_and_defaults_are_those_of_the_tables(owner):
    """Alembic compares no CHECK: the tables made anew, in a schema of their own, have the same ones."""
    constraints = text(
        "SELECT r.relname, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c "
        "JOIN pg_class r ON r.oid = c.conrelid JOIN pg_namespace n ON n.oid = r.relnamespace "
        "WHERE n.nspname = :schema AND c.contype = 'c' AND r.relname <> 'alembic_version' ORDER BY 1, 2"
    )
    columns = text(
        "SELECT table_name, column_name, data_type, is_nullable, column_default "
        "FROM information_schema.columns "
        "WHERE table_schema = :schema AND table_name <> 'alembic_version' ORDER BY 1, 2"
    )
    with owner.connect().execution_options(schema_translate_map={None: "plain"}) as connection:
        connection.execute(text("CREATE SCHEMA plain"))
        tables.metadata.create_all(connection)
        for query in (constraints, columns):
            made = connection.execute(query, {"schema": "plain"}).all()
            migrated = connection.execute(query, {"schema": "public"}).all()
            assert made == migrated
        connection.rollback()


def old_ledger(dataset: str):
    """(kind, job, document, hash) of entries as version 0001 wrote them: no step of delta."""
    mechanism, terms = mechanisms.get("private-prediction"), Terms(delta=1e-6, public_size=1000)
    parameters = mechanism.parse({"tokens_per_batch": 10}, terms)
    event = mechanism.price(parameters, terms).dp
    replay, head = Replay(), GENESIS

    def allowed(epsilon: str) -> dict:
        body = allow_body(replay.books.account, epsilon, "1e-6", "why")
        for each in body["filters"]:
            each.pop("step_delta", None)
        return body

    def reserved() -> dict:
        raw = parameters.model_dump(mode="json")
        return reserve_body(replay.books.account, mechanism.id, raw, terms, event, model=None, approval=None)

    failed, cancelled = str(uuid.uuid4()), str(uuid.uuid4())
    steps = [
        (EntryKind.ALLOW, None, lambda: allowed("3")),
        (EntryKind.ALLOW, None, lambda: allowed("5")),
        (EntryKind.RESERVE, failed, reserved),
        (EntryKind.COMMIT, failed, lambda: commit_body(replay.books.account, event, "failed", 1, None)),
        (EntryKind.RESERVE, cancelled, reserved),
        (EntryKind.VOID, cancelled, lambda: {"outcome": "cancelled", "reason": "x"}),
        (EntryKind.ALLOW, None, lambda: allowed("7.5")),
        (EntryKind.ALLOW, None, lambda: allowed("6")),
    ]
    for seq, (kind, job, body) in enumerate(steps, start=1):
        stated = body()
        replay.apply(kind, job, stated)
        entry = Entry(dataset, seq, kind, datetime(2026, 1, 1, tzinfo=UTC), "someone", job, stated, head)
        yield kind, job, canonical(entry.document()).decode(), head, entry.hash(), replay.books
        head = entry.hash()


def write_old(connection, dataset: str) -> None:
    """Put that ledger and its balances under a dataset, in the schema of 0001."""
    find = text("SELECT id FROM datasets WHERE name = :name")
    dataset_id = connection.execute(find, {"name": dataset}).scalar_one()
    add = text(
        "INSERT INTO entries VALUES "
        "(:dataset, :seq, :kind, now(), 'someone', :job, :document, :previous, :hash)"
    )
    connection.execute(text("ALTER TABLE entries DROP CONSTRAINT fk_entries_job_id"))  # no jobs here
    entries = list(old_ledger(dataset))
    for seq, (kind, job, document, previous, own, _) in enumerate(entries, start=1):
        row = {"dataset": dataset_id, "seq": seq, "kind": str(kind), "job": job, "document": document}
        connection.execute(add, {**row, "previous": previous, "hash": own})
    account = entries[-1][-1].account
    values = {"epsilon": account.epsilon, "delta": account.delta, "chain_seq": seq, "chain_head": own}
    for each in account.filters:
        kind = each.filter.kind
        values |= {f"{kind}_share": str(each.filter.share), f"{kind}_limit": each.limit.main}
        values |= {f"{kind}_order": each.filter.order and str(each.filter.order)}
        values |= {f"{kind}_spent": each.spent.main}
    values["basic_delta_limit"] = account.filters[-1].limit.delta
    sets = ", ".join(f"{name} = :{name}" for name in values)
    connection.execute(
        text(f"UPDATE accounts SET {sets} WHERE dataset_id = :id"), {**values, "id": dataset_id}
    )
    connection.execute(
        text(
            "ALTER TABLE entries ADD CONSTRAINT fk_entries_job_id "
            "FOREIGN KEY (job_id) REFERENCES jobs (id) NOT VALID"
        )
    )


def test_an_older_ledger_is_carried_over(alembic, owner, engine):
    bench = Bench(engine)
    engine.dispose()
    command.downgrade(alembic, "0001")
    with owner.begin() as connection:
        write_old(connection, bench.dataset)
    command.upgrade(alembic, "head")
    wrong = integrity.check(engine, bench.dataset)
    assert [each for each in wrong if "sums of spending" not in each] == []  # no jobs: nobody spent it
    facts = datasets.dataset(engine, bench.dataset, bench.steward)
    texts = {each["currency"]: each["text"] for each in facts["statements"]}
    for fact in ("(7.5, 0.000001)", "1 raise", "1 job failed"):
        assert fact in texts["dp"]
    written = documents(entry_queries.entries(engine, bench.dataset, bench.auditor))
    assert "step_delta" not in json.dumps(written)


def test_tokens_from_before_scopes_go_on_with_all_of_them(alembic, owner, engine):
    person, token = Bench(engine).steward, f"exq_{uuid.uuid4().hex}"
    engine.dispose()
    command.downgrade(alembic, "0011")
    add = text(
        "INSERT INTO api_tokens (id, user_id, name, token_sha256, expires_at) "
        "VALUES (gen_random_uuid(), :user, :name, sha256(:token), now() + interval '1 day')"
    )
    with owner.begin() as connection:
        for name, kept in (("session", token), ("nightly", f"{token}-nightly")):
            connection.execute(add, {"user": person.id, "name": name, "token": kept.encode()})
    command.upgrade(alembic, "head")
    found = credentials.user_of_token(engine, token)
    assert found.name == person.name
    assert tuple(found.scopes) == credentials.SCOPES
    assert found.by_sign_in  # it ends with the sessions
    assert not credentials.user_of_token(engine, f"{token}-nightly").by_sign_in


def test_a_downgrade_widens_no_token(alembic, owner, engine):
    person = Bench(engine).steward
    narrow = credentials.add_token(engine, person.id, "narrow", None, scopes=["read"])
    wide = credentials.add_token(engine, person.id, "wide", None)
    engine.dispose()
    command.downgrade(alembic, "0011")
    command.upgrade(alembic, "head")
    assert credentials.user_of_token(engine, narrow) is None
    assert credentials.user_of_token(engine, wide) is not None


def test_a_connection_that_the_server_closed_while_idle_is_replaced(engine, owner, monkeypatch):
    from accountant import database

    monkeypatch.setattr(database, "IDLE_SECONDS", 0.0)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with owner.connect() as connection:
        own = connection.execute(text("SELECT current_database()")).scalar_one()
    admin = create_engine(owner.url.set(username="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"{kill} AND datname = :own"), {"own": own})
    admin.dispose()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
