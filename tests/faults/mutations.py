"""Mutation proof: each guard taken out alone, and the harness has to notice.

    make mutations        # prints what noticed, and exits with 1 where nothing did

A mutation changes functions of the processes when they start, or the database before they do.
Faults then fall where that guard matters. Nothing of this exists outside the tests.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutation:
    """One guard taken out, and the faults that then do harm: (kind, crash point, action)."""

    title: str
    apply: Callable[[], None]
    focus: tuple[tuple[str, str, str], ...]
    faults: int = 14
    sql: str = ""


def no_row_lock() -> None:
    """Accounts are read without FOR UPDATE."""
    from accountant.transactions import locked_account

    for name in ("_LOCK_BY_ID", "_LOCK_BY_NAME"):
        statement = getattr(locked_account, name)
        assert "FOR UPDATE OF accounts" in statement
        setattr(locked_account, name, statement.replace("FOR UPDATE OF accounts", ""))


def no_token_check() -> None:
    """Publication and failure accept every token; the lease's secret, asked for behind it, is out
    too.
    """
    from accountant.transactions import rows

    rows.fenced = lambda connection, claim: rows.locked_job(connection, claim.job_id)  # type: ignore[assignment]


def no_outbox_transaction() -> None:
    """The message is written after the commit, and nobody sends again what still waits.

    Re-sending alone would heal it: that is the second line, so it is out here too.
    """
    from accountant import settings, tables
    from accountant.database import engine_for
    from accountant.transactions import answers, decision, messages, submission

    waiting: list[dict[str, Any]] = []
    everything, settle, approve = decision.Verdict.rows, submission._settle, answers.answer

    def without_messages(self: Any, job_id: Any) -> Any:
        found = everything(self, job_id)
        waiting.extend(row for table, rows in found if table is tables.outbox for row in rows)
        return [(table, rows) for table, rows in found if table is not tables.outbox]

    def afterwards(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*values: Any) -> Any:
            answer = act(*values)
            with engine_for(settings.load().database_url or "").begin() as connection:
                while waiting:
                    connection.execute(tables.outbox.insert().values(waiting.pop()))
            return answer

        return acted

    decision.Verdict.rows = without_messages  # type: ignore[method-assign]
    submission._settle, answers.answer = afterwards(settle), afterwards(approve)
    messages.resend = lambda engine, seconds, **_: 0


def void_after_reading() -> None:
    """A job that ends badly is void, whatever was read."""
    from accountant.transactions import settlement

    close = settlement._close

    def forgiving(locked: Any, job: Any, *rest: Any) -> None:
        close(locked, SimpleNamespace(**{**job._mapping, "reading_began_at": None}), *rest)

    settlement._close = forgiving  # type: ignore[assignment]


def not_compared() -> None:
    """Nobody compares the database with the log outside it."""
    from accountant.transactions import ledger_log

    ledger_log.compare = lambda *_: None  # type: ignore[assignment]
    ledger_log.ensure_job = lambda *_: None  # type: ignore[assignment]


def _stop(*points: str, seconds: float = 3.5) -> tuple[tuple[str, str, str], ...]:
    return tuple(("crash point: stop past the lease", point, f"stop {seconds}") for point in points)


MUTATIONS: dict[str, Mutation] = {
    "row lock": Mutation(
        "the lock of the account's row",
        no_row_lock,
        _stop("submit.decided", "submit.written", "publish.charged", seconds=0.7),
        faults=60,
    ),
    "token check": Mutation(
        "the token check in publish",
        no_token_check,
        _stop("worker.finished", "publish.fenced"),
        sql="DO $$ BEGIN DROP TRIGGER parts_leases ON parts; DROP TRIGGER entries_lease ON "
        "entries; "
        "DROP TRIGGER jobs_lease ON jobs; DROP TRIGGER artifacts_lease ON artifacts; "
        "DROP TRIGGER realized_ex_post_lease ON realized_ex_post; END $$",
    ),
    "outbox": Mutation(
        "the outbox insert inside the transaction",
        no_outbox_transaction,
        tuple(("crash point: kill", f"{step}.committed", "kill") for step in ("submit", "approve")),
    ),
    "void": Mutation(
        "VOID only before reading began",
        void_after_reading,
        tuple(
            ("crash point: OSError", f"worker.{step}", "error")
            for step in ("step", "writes", "staged")
        ),
    ),
    "truncate": Mutation(
        "the TRUNCATE trigger",
        lambda: None,
        (("ledger attacked", "", "TRUNCATE entries"),),
        sql="DROP TRIGGER entries_truncate ON entries",
    ),
    "log": Mutation(
        "the comparison with the log outside the database",
        not_compared,
        (("database restored from a backup", "", ""),),
        faults=3,
    ),
}


def main() -> int:
    """Run the harness once for each mutation and print the table."""
    missed, rows = 0, []
    for name, mutation in MUTATIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [sys.executable, "-m", "tests.faults", "--seed", "7", "--mutation", name]
            command += ["--faults", str(mutation.faults), "--report", str(report)]
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
            found = json.loads(report.read_text())["broken"] if report.exists() else {}
        caught = {promise: cases for promise, cases in found.items() if cases}
        missed += not caught
        said = (
            "; ".join(f"{len(cases)} {promise}" for promise, cases in caught.items()) or "NOTHING"
        )
        rows.append(f"| {mutation.title} | {mutation.faults} | {said} |")
        print(rows[-1], flush=True)
    print("\n| guard removed | faults | detected as |\n|---|---|---|\n" + "\n".join(rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
