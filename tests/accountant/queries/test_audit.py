"""An auditor's checks of a live ledger: exports in every format, checkpoints, keys, publication."""

import csv
import hashlib
import io
import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.core import mechanisms
from accountant.core.errors import Conflict, VerificationFailed
from accountant.core.ledger.accounts import Settlement
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.checkpoints import key_id, public_key, read_checkpoint, read_keys
from accountant.core.ledger.commitments import TEXTS
from accountant.core.ledger.export_formats import json_row, verify_lines
from accountant.core.ledger.hash_chain import GENESIS, canonical, digest
from accountant.core.ledger.reservations import read_event
from accountant.core.privacy.events import FREE, Exponential, SelfComposed, to_json
from accountant.core.privacy.price import Terms
from accountant.queries import entries, integrity, jobs
from accountant.transactions import allowances, corrections, leases, settlement, signing
from accountant.transactions.locked_account import LockedAccount
from tests.support import Bench, person, yes

pytestmark = pytest.mark.slow

SEED = b"s" * 32
FORMATS = ("jsonl", "csv")
REASON = "Grace Hopper asked for the oncology study"
PROMPT = "A note by Dr Lovelace, like this one: {record}"


@pytest.fixture
def audited(engine) -> Bench:
    """A ledger with every kind of entry; one job really cost ex-post 0.123456789 of its cap of
    1.
    """
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    allowance = Allowance("10", "0.000001", REASON, ex_post="5", ex_post_settlement="realized")
    allowances.allow(engine, bench.dataset, allowance, bench.steward)
    bench.warm()
    finish(bench, bench.submit(12), None)
    job_id = bench.submit(5, aggregation="median", ex_post_cap=1.0)
    yes(engine, job_id, bench.steward, REASON)
    finish(bench, job_id, 123_456_789)
    bench.submit(9)
    return bench


def finish(bench: Bench, job_id: uuid.UUID, ex_post: int | None) -> None:
    claim = leases.claim(bench.engine, job_id, 1, "worker-of-ada", 60)
    assert claim is not None
    leases.begin_reading(bench.engine, claim)
    stored = jobs.job(bench.engine, job_id, bench.steward)["event"]
    event = FREE if stored is None else read_event(stored)
    output = settlement.Output("/o", "0" * 64)
    settlement.publish(bench.engine, claim, event, output, "worker-of-ada", ex_post=ex_post)


def exported(bench: Bench, form: str, public: bool = False, seed: bytes | None = SEED) -> bytes:
    pieces = entries.export(
        bench.engine, bench.dataset, bench.auditor, form, public=public, seed=seed
    )
    return b"".join(each.encode() if isinstance(each, str) else each for each in pieces)


def check(content: bytes, known=(), pinned=None):
    return verify_lines(io.StringIO(content.decode(), newline=""), known, pinned)


def made_checkpoint(bench: Bench, seed: bytes = SEED):
    return read_checkpoint(entries.checkpoint(bench.engine, bench.dataset, bench.auditor, seed))


@pytest.fixture(autouse=True)
def fresh_keys(owner):
    """Each test begins with a server that never signed; the triggers step aside for that."""
    with owner.begin() as connection:
        for table in ("checkpoints", "signing_keys"):
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
            connection.execute(text(f"DELETE FROM {table}"))
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))


# --- exports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("public", [False, True])
def test_an_export_verifies(audited, public):
    found = check(exported(audited, "jsonl", public))
    assert found.checkpoints[0].seq == found.entries
    assert (found.hidden > 0) is public
    assert found.live == 1


@pytest.mark.parametrize("public", [False, True])
def test_every_format_holds_the_same_entries_and_totals(audited, public):
    totals, *lines = map(json.loads, exported(audited, "jsonl", public).splitlines())
    entries = [(each.pop("hash"), each) for each in lines]
    _, *rows, last = csv.reader(io.StringIO(exported(audited, "csv", public).decode()))
    assert [(row[-2], json.loads(row[-1])) for row in rows] == entries
    assert json.loads(last[-1])["balances"] == totals["balances"]


def test_a_slow_download_holds_no_snapshot_and_ends_at_the_moment_it_began(audited, monkeypatch):
    from accountant.queries import exports

    monkeypatch.setattr(exports, "PAGE", 2)
    whole = check(exported(audited, "jsonl"))
    pieces = entries.export(audited.engine, audited.dataset, audited.auditor, "jsonl", seed=SEED)
    read = [next(pieces) for _ in range(3)]  # the header and two of the entries
    held = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start < "
        "now()"
    )
    with audited.engine.connect() as connection:
        assert connection.execute(held).scalar_one() == 0
    audited.submit(1)
    found = check("".join([*read, *pieces]).encode())
    assert (found.entries, found.head, found.live) == (whole.entries, whole.head, whole.live)


def test_a_full_export_opens_what_a_job_really_cost(audited):
    found = check(exported(audited, "jsonl"))
    assert found.books.ex_post.spent == 123_456_789
    assert found.books.ex_post.settlement is Settlement.REALIZED
    assert integrity.check(audited.engine, audited.dataset) == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_public_export_shows_no_name_no_reason_no_prompt_and_no_figure(audited, form):
    job_id = audited.submit(3, template=PROMPT)
    audited.probe(job_id)
    content = exported(audited, form, public=True)
    assert str(job_id).encode() in content
    told = content.decode()
    for secret in (
        audited.steward.name,
        audited.analyst.name,
        audited.auditor.name,
        "worker-of-ada",
        "Hopper",
        "oncology",
        "Lovelace",
        "123456789",
        "0.123",
        '"salt"',
    ):
        assert secret not in told, secret


def test_both_exports_have_one_chain(audited):
    full, public = (check(exported(audited, "jsonl", each)) for each in (False, True))
    assert full.head == public.head
    assert public.books.ex_post.hidden
    assert full.books.account == public.books.account
    kept = made_checkpoint(audited)
    assert check(exported(audited, "jsonl", True), [kept]).checkpoints[0] == kept


def test_a_small_figure_can_not_be_searched(audited):
    """Without its salt no candidate gives the commitment; with it exactly one does."""
    lines = [json.loads(line) for line in exported(audited, "jsonl").splitlines()[1:]]
    public = [json.loads(line) for line in exported(audited, "jsonl", True).splitlines()[1:]]
    place = next(
        i for i, each in enumerate(lines) if "ex_post" in each["body"] and each["kind"] == "COMMIT"
    )
    opening, shown = lines[place]["body"]["ex_post"]["cap"], public[place]["body"]["ex_post"]["cap"]
    assert set(shown) == {"sha256"}
    assert opening["value"] == "123456789"

    assert hashlib.sha256(canonical(opening)).hexdigest() == shown["sha256"]
    value = opening["value"]
    unsalted = ({"value": value}, {"salt": "0" * 32, "value": value})
    guesses = (value.encode(), *map(canonical, unsalted))
    assert all(hashlib.sha256(guess).hexdigest() != shown["sha256"] for guess in guesses)
    salts = {each["actor"]["salt"] for each in lines}
    assert len(salts) == len(lines)


def overwrite(owner, bench: Bench, documents: list[dict]) -> None:
    """Overwrite entries with others, chained and consistent, as only the database's owner can."""
    with owner.begin() as connection:
        find = text("SELECT id FROM datasets WHERE name = :name")
        own = {"id": connection.execute(find, {"name": bench.dataset}).scalar_one()}
        connection.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        change = text(
            "UPDATE entries SET document = :document, previous = :previous, hash = :hash "
            "WHERE dataset_id = :id AND seq = :seq"
        )
        head = GENESIS
        for seq, document in enumerate(documents, start=1):
            row = {
                "document": canonical({**document, "previous": head}).decode(),
                "previous": head,
                "seq": seq,
            }
            head = digest({**document, "previous": head})
            connection.execute(change, {**own, **row, "hash": head})
        connection.execute(text("ALTER TABLE entries ENABLE TRIGGER USER"))
        connection.execute(
            text("UPDATE accounts SET chain_head = :head WHERE dataset_id = :id"),
            {**own, "head": head},
        )


def documents_of(bench: Bench) -> list[dict]:
    lines = [json.loads(line) for line in exported(bench, "jsonl", seed=None).splitlines()[1:]]
    return [{name: value for name, value in each.items() if name != "hash"} for each in lines]


def test_no_price_depends_on_a_hidden_text():
    for mechanism in mechanisms.MECHANISMS.values():
        terms = Terms(public_size=1000, labels=("a", "b"))
        try:
            parameters = mechanism.parse({}, terms)
        except Exception:  # needs more than defaults: those are priced by their own tests
            continue
        plain = parameters.model_dump(mode="json")
        shown = {name: value for name, value in plain.items() if name not in TEXTS}
        changed = parameters.model_copy(
            update={name: "something else" for name in TEXTS if name in plain}
        )
        price = mechanism.price(parameters, terms)
        assert mechanism.price(mechanism.parse(shown, terms), terms) == price
        assert mechanism.price(changed, terms) == price


def test_a_correction_is_published_without_its_people_and_figures(audited):
    """A REVERSAL quotes whole entries: their private values are hidden too, and the chain still
    holds.
    """
    second = person(audited.engine, "steward", f"confirmer-{uuid.uuid4().hex[:6]}")
    raised = to_json(SelfComposed(Exponential(1.0), 60))
    for job in jobs.jobs(
        audited.engine, audited.steward, jobs.Wanted(dataset=audited.dataset, state="succeeded")
    ):
        # The median with what it really cost; the other job has no such cost.
        cap = "0.987654321" if job["parameters"]["aggregation"] == "median" else None
        proposed = corrections.correct(
            audited.engine, uuid.UUID(job["id"]), audited.steward, REASON, event=raised, ex_post=cap
        )
        yes(audited.engine, proposed, second, REASON)
    assert integrity.check(audited.engine, audited.dataset) == []
    full = check(exported(audited, "jsonl"))
    public = check(exported(audited, "jsonl", True))
    assert (public.head, public.books.account) == (full.head, full.books.account)
    told = exported(audited, "jsonl", True).decode()
    for secret in (audited.steward.name, second.name, "Hopper", "123456789", "987654321", '"salt"'):
        assert secret not in told, secret


# --- tampering ----------------------------------------------------------------------------------


def changed_entry(content: bytes, index: int, change) -> bytes:
    """The export with `change` applied to the document of entry `index`, hash left alone."""
    lines = content.decode().splitlines(keepends=True)
    document = json.loads(lines[index + 1])
    hashed = document.pop("hash")
    change(document)
    lines[index + 1] = json_row(document.pop("hash", hashed), canonical(document).decode())
    return "".join(lines).encode()


TAMPERINGS = {
    "kind": lambda each: each.update(kind="VOID"),
    "time": lambda each: each.update(at="2020-01-01T00:00:00.000000Z"),
    "job": lambda each: each.update(job=str(uuid.uuid4())),
    "dataset": lambda each: each.update(dataset="other"),
    "number": lambda each: each.update(seq=each["seq"] + 1),
    "previous": lambda each: each.update(previous=GENESIS),
    "version": lambda each: each.update(version=1),
    "actor": lambda each: each.update(actor={"salt": "0" * 32, "value": "somebody else"}),
    "actor's name": lambda each: each["actor"].update(value="somebody else"),
    "actor's salt": lambda each: each["actor"].update(salt="0" * 32),
    "actor in plain": lambda each: each.update(actor="somebody else"),
    "another commitment": lambda each: each.update(actor={"sha256": "0" * 64}),
    "body": lambda each: each["body"].update(extra=1),
    "parameter": lambda each: each["body"]["parameters"].update(tokens_per_batch=1),
    "cost": lambda each: each["body"]["costs"]["renyi"].update(main="1"),
    "event": lambda each: each["body"].update(event={"type": "composed", "events": []}),
}


def test_a_changed_entry(audited):
    content = exported(audited, "jsonl")
    index = 6  # the RESERVE of the first job that ran
    check(changed_entry(content, index, lambda _: None))
    for what, change in TAMPERINGS.items():
        with pytest.raises(VerificationFailed) as caught:
            check(changed_entry(content, index, change))
        assert caught.value.seq == index + 1, what


def test_damaged_files(audited):
    content = exported(audited, "jsonl")
    for bad in (content[: len(content) // 2], content[:-3], content[20:], b""):
        with pytest.raises(VerificationFailed):
            check(bad)


# --- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_is_not_older_than_its_entries_where_a_clock_was_set_back(bench, monkeypatch):
    """Entries never go back in time, so the next ones may be ahead of the clock: what covers them
    is too.
    """
    made = LockedAccount.__init__

    def hours_later(self: LockedAccount, *given: object) -> None:
        made(self, *given)
        self.now += timedelta(hours=3)

    with monkeypatch.context() as later:
        later.setattr(LockedAccount, "__init__", hours_later)
        allowances.allow(bench.engine, bench.dataset, Allowance("4", "1e-6", "more"), bench.steward)
    found = check(exported(bench, "jsonl"), pinned=public_key(SEED))
    assert found.at is not None
    assert found.at > datetime.now(UTC) + timedelta(hours=2)
    assert [each.at for each in found.checkpoints] == [found.at]


def test_an_old_checkpoint_is_the_beginning_of_a_later_export(audited):
    kept = made_checkpoint(audited)
    audited.submit(1)
    for public in (False, True):
        found = check(exported(audited, "jsonl", public), [kept], public_key(SEED))
        assert [each.seq for each in found.checkpoints] == [kept.seq, kept.seq + 1]


def test_a_ledger_that_was_cut_off(audited):
    lines = exported(audited, "jsonl", seed=None)
    audited.submit(1)
    kept = made_checkpoint(audited)
    with pytest.raises(VerificationFailed, match="cut off: it ends at entry"):
        check(lines, [kept])


def test_a_rewritten_and_rehashed_history_is_caught_by_an_old_checkpoint(audited, owner):
    kept = made_checkpoint(audited)
    documents = documents_of(audited)
    allowed = next(each for each in documents if each["kind"] == "ALLOW")
    allowed["body"]["reason"]["value"] = "another reason"
    overwrite(owner, audited, documents)
    audited.submit(1)
    lines = exported(audited, "jsonl")
    check(lines)  # all of it is consistent, newly signed, and a lie
    with pytest.raises(VerificationFailed, match="history up to entry"):
        check(lines, [kept])
    assert "history up to entry" in integrity.check(audited.engine, audited.dataset)[0]


def test_the_wrong_key(audited):
    content = exported(audited, "jsonl")
    check(content, pinned=public_key(SEED))
    with pytest.raises(VerificationFailed, match="does not follow from key"):
        check(content, pinned=public_key(b"x" * 32))


def test_a_changed_checkpoint(audited):
    for name in ("seq", "head", "balances", "at", "key", "dataset"):
        file = entries.checkpoint(audited.engine, audited.dataset, audited.auditor, SEED)
        own = file["checkpoint"]
        if isinstance(own[name], str):
            own[name] = "2031-01-01T00:00:00.000000Z" if name == "at" else own[name][:-1] + "x"
        else:
            own[name] = 1 if name == "seq" else {}
        with pytest.raises(VerificationFailed):
            read_checkpoint(file)


def test_rotated_keys(audited):
    kept = made_checkpoint(audited)
    other = b"t" * 32
    with pytest.raises(Conflict, match="not the one in use"):
        exported(audited, "jsonl", seed=other)
    signing.rotate(audited.engine, SEED, other)
    with pytest.raises(Conflict, match="not the one in use"):
        exported(audited, "jsonl", seed=SEED)
    content = exported(audited, "jsonl", seed=other)
    found = check(content, [kept], public_key(SEED))
    assert [each.key for each in found.checkpoints] == [
        key_id(public_key(SEED)),
        key_id(public_key(other)),
    ]
    published = read_keys(signing.keys(audited.engine, other))
    assert [each.id for each in published] == [each.key for each in found.checkpoints]
    assert published[0].until == published[1].since
    check(content, pinned=public_key(other))
    # The new key does not vouch for the old one, and nobody can introduce a key without the old
    # secret.
    first = entries.checkpoints(audited.engine, audited.dataset, audited.auditor)[-1]
    with pytest.raises(VerificationFailed, match="does not follow"):
        read_checkpoint(first, public_key(other))
    forged = entries.checkpoint(audited.engine, audited.dataset, audited.auditor, other)
    forged["keys"][1]["signature"] = forged["signature"]
    with pytest.raises(VerificationFailed, match="introduction"):
        read_checkpoint(forged)


def test_a_replaced_key_signs_nothing_new(audited):
    """A checkpoint dated after the rotation is refused although its signature holds."""
    from datetime import UTC, datetime, timedelta

    from accountant.core.ledger.checkpoints import sign

    entries.checkpoint(audited.engine, audited.dataset, audited.auditor, SEED)
    signing.rotate(audited.engine, SEED, b"t" * 32)
    keys = signing.keys(audited.engine, b"t" * 32)
    late = sign("d", 0, GENESIS, {}, datetime.now(UTC) + timedelta(days=1), SEED, keys)
    with pytest.raises(VerificationFailed, match="not in use"):
        read_checkpoint(late)


def test_checkpoints_and_keys_are_append_only(audited, owner):
    made_checkpoint(audited)
    for statement in ("DELETE FROM {}", "UPDATE {} SET document = '{{}}'", "TRUNCATE {} CASCADE"):
        for table in ("checkpoints", "signing_keys"):
            with pytest.raises(DBAPIError, match="append-only"), owner.begin() as connection:
                connection.execute(text(statement.format(table)))


def test_one_checkpoint_an_entry(audited):
    first = entries.checkpoint(audited.engine, audited.dataset, audited.auditor, SEED)
    assert entries.checkpoint(audited.engine, audited.dataset, audited.auditor, SEED) == first
    exported(audited, "csv")
    assert entries.checkpoints(audited.engine, audited.dataset, audited.auditor) == [first]


# --- the live ledger ----------------------------------------------------------------------------


def test_the_check_names_what_disagrees(audited, owner):
    assert integrity.check(audited.engine, audited.dataset) == []
    change = text(
        "UPDATE accounts SET renyi_spent = renyi_spent - 1 FROM datasets "
        "WHERE datasets.id = dataset_id AND name = :name"
    )
    with owner.begin() as connection:
        connection.execute(change, {"name": audited.dataset})
    assert "cached balances" in integrity.check(audited.engine, audited.dataset)[0]
