"""The tree of commands, and the one place where expected errors become sentences and exit codes."""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
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
from web.cli.answers import prepared
from web.cli.ask import ask
from web.cli.output import BAD_INPUT, Mode, out
from web.cli.price import price
from web.cli.session import Selected
from web.cli.verify import verify
from web.version import describe, is_checkout

# Typer does not export the base of its own complaints about usage.
USAGE: type[Exception] = typer.BadParameter.__mro__[1]


class Noun(typer.core.TyperGroup):
    """The commands of a noun: shown without a word, and the nearest named for a wrong one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            out.print(ctx.get_help(), soft_wrap=True)
            raise typer.Exit(BAD_INPUT if ctx.parent else 0)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            visible = {name: each for name, each in self.commands.items() if not each.hidden}
            verbs = [
                f"{noun} {word}"
                for noun, each in visible.items()
                if word in getattr(each, "commands", {})
            ]
            near = verbs[:3] or get_close_matches(word, visible, n=2)
            meant = " or ".join(f"`{ctx.command_path} {name}`" for name in near)
            hint = f" Did you mean {meant}?" if near else ""
            ctx.fail(f"{ctx.command_path} has no command {word!r}.{hint}")
        return super().resolve_command(ctx, args)


class Jobs(Noun):
    """The commands of jobs. `job ID` is a short form of `job show ID`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if re.fullmatch(r"[0-9a-f-]{8,}|\d+", args[0]):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


class Commands(Noun):
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
            raise typer.Exit(failures.report_usage(error)) from None

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            param.hidden = param.hidden or param.name.endswith("_completion")
        return params

    def list_commands(self, _ctx: Any) -> list[str]:
        return [*TREE, *ALIASES]

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Give the first twelve a sentence each, and name the rest below them."""
        names, width = list(TREE), formatter.width
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(width)) for name in names[:TOP]]
            )
        formatter.write("\n")
        formatter.write_text(f"More: {', '.join(names[TOP:])}.")


def demo(
    model: Annotated[
        str | None,
        typer.Option(metavar="smollm2", help="A pretrained model. [the small one that is bundled]"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print why each step is taken, and figures.")
    ] = False,
) -> None:
    """Watch a made-up job from its price to its proof."""
    from web.cli.demo import SAMPLE, run

    run(model or SAMPLE, verbose)


#: The commands that the first page gives a sentence each.
TOP = 12

#: Every command, by its noun and verb; a few are verbs alone.
TREE: dict[str, Any] = {
    "demo": demo,
    "stack": (
        "Start, stop and check the service on this machine.",
        {"up": stack.up, "down": stack.down, "status": stack.status},
    ),
    "login": session.login,
    "dataset": (
        "Add data, and say what may be spent on it.",
        {
            "list": data.list_datasets,
            "show": data.show_dataset,
            "add": data.add_dataset,
            "correct": data.correct_dataset,
            "add-version": data.add_version,
            "allow": policy.allow,
            "policy": policy.policy,
            "spending": oversight.spending,
            "report": oversight.report,
        },
    ),
    "model": (
        "Add the models that write texts.",
        {"list": models.list_models, "get": models.get_model, "add": models.add_model},
    ),
    "ask": ask,
    "price": price,
    "job": (
        "Send jobs, decide on them, and save what they made.",
        {
            "submit": jobs.submit,
            "list": jobs.list_jobs,
            "show": jobs.show_job,
            "cancel": jobs.cancel,
            "comment": jobs.comment,
            "approve": decisions.approve,
            "refuse": decisions.refuse,
            "offer": decisions.offer,
            "correct": decisions.correct,
            "result": results.result,
            "card": results.card,
            "push": results.push,
            "evaluate": evaluation.evaluate,
            "refused": oversight.refusals,
        },
    ),
    "decision": (
        "See and answer what waits for a second person.",
        {
            "list": decisions.list_decisions,
            "show": decisions.show_decision,
            "answer": decisions.answer,
        },
    ),
    "charge": (
        "Charge for what other programs release.",
        {
            "key": charges.make_key,
            "begin": charges.begin,
            "alive": charges.alive,
            "settle": charges.settle,
            "void": charges.void,
            "declare": charges.declare,
        },
    ),
    "ledger": (
        "Read, save, check and mend the ledger of a dataset.",
        {
            "show": ledger.show,
            "entry": ledger.entry,
            "find": ledger.find,
            "ex-post": ledger.ex_post,
            "export": ledger.export,
            "registry": oversight.export,
            "check": ledger.check,
            "recover": ledger.recover,
            "settle-loss": ledger.settle_loss,
            "new-log": ledger.new_log,
            "publish-log": ledger.publish_log,
        },
    ),
    "verify": verify,
    # From here on only the names stand on the first page.
    "artifact": (
        "See and save what jobs made besides texts.",
        {"list": results.list_artifacts, "get": results.artifact},
    ),
    "audit": (
        "Test on made-up records that jobs leak no more than they state.",
        {"reconstruction": evaluation.reconstruction, "leave-one-out": evaluation.leave_one_out},
    ),
    "checkpoint": (
        "Sign what a ledger is now, and see what was signed.",
        {"add": ledger.checkpoint, "list": ledger.checkpoints},
    ),
    "corpus": ("Add public texts.", {"list": models.list_corpora, "add": models.add_corpus}),
    "key": (
        "See and replace the keys that sign ledgers.",
        {"list": ledger.keys, "rotate": people.rotate_key},
    ),
    "maintenance": (
        "Stop all admissions for a while.",
        {
            "on": people.begin_maintenance,
            "off": people.end_maintenance,
            "show": people.show_maintenance,
        },
    ),
    "mechanism": (
        "See the kinds of job that there are.",
        {"list": models.list_mechanisms, "show": models.show_mechanism},
    ),
    "notice": (
        "Set who is told when something changes.",
        {
            "list": notices.list_notices,
            "add": notices.add,
            "events": notices.events,
            "remove": notices.remove,
            "test": notices.test,
        },
    ),
    "profile": (
        "See where you are signed in, and as whom.",
        {
            "list": session.list_profiles,
            "show": session.whoami,
            "use": session.use_profile,
            "password": session.password,
            "logout": session.logout,
        },
    ),
    "token": (
        "Make and end tokens for your own programs.",
        {"list": people.list_tokens, "add": people.add_token, "revoke": people.revoke_token},
    ),
    "upload": (
        "Send files that become data.",
        {
            "list": data.list_uploads,
            "show": data.show_upload,
            "add": data.add_upload,
            "remove": data.remove_upload,
        },
    ),
    "user": (
        "Add, change and watch accounts.",
        {
            "list": people.list_users,
            "show": people.show_user,
            "add": people.add_user,
            "roles": people.set_roles,
            "unlock": people.unlock,
            **{verb: people.act(*about) for verb, about in people.ACTS.items()},
            "activity": oversight.activity,
            "sign-ins": oversight.sign_ins,
        },
    ),
}

#: Short forms that scripts rely on. No help shows them.
ALIASES: dict[str, Any] = {
    "up": stack.up,
    "down": stack.down,
    "status": stack.status,
    "allow": policy.allow,
    "submit": jobs.submit,
    "jobs": jobs.list_jobs,
    "approve": decisions.approve,
    "refuse": decisions.refuse,
    "result": results.result,
    "push": results.push,
    "registry": ("", {"export": oversight.export}),
}

#: A wheel holds no service.
BEGIN = "exchequer demo" if is_checkout() else "exchequer login URL"


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(describe(), soft_wrap=True)
        raise typer.Exit


def _chosen(
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="EXCHEQUER_PROFILE",
            show_envvar=False,
            help="Who to be, as `login` kept it.",
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
    Selected.name = profile or None


def _add(app: typer.Typer, name: str, about: Any, *, hidden: bool = False) -> None:
    """Add a command, or a noun with its verbs."""
    if callable(about):
        app.command(name, hidden=hidden)(prepared(about))
        return
    text, verbs = about
    noun = typer.Typer(cls=Jobs if name == "job" else Noun, help=text, rich_markup_mode=None)
    for verb, function in verbs.items():
        _add(noun, verb, function)
    app.add_typer(noun, name=name, hidden=hidden)


app = typer.Typer(
    cls=Commands,
    name="exchequer",
    help=f"Spend a privacy budget on texts, and prove it. Begin: `{BEGIN}`.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(_chosen)
for name, about in TREE.items():
    _add(app, name, about)
for name, about in ALIASES.items():
    _add(app, name, about, hidden=True)
