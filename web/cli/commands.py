"""The tree of commands, and the one place where expected errors become sentences and exit codes."""

from typing import Any

import typer

from accountant.core.errors import ExchequerError
from web.cli import artifacts, audits, corpora, data, evaluation, jobs, ledger, output, proposals, stack
from web.cli.price import price
from web.cli.verify import verify


class Commands(typer.core.TyperGroup):
    """Runs a command; an expected error is printed and never shows a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ExchequerError as error:
            raise typer.Exit(output.report(error)) from None


def demo() -> None:
    """Walk the whole path on the bundled sample: price, approve, run, charge, export, verify."""
    from web.demo import run

    run()


LOCAL, WORK, LOOK = "The local stack and people", "Datasets and jobs", "Prices and the ledger"

app = typer.Typer(
    cls=Commands,
    name="exchequer",
    help="Privacy budgets of sensitive text datasets, and the jobs that spend them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for function, name, panel in (
    (stack.up, "up", LOCAL),
    (stack.down, "down", LOCAL),
    (stack.status, "status", LOCAL),
    (demo, "demo", LOCAL),
    (stack.login, "login", LOCAL),
    (stack.whoami, "whoami", LOCAL),
    (data.allow, "allow", WORK),
    (data.policy, "policy", WORK),
    (jobs.submit, "submit", WORK),
    (jobs.list_jobs, "jobs", WORK),
    (jobs.show_job, "job", WORK),
    (jobs.approve, "approve", WORK),
    (jobs.refuse, "refuse", WORK),
    (jobs.cancel, "cancel", WORK),
    (jobs.result, "result", WORK),
    (evaluation.evaluate, "evaluate", WORK),
    (artifacts.list_artifacts, "artifacts", WORK),
    (artifacts.artifact, "artifact", WORK),
    (proposals.correct, "correct", WORK),
    (proposals.proposals, "proposals", WORK),
    (proposals.confirm, "confirm", WORK),
    (proposals.withdraw, "withdraw", WORK),
    (price, "price", LOOK),
    (verify, "verify", LOOK),
):
    app.command(name, rich_help_panel=panel)(function)
for group, name, panel in (
    (stack.users, "user", LOCAL),
    (stack.admin, "admin", LOCAL),
    (data.datasets, "dataset", WORK),
    (data.models, "model", WORK),
    (corpora.corpora, "corpus", WORK),
    (ledger.ledgers, "ledger", LOOK),
    (audits.audits, "audit", LOOK),
):
    app.add_typer(group, name=name, rich_help_panel=panel)
