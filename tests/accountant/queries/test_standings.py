"""Balances kept beside the ledger: a short replay from them gives what a whole one gives."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from accountant.core.ledger.allowances import Allowance, allowance_body
from accountant.core.ledger.hash_chain import EntryKind
from accountant.queries import datasets, ledger_entry
from accountant.transactions import settlement
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from tests.support import Bench, yes


def lengthened(bench: Bench, count: int) -> None:
    """So many more allowances, in one transaction."""
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        for number in range(count):
            allowance = Allowance(f"{10 + number % 7}", "0.0000029053", "again")
            body = allowance_body(allowance, locked.books, "add-remove")
            locked.post(EntryKind.ALLOW, bench.steward.name, None, body)
        locked.write()


def standings(bench: Bench) -> list[int]:
    query = text(
        "SELECT seq FROM standings s JOIN datasets d ON d.id = s.dataset_id WHERE name = :name"
    )
    with bench.engine.connect() as connection:
        return sorted(connection.execute(query, {"name": bench.dataset}).scalars())


def after(bench: Bench, seq: int) -> dict:
    return ledger_entry.show(bench.engine, bench.dataset, seq, bench.auditor)["after"]


@pytest.mark.slow
def test_a_short_replay_gives_what_a_whole_one_gives(bench, monkeypatch):
    bench.warm()
    job = bench.submit(3)  # reserved before balances are kept, voided after
    yes(bench.engine, job, bench.steward, "it fits")
    reserved = datasets.dataset(bench.engine, bench.dataset, bench.auditor)["entries"]
    lengthened(bench, 200)
    assert standings(bench) == []
    lengthened(bench, 200)
    (kept,) = standings(bench)
    assert kept == reserved + 400
    settlement.cancel(bench.engine, job, bench.analyst)
    last = kept + 1

    short = [after(bench, seq) for seq in (kept, last)]
    assert [each["from"] for each in short] == [kept, kept]
    whole = []
    monkeypatch.setattr(
        ledger_entry, "_start", lambda *_: ledger_entry._Start(ledger_entry.Books(), 0)
    )
    for seq in (kept, last):
        whole.append({**after(bench, seq), "from": kept})
    assert short == whole
    assert (
        short[1]["account"]
        == datasets.dataset(bench.engine, bench.dataset, bench.auditor)["account"]
    )
    assert short[0]["account"] != short[1]["account"]


def test_a_replay_that_is_too_long_is_not_made(bench, monkeypatch):
    lengthened(bench, 30)
    monkeypatch.setattr(ledger_entry, "LONGEST", 20)
    far, near = after(bench, 31), after(bench, 20)
    assert far["account"] is None
    assert far["problem"] == "the nearest balances that were kept are 31 entries before this one"
    assert near["problem"] is None


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO standings SELECT dataset_id, 7, '{}' FROM accounts",
        "UPDATE standings SET account = '{}'",
        "DELETE FROM standings",
        "TRUNCATE standings",
    ],
)
def test_the_application_reads_them_alone(bench, statement):
    with (
        bench.engine.connect() as connection,
        pytest.raises(ProgrammingError, match="permission denied"),
    ):
        connection.execute(text(statement))


def test_even_their_owner_does_not_change_them_unnoticed(bench, owner):
    lengthened(bench, 300)
    for statement in (
        "UPDATE standings SET seq = seq + 1",
        "DELETE FROM standings",
        "TRUNCATE standings",
    ):
        with owner.connect() as connection, pytest.raises(Exception, match="append-only"):
            connection.execute(text(statement))
