"""What a pooler in transaction mode (PgBouncer) takes away is not relied on: sessions and their
settings.

No PgBouncer is needed: every transaction has a session of its own, which is all that
such a pooler may do to it, and no statement that outlives its transaction is sent.
"""

import re

from sqlalchemy import event

from accountant.connections import RELIED_ON
from accountant.core.privacy.events import from_json
from accountant.database import TIME_LIMITS, connect, problem, unpooled
from accountant.queries import entries, integrity, jobs
from accountant.transactions import asking, leases, messages, settlement, spending_sums
from accountant.transactions.settlement import Output
from tests.support import Bench

#: What a session keeps after the transaction in which it was sent.
LASTING = re.compile(
    r"^\s*(SET\s+(?!LOCAL|TRANSACTION)|LISTEN|PREPARE|DECLARE\s.*\sWITH HOLD|RESET|DISCARD)"
    r"|pg_(try_)?advisory_lock|set_config\([^)]*false\)|CREATE TEMP(ORARY)? TABLE(?!.*ON COMMIT "
    r"DROP)",
    re.IGNORECASE | re.DOTALL,
)


def pooled(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}pooler=transaction"


def test_no_transaction_relies_on_the_session_of_another(database_url):
    engine, sent = unpooled(pooled(database_url)), []
    event.listen(engine, "before_cursor_execute", lambda *args: sent.append(args[2]))
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    done, cancelled = bench.submit(10), bench.submit(11)
    settlement.cancel(engine, cancelled, bench.analyst)
    claim = leases.claim(engine, done, 1, "worker", 60)
    leases.renew(engine, claim, 60, 1, 2)
    leases.begin_reading(engine, claim)
    event_paid = from_json(jobs.job(engine, done, bench.steward)["event"])
    settlement.publish(engine, claim, event_paid, Output("x", "0" * 64), "worker")
    messages.deliver(engine, lambda *_: None)
    messages.resend(engine, 0)
    asking.sweep(engine)
    spending_sums.roll(engine)
    assert list(entries.export(engine, bench.dataset, bench.auditor, "jsonl"))
    assert integrity.check(engine, bench.dataset) == []
    assert len(sent) > 50
    assert [each for each in sent if LASTING.search(each)] == []


def test_behind_a_pooler_nothing_is_prepared_or_set_and_missing_limits_are_told(database_url):
    plain, behind = connect(database_url), connect(pooled(database_url))
    shown = "SELECT current_setting('statement_timeout')"
    with plain.connect() as one, behind.connect() as other:
        assert one.exec_driver_sql(shown).scalar_one() != other.exec_driver_sql(shown).scalar_one()
        assert one.connection.driver_connection.prepare_threshold is not None
        assert other.connection.driver_connection.prepare_threshold is None
    assert problem(plain) is None
    assert "connect_query" in (problem(behind) or "")
    plain.dispose()
    behind.dispose()


def test_the_documents_connect_query_sets_what_every_session_has():
    from accountant.database import MIGRATIONS

    text = (MIGRATIONS.parent / "docs" / "operations.md").read_text()
    for name, value in (TIME_LIMITS | RELIED_ON).items():
        assert f"SET {name} = ''{value}''" in text
