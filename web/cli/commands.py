"""The tree of commands, and the one place where expected errors become sentences and exit codes."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from accountant.core.errors import ExchequerError
from web.cli import (
    charges,
    completion,
    data,
    decisions,
    evaluation,
    failures,
    jobs,
    ledger,
    models,
    notices,
    oversight,
    people,
    policy,
    results,
    session,
    stack,
)
from web.cli.answers import Group
from web.cli.ask import ask
from web.cli.output import Mode, out
from web.cli.price import price
from web.cli.session import Selected
from web.cli.verify import verify
from web.version import ROOT, describe, is_checkout

# Typer does not export the base of its own complaints about usage.
USAGE: type[Exception] = typer.BadParameter.__mro__[1]


class Commands(typer.core.TyperGroup):
    """Runs a command; an expected error is told and never shows a traceback."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        Mode.json = "--json" in (sys.argv[1:] if args is None else args)
        try:
            return super().main(args, *more, **options)
        # of help and of the version, which are printed before a command is run
        except OSError as error:
            sys.exit(failures.report(failures.system_error(error)))

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk shows itself here
            return result
        except ExchequerError as error:
            raise typer.Exit(failures.report(error)) from None
        except BrokenPipeError:  # whoever reads the output has enough: typer ends the command
            raise
        except (OSError, ImportError) as error:
            raise typer.Exit(failures.report(failures.system_error(error))) from None
        except USAGE as error:
            if not Mode.json:
                raise
            raise typer.Exit(failures.report_usage(error.format_message())) from None  # type: ignore[attr-defined]


def demo(
    model: Annotated[
        str | None,
        typer.Option(metavar="smollm2", help="A pretrained model. [the small one that is bundled]"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print why each step is taken, and figures.")
    ] = False,
) -> None:
    """Walk the whole path on the bundled sample: price, approve, run, charge, export, verify."""
    from web.cli.demo import SAMPLE, run

    run(model or SAMPLE, verbose)


LOCAL, WORK, LOOK = "The local stack and people", "Datasets and jobs", "Prices and the ledger"

app = Group(
    cls=Commands,
    name="exchequer",
    help="Privacy budgets of sensitive text datasets, and the jobs that spend them.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


FIRST_STEPS = {
    True: (
        ("demo", "watch the whole path on made-up reviews: price, approve, run, verify"),
        ("up", "start the service on this machine; `down` stops it"),
        ("price noisy-count", "say what a job costs; needs no server"),
        ("ask DATASET --for texts", "say what to ask for, and what it would be worth"),
        ("submit FILE.json --wait", "ask for a job; examples/ has files to begin with"),
        ("verify FILE", "check an exported ledger, offline"),
    ),
    False: (
        ("price noisy-count", "say what a job costs; needs no server"),
        ("verify FILE", "check an exported ledger, offline"),
        ("login URL", "sign in to a service"),
        ("ask DATASET --for texts", "say what to ask for, and what it would be worth"),
        ("submit FILE.json --wait", "ask for a job"),
        ("result ID -o FILE", "save what a job published"),
    ),
}


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(describe(), soft_wrap=True)
        raise typer.Exit


def _show_first_steps() -> None:
    checkout = is_checkout()
    out.print("Exchequer keeps the privacy budget of sensitive text datasets,")
    out.print("and runs the jobs that spend it.\n\nTo begin with:")
    for command, purpose in FIRST_STEPS[checkout]:
        out.print(f"  exchequer {command:<24} {purpose}", soft_wrap=True)
    out.print("\nThe rest:")
    out.print("  exchequer --help                   all commands")
    out.print("  exchequer COMMAND --help           what one of them takes")
    documents = f"{ROOT}/docs/README.md" if checkout else "docs/README.md of the repository"
    out.print(f"  documents: {documents}", soft_wrap=True)


@app.callback(invoke_without_command=True)
def _chosen(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="EXCHEQUER_PROFILE",
            help="The server and person, as kept by login.",
            autocompletion=completion.profiles,
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version, the commit and Python.",
        ),
    ] = False,
) -> None:
    """Privacy budgets of sensitive text datasets, and the jobs that spend them."""
    Selected.name = profile or None
    if context.invoked_subcommand is None:
        _show_first_steps()


for function, name, panel in (
    (stack.up, "up", LOCAL),
    (stack.down, "down", LOCAL),
    (stack.status, "status", LOCAL),
    (demo, "demo", LOCAL),
    (session.login, "login", LOCAL),
    (session.logout, "logout", LOCAL),
    (session.whoami, "whoami", LOCAL),
    (session.list_profiles, "profiles", LOCAL),
    (session.password, "password", LOCAL),
    (policy.allow, "allow", WORK),
    (policy.policy, "policy", WORK),
    (ask, "ask", WORK),
    (jobs.submit, "submit", WORK),
    (jobs.list_jobs, "jobs", WORK),
    (jobs.show_job, "job", WORK),
    (jobs.cancel, "cancel", WORK),
    (jobs.comment, "comment", WORK),
    (decisions.decisions, "decisions", WORK),
    (decisions.answer, "answer", WORK),
    (decisions.approve, "approve", WORK),
    (decisions.refuse, "refuse", WORK),
    (decisions.offer, "offer", WORK),
    (decisions.correct, "correct", WORK),
    (results.result, "result", WORK),
    (results.card, "card", WORK),
    (evaluation.evaluate, "evaluate", WORK),
    (results.list_artifacts, "artifacts", WORK),
    (results.artifact, "artifact", WORK),
    (models.list_mechanisms, "mechanisms", LOOK),
    (price, "price", LOOK),
    (verify, "verify", LOOK),
    (oversight.spending, "spending", LOOK),
    (oversight.report, "report", LOOK),
    (oversight.refusals, "refusals", LOOK),
    (oversight.activity, "activity", LOOK),
    (oversight.sign_ins, "sign-ins", LOOK),
):
    app.command(name, rich_help_panel=panel)(function)
for group, name, panel in (
    (people.users, "user", LOCAL),
    (people.tokens, "token", LOCAL),
    (people.admin, "admin", LOCAL),
    (people.maintenance, "maintenance", LOCAL),
    (notices.notices, "notice", LOCAL),
    (data.datasets, "dataset", WORK),
    (charges.charges, "charge", WORK),
    (data.uploads, "upload", WORK),
    (models.models, "model", WORK),
    (models.corpora, "corpus", WORK),
    (ledger.ledgers, "ledger", LOOK),
    (oversight.registry, "registry", LOOK),
    (evaluation.audits, "audit", LOOK),
):
    app.add_typer(group, name=name, rich_help_panel=panel)
