"""A database with rows of an earlier revision is upgraded, and loses none of them."""

import json
import uuid
from collections.abc import Iterator

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, make_url, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import Gaussian, to_json
from accountant.database import MIGRATIONS, connect
from accountant.identities.actor import Actor
from accountant.queries import decisions
from accountant.settings import Settings
from accountant.transactions import key_checks
from tests.conftest import as_superuser, create

pytestmark = pytest.mark.slow

DATASET, JOB, REFUSED, MADE = (uuid.uuid4() for _ in range(4))
STEWARD, SECOND, ANALYST, ASKER = (uuid.uuid4() for _ in range(4))


@pytest.fixture
def old_url(servers) -> Iterator[str]:
    """A database of the first revision, without a row, as the owner of its tables."""
    name, owner = f"test_{uuid.uuid4().hex[:12]}", make_url(servers.owner_url)
    with as_superuser(servers) as admin:
        create(admin, name, owner.username)
    url = owner.set(database=name).render_as_string(hide_password=False)
    command.upgrade(config(url), "0100")
    yield url
    with as_superuser(servers) as admin:
        admin.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def old(old_url) -> Iterator[Engine]:
    engine = connect(old_url)
    yield engine
    engine.dispose()


def config(url: str) -> Config:
    found = Config(str(MIGRATIONS / "alembic.ini"))
    found.set_main_option("script_location", str(MIGRATIONS))
    found.attributes["url"] = url
    return found


def insert(connection: Connection, table: str, **values: object) -> None:
    names = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)


def write_people_and_jobs(connection: Connection) -> None:
    for number, (person, role) in enumerate(
        ((STEWARD, "steward"), (SECOND, "steward"), (ANALYST, "analyst"), (ASKER, "analyst"))
    ):
        insert(connection, "users", id=person, name=f"person-{number}", roles=[role])
    policy = Policy(two_people=True, analysts=("person-2",)).model_dump_json()
    version = uuid.uuid4()
    insert(
        connection,
        "datasets",
        id=DATASET,
        name="notes",
        neighbours="add-remove",
        max_records_per_unit=1,
        labels="[]",
        policy=policy,
        created_by=STEWARD,
    )
    columns = "id, dataset_id, number, uri, text_template, state, created_by"
    connection.execute(
        text(
            f"INSERT INTO dataset_versions ({columns}) "
            "VALUES (:id, :dataset, 1, '/notes.csv', '{text}', 'checking', :by)"
        ),
        {"id": version, "dataset": DATASET, "by": STEWARD},
    )
    for job, state in ((JOB, "succeeded"), (REFUSED, "refused"), (MADE, "queued")):
        insert(
            connection,
            "jobs",
            id=job,
            dataset_id=DATASET,
            version_id=version,
            analyst_id=ANALYST,
            mechanism="private-prediction",
            parameters='{"tokens_per_batch": 10}',
            terms='{"delta": 1e-6}',
            breakdown="[]",
            purpose="a study",
            request_sha256="0" * 64,
            state=state,
            refusal='{"cap": "steward"}' if state == "refused" else None,
            output_uri="/x" if state == "succeeded" else None,
            output_sha256="0" * 64 if state == "succeeded" else None,
        )


def write_decisions(connection: Connection) -> dict[str, uuid.UUID]:
    """Write what the first revision kept in three tables, of every kind and state."""
    ids = {
        name: uuid.uuid4() for name in ("raise", "policy", "correction", "offer", "asks", "granted")
    }
    late = {"created_at": "2026-11-01T00:00:00Z", "expires_at": "2027-11-15T00:00:00Z"}
    answered = {"decided_at": "2026-11-02T00:00:00Z", "decision_reason": "seen"}
    asked = '{"body": {"epsilon": "12", "delta": "0.000001"}}'
    proposal = {"dataset_id": DATASET, "proposed_by": STEWARD, **late}
    row = {**proposal, "kind": "allowance", "asked": asked, "basis_seq": 0}
    insert(connection, "proposals", id=ids["raise"], reason="more people", **row)
    named = {
        "policy": Policy().model_dump(mode="json"),
        "replaces": Policy().model_dump(mode="json"),
    }
    row = {**proposal, "kind": "policy", "asked": json.dumps(named), "state": "withdrawn"}
    row |= {"decided_by": SECOND, **answered}
    insert(connection, "proposals", id=ids["policy"], reason="weaker", **row)
    charged = json.dumps({"event": to_json(Gaussian(1.0)), "cap": "0"})
    row = {**proposal, "kind": "correction", "asked": charged, "basis_seq": 7}
    row |= {"job_id": JOB, "state": "confirmed", "decided_by": SECOND, "entry_seq": 9, **answered}
    insert(connection, "proposals", id=ids["correction"], reason="it was mispriced", **row)
    row = {
        "job_id": REFUSED,
        "parameters": '{"tokens_per_batch": 4}',
        "terms": '{"delta": 1e-6}',
        **late,
    }
    row |= {"epsilon_alone": 0.1234567890123456, "breakdown": '["one line"]', "offered_by": STEWARD}
    row |= {"state": "accepted", "decided_by": ANALYST, "accepted_job_id": MADE, **answered}
    insert(connection, "offers", id=ids["offer"], reason="that is enough", **row)
    row = {"dataset_id": DATASET, "person_id": ASKER, "created_at": "2026-11-03T00:00:00Z"}
    insert(connection, "access_requests", id=ids["asks"], reason="for a study", **row)
    row |= {"person_id": ANALYST, "state": "granted", "answer": "welcome", "decided_by": STEWARD}
    insert(connection, "access_requests", id=ids["granted"], reason="for another", **row)
    return ids


def test_what_second_people_were_asked_and_answered_moves_into_one_table(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        ids = write_decisions(connection)
        hook, delivery = uuid.uuid4(), uuid.uuid4()
        events = ["job.queued", "proposal.confirmed", "proposal.withdrawn"]
        insert(connection, "hooks", id=hook, owner_id=STEWARD, url="x", kind="json", events=events)
        facts = f'{{"proposal": "{ids["correction"]}", "state": "confirmed", "dataset": "notes"}}'
        row = {"hook_id": hook, "event": "proposal.confirmed", "facts": facts}
        insert(connection, "hook_deliveries", id=delivery, **row)
    command.upgrade(config(old_url), "head")

    viewer = Actor(SECOND, "person-1", frozenset({"steward"}))
    shown = {name: decisions.show(old, found, viewer) for name, found in ids.items()}
    stand = {name: (decision.kind, decision.state) for name, decision in shown.items()}
    assert stand == {
        "raise": ("allowance", "open"),
        "policy": ("policy", "withdrawn"),
        "correction": ("correction", "accepted"),
        "offer": ("offer", "accepted"),
        "asks": ("access", "open"),
        "granted": ("access", "accepted"),
    }
    assert (shown["correction"].entry, shown["correction"].job) == (9, str(JOB))
    assert (shown["correction"].answered_by, shown["correction"].answer) == ("person-1", "seen")
    offer = shown["offer"]
    assert (offer.job, offer.made_job, offer.answered_by) == (str(REFUSED), str(MADE), "person-2")
    assert offer.offer is not None
    assert (offer.offer.epsilon_alone, offer.offer.breakdown) == (0.1234567890123456, ["one line"])
    assert offer.expires_at is not None
    assert (shown["asks"].expires_at, shown["asks"].asked_by) == (None, "person-3")
    assert (shown["granted"].answer, shown["granted"].answered_by) == ("welcome", "person-0")
    assert shown["raise"].asked["epsilon"] == "12"
    with old.connect() as connection:
        counted = connection.execute(text("SELECT count(*) FROM decisions")).scalar_one()
        events = connection.execute(text("SELECT events FROM hooks")).scalar_one()
        told = connection.execute(text("SELECT event, facts FROM hook_deliveries")).all()
        gone = text("SELECT to_regproc(name) FROM unnest(CAST(:names AS text[])) AS name")
        names = {"names": ["hold_account", "account_stand", "may_wait"]}
        assert connection.execute(gone, names).scalars().all() == [None] * 3
    assert counted == len(ids)
    assert events == ["job.queued", "decision.accepted", "decision.withdrawn", "decision.refused"]
    ((event, kept),) = told  # and the upgrade itself announced nothing
    assert (event, kept["decision"], kept["state"]) == (
        "decision.accepted",
        str(ids["correction"]),
        "accepted",
    )
    assert "proposal" not in kept


def test_an_account_with_prices_of_another_edition_is_not_upgraded(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        row = {"dataset_id": DATASET, "chain_head": "x", "epsilon": 1, "delta": 1}
        insert(connection, "accounts", price_edition=1, **row)
    with pytest.raises(RuntimeError, match="prices of another edition"):
        command.upgrade(config(old_url), "head")


def test_accounts_have_lost_nothing_before_losses_are_counted(old, old_url):
    """What is kept of how an account stood is read back with the count."""
    with old.begin() as connection:
        write_people_and_jobs(connection)
        insert(connection, "accounts", dataset_id=DATASET, chain_seq=256, chain_head="0" * 64)
        insert(connection, "standings", dataset_id=DATASET, seq=256, account='{"chain_seq": 256}')
    command.upgrade(config(old_url), "head")
    with old.connect() as connection:
        kept = connection.execute(text("SELECT account FROM standings")).scalar_one()
        now = connection.execute(text("SELECT loss_count FROM accounts")).scalar_one()
        triggers = connection.execute(
            text("SELECT tgenabled FROM pg_trigger WHERE tgrelid = 'standings'::regclass")
        ).scalars()
        none = {"loss_count": 0, "overdraft_count": 0, "overdraft_epsilon": 0}
        assert (kept, now) == ({"chain_seq": 256, **none}, 0)
        assert set(triggers) == {"O"}


def test_a_signature_that_asked_before_an_upgrade_asks_for_nothing_after_it(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
    command.upgrade(config(old_url), "0118")
    with old.begin() as connection:
        charged = "UPDATE jobs SET mechanism = 'charge', parameters = :stated WHERE id = :id"
        for job, stated in ((REFUSED, '{"signature": "00"}'), (MADE, "{}")):
            connection.execute(text(charged), {"id": job, "stated": stated})
    command.upgrade(config(old_url), "head")
    with pytest.raises(DBAPIError, match="uq_jobs_signature"), old.begin() as connection:
        connection.execute(text(charged), {"id": MADE, "stated": '{"signature": "00"}'})


def test_addresses_of_before_stay_when_openlineage_is_one(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        row = {"owner_id": STEWARD, "url": "x", "events": ["job.queued"]}
        insert(connection, "hooks", id=uuid.uuid4(), kind="json", **row)
    command.upgrade(config(old_url), "head")
    with old.begin() as connection:
        insert(connection, "hooks", id=uuid.uuid4(), kind="openlineage", **row)
        kinds = connection.execute(text("SELECT kind FROM hooks ORDER BY kind")).scalars().all()
    assert kinds == ["json", "openlineage"]


def test_data_keeps_its_address_when_other_data_has_none(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
    command.upgrade(config(old_url), "head")
    lacks = "UPDATE dataset_versions SET uri = NULL, state = :state"
    with old.connect() as connection:
        before = connection.execute(text("SELECT uri FROM dataset_versions")).scalars().all()
        assert before
        assert None not in before
        connection.execute(text(lacks), {"state": "ready"})
        with pytest.raises(IntegrityError, match="no_data"):
            connection.execute(text(lacks), {"state": "checking"})


def test_use_by_people_stays_when_charges_are_counted_beside_it(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        row = {"dataset_id": DATASET, "kind": "analyst", "holder": str(ANALYST), "spent": 7}
        insert(connection, "usage", **row)
    command.upgrade(config(old_url), "head")
    with old.begin() as connection:
        insert(connection, "usage", **row | {"kind": "stated", "holder": "charges"})
        kept = connection.execute(text("SELECT kind, spent FROM usage ORDER BY kind")).all()
        jobs = connection.execute(
            text("SELECT state, output_sha256 FROM jobs WHERE id = :id"), {"id": JOB}
        )
        assert kept == [("analyst", 7), ("stated", 7)]
        assert jobs.one() == ("succeeded", "0" * 64)


def test_parts_that_wait_go_to_any_worker_before_classes_are_named(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        insert(connection, "parts", job_id=MADE, number=0, state="queued", attempt=1)
    command.upgrade(config(old_url), "head")
    with old.connect() as connection:
        assert connection.execute(text("SELECT state, hardware FROM parts")).one() == ("queued", "")


def test_the_first_process_after_the_upgrade_says_the_cluster_s_key(
    old, old_url, tmp_path, monkeypatch
):
    monkeypatch.delenv("EXCHEQUER_KEY_SESSION")
    with old.begin() as connection:
        write_people_and_jobs(connection)
    command.upgrade(config(old_url), "head")
    for home, problem in (
        ("a", None),
        ("a", None),
        ("b", "the key `session` is not the cluster's"),
    ):
        said = key_checks.problem(old, "session", Settings(home=tmp_path / home))
        assert (said or "").startswith(problem or "")
        assert (said is None) == (problem is None)
    with old.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM jobs")).scalar_one() == 3


def test_a_ledger_of_before_has_no_overdrafts_and_takes_one(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        row = {"dataset_id": DATASET, "chain_head": "x", "largest_epsilon": 3}
        insert(connection, "accounts", **row)
        ids = write_decisions(connection)
    command.upgrade(config(old_url), "head")
    asked = {"dataset_id": DATASET, "kind": "overdraft", "asked": "{}", "reason": "it ran twice"}
    answered = {"state": "accepted", "answered_by": SECOND, "answered_at": "2026-11-02T00:00:00Z"}
    row = {"id": uuid.uuid4(), "asked_by": STEWARD, **asked, **answered}
    with old.connect() as connection, pytest.raises(IntegrityError, match="made_job"):
        insert(connection, "decisions", **row)
    with old.connect() as connection, pytest.raises(IntegrityError, match="two_people"):
        insert(connection, "decisions", **row | {"made_job": JOB, "asked_by": SECOND})
    with old.begin() as connection:
        insert(connection, "decisions", **row | {"made_job": JOB})
        kept = connection.execute(text("SELECT count(*) FROM decisions")).scalar_one()
        account = connection.execute(text("SELECT * FROM accounts")).one()
        query = "SELECT prosrc FROM pg_proc WHERE proname IN ('guard_entry','guard_account')"
        guards = connection.execute(text(query)).scalars().all()
    assert kept == len(ids) + 1
    assert (account.largest_epsilon, account.overdraft_count, account.overdraft_epsilon) == (
        3,
        0,
        0,
    )
    assert all("overdraft" in guard for guard in guards)
    assert any("opened by an allowance or a correction alone" in guard for guard in guards)


def test_decisions_of_before_stand_and_pushes_join_them(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        ids = write_decisions(connection)
    command.upgrade(config(old_url), "0125")
    push = {"id": uuid.uuid4(), "dataset_id": DATASET, "kind": "push", "asked": "{}"}
    push |= {"reason": "a benchmark", "asked_by": ANALYST}
    with old.connect() as connection, pytest.raises(IntegrityError, match="ck_decisions_kind"):
        insert(connection, "decisions", **push)
    command.upgrade(config(old_url), "head")
    with old.connect() as connection, pytest.raises(IntegrityError, match="ck_decisions_job"):
        insert(connection, "decisions", **push)
    with old.begin() as connection:
        insert(connection, "decisions", **push | {"job_id": JOB})
        kinds = connection.execute(text("SELECT kind FROM decisions")).scalars().all()
    assert len(kinds) == len(ids) + 1
    assert set(kinds) == {"allowance", "policy", "correction", "offer", "access", "push"}


def test_jobs_that_wait_stay_and_others_may_wait_for_a_release(old, old_url):
    """The policy of before shares nothing out, and the guards of the relay know of releases."""
    with old.begin() as connection:
        write_people_and_jobs(connection)
        waits = text("UPDATE jobs SET state = :state WHERE id = :id")
        connection.execute(waits, {"state": "awaiting_approval", "id": MADE})
    command.upgrade(config(old_url), "0127")
    release = {"state": "awaiting_release", "id": MADE}
    with old.connect() as connection, pytest.raises(IntegrityError, match="ck_jobs_state"):
        connection.execute(waits, release)
    command.upgrade(config(old_url), "head")
    with old.begin() as connection:
        query = text("SELECT state, to_reserve FROM jobs WHERE id = :id")
        assert connection.execute(query, {"id": MADE}).one() == ("awaiting_approval", None)
        connection.execute(waits, release)
        policy = connection.execute(text("SELECT policy FROM datasets")).scalar_one()
        guards = "guard_entry,guard_look,guard_leased_job,guard_looked_at,guard_looked_at_parts"
        query = text("SELECT prosrc FROM pg_proc WHERE proname = ANY(string_to_array(:names, ','))")
        bodies = connection.execute(query, {"names": guards}).scalars().all()
    assert Policy.model_validate(policy).shared_epsilon is None
    assert [body for body in bodies if "relay" not in body] == []
    assert len(bodies) == 5


def test_jobs_of_before_get_places_in_the_order_of_their_time(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
    command.upgrade(config(old_url), "head")
    with old.begin() as connection:
        query = "SELECT place FROM jobs WHERE dataset_id = :dataset ORDER BY created_at, id"
        dataset = {"dataset": DATASET}
        places = connection.execute(text(query), dataset).scalars().all()
        connection.execute(
            text(
                "INSERT INTO jobs SELECT (jsonb_populate_record(made, jsonb_build_object("
                "'id', gen_random_uuid(), 'idempotency_key', NULL))).* "
                "FROM jobs made, generate_series(1, 3) WHERE made.id = :job"
            ),
            {"job": JOB},
        )
        more = connection.execute(text(query), dataset).scalars().all()
    assert places == [*range(1, len(places) + 1)]
    assert sorted(more) == [*range(1, len(places) + 4)]


def test_messages_of_before_take_their_analysts_turns(old, old_url):
    with old.begin() as connection:
        write_people_and_jobs(connection)
        tell = text("INSERT INTO outbox (task, subject) VALUES (:task, :subject)")
        told = [{"task": "free", "subject": MADE}, {"task": "check_dataset", "subject": DATASET}]
        connection.execute(tell, told)
    command.upgrade(config(old_url), "head")
    with old.begin() as connection:
        turns = connection.execute(text("SELECT task, analyst_id FROM outbox ORDER BY id")).all()
    assert turns == [("free", ANALYST), ("check_dataset", None)]
