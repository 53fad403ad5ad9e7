"""`user`, `token`, `admin`: accounts, by an administrator or straight in the database."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.core.errors import ExchequerError, invalid
from web.cli import bootstrap
from web.cli.answers import Answer, Group
from web.cli.output import Failed, facts, note, table
from web.cli.session import connect

Roles = Annotated[
    list[str], typer.Option("--role", help="steward, analyst, auditor or administrator; repeat it.")
]

PasswordStdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help="Read a password that you choose from standard input; a terminal asks. [generated and "
        "printed]",
    ),
]
#: Not to be used: it says what to use.
PasswordArgument = Annotated[str | None, typer.Option("--password", hidden=True)]

users = Group(help="Accounts (administrators).", no_args_is_help=True)


@users.command("add")
def add_user(
    name: str,
    role: Roles,
    password_stdin: PasswordStdin = False,
    password: PasswordArgument = None,
) -> Answer:
    """Make an account."""
    chosen = _password(password_stdin, password)
    with connect() as client:
        client.add_user(name, chosen, role)
    yield from _account(name, role, None if password_stdin else chosen)


def _password(from_stdin: bool, argument: str | None) -> str:
    """Return a new account's password: the first line of standard input, asked for at a terminal,
    or made here.
    """
    if argument is not None:
        raise invalid(
            "--password",
            "everybody on this machine sees arguments, and shells keep them",
            "--password-stdin, as in `exchequer user add NAME --role ROLE --password-stdin < FILE`",
        )
    if not from_stdin:
        return bootstrap.new_password()
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise invalid("--password-stdin", "standard input holds no password", "a line with one")
    return text


@users.command("list")
def list_users() -> Answer:
    """List accounts."""
    with connect() as client:
        users = client.users()
    yield users
    yield table(["name", "roles"], [(user["name"], ", ".join(user["roles"])) for user in users])


@users.command("show")
def show_user(name: str) -> Answer:
    """Show one account, with its tokens."""
    with connect() as client:
        user = {**client.user(name), "tokens": client.user_tokens(name)}
    yield user
    rows = [
        (field.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else value)
        for field, value in user.items()
        if field != "tokens"
    ]
    yield facts(rows)
    yield tokens_table(user["tokens"])


@users.command("roles")
def set_roles(name: str, role: Roles) -> Answer:
    """Give an account other roles, instead of those that it has."""
    with connect() as client:
        person = client.set_roles(name, role)
    yield person
    yield f"{name}: {', '.join(person['roles'])}"


ACTS = {
    "close": ("deactivate", "closed", "Close an account: its sessions and tokens end at once."),
    "open": ("activate", "open again", "Let a closed account sign in again."),
    "reset-password": ("reset-password", "reset", "Give an account a one-time password."),
    "unlock": ("unlock", "unlocked", "Forget the failures to sign in to an account."),
    "sign-out": (
        "sign-out",
        "signed out",
        "Sign an account out on each device, and end its tokens of sign-ins.",
    ),
    "revoke-tokens": ("revoke-tokens", "its tokens are ended", "End every token of an account."),
}


def _command(act: str, done: str, text: str) -> Callable[..., Answer]:
    def command(name: str) -> Answer:
        with connect() as client:
            person = client.act_on_user(name, act)
        yield person
        yield f"{name}: {done}"
        if person.get("password"):
            yield f"its one-time password, shown once: {person['password']}"

    command.__doc__ = text
    return command


for _name, (_act_name, _done, _text) in ACTS.items():
    users.command(_name)(_command(_act_name, _done, _text))


# --- maintenance ----------------------------------------------------------------------------------

maintenance = Group(help="Stop admissions for a while (administrators).", no_args_is_help=True)


@maintenance.command("on")
def begin_maintenance(
    reason: Annotated[str, typer.Option(help="A sentence that everybody reads.")],
) -> Answer:
    """Admit nothing and begin no job until `maintenance off`; what runs goes on."""
    with connect() as client:
        state = client.set_maintenance(True, reason)
    yield state
    yield f"on: {state['running_jobs']} jobs still run (`exchequer maintenance show`)"


@maintenance.command("off")
def end_maintenance(
    reason: Annotated[str, typer.Option(help="For the log of who did what.")] = "done",
) -> Answer:
    """Admit and begin jobs again."""
    with connect() as client:
        state = client.set_maintenance(False, reason)
    yield state
    yield "off: waiting jobs begin within two minutes"


@maintenance.command("show")
def show_maintenance() -> Answer:
    """Say whether maintenance is on, and how many jobs still run."""
    with connect() as client:
        state = client.maintenance()
    yield state
    yield facts([(name.replace("_", " "), str(value)) for name, value in state.items()])


# --- tokens ---------------------------------------------------------------------------------------

tokens = Group(help="Your own tokens, for programs.", no_args_is_help=True)


@tokens.command("add")
def add_token(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="read, jobs:submit, budget:approve, data:manage, admin."),
    ],
    days: Annotated[int, typer.Option(min=1, help="Until it ends.")] = 30,
) -> Answer:
    """Make a token that may do some of what you may. It is shown once."""
    with connect() as client:
        token = client.add_token(name, scope, days)
    yield token
    yield str(token["token"])
    note(f"shown once; it ends {token['expires_at']}. Use it: exchequer login URL --token-stdin")


@tokens.command("list")
def list_tokens() -> Answer:
    """List your tokens that work; never the tokens themselves."""
    with connect() as client:
        tokens = client.tokens()
    yield tokens
    yield tokens_table(tokens)


def tokens_table(found: list[dict[str, Any]]) -> Table:
    """Return tokens as rows."""
    rows = [
        (
            token["id"],
            token["name"],
            ", ".join(token["scopes"]),
            (token["expires_at"] or "never")[:10],
        )
        for token in found
    ]
    return table(["id", "for", "may", "until"], rows, whole="id until")


@tokens.command("revoke")
def revoke_token(token_id: Annotated[str, typer.Argument(metavar="ID")]) -> Answer:
    """End a token."""
    with connect() as client:
        token = client.revoke_token(token_id)
    yield token
    yield f"token {token_id} is ended"


admin = Group(
    help="Acts on the database itself, where no web server is needed.", no_args_is_help=True
)


@admin.callback()
def _admin() -> None:
    """Makes `admin` a group."""


@admin.command("create-user")
def create_user(
    name: str,
    role: Roles,
    password_stdin: PasswordStdin = False,
    password: PasswordArgument = None,
) -> Answer:
    """Make an account straight in the database (DATABASE_URL, or the local stack's)."""
    chosen = _password(password_stdin, password)
    try:
        bootstrap.create_person(bootstrap.settings(), name, tuple(role), chosen)
    except ExchequerError:
        raise
    except Exception as error:
        # SQLAlchemy's errors can't be named here without importing it for every command.
        if type(error).__module__.startswith("sqlalchemy"):
            raise Failed(
                "the database can't be used. Start it with `exchequer up`, or set DATABASE_URL; "
                f"the reason: {str(error).splitlines()[0]}"
            ) from None
        raise
    yield from _account(name, role, None if password_stdin else chosen)


@admin.command("unlock")
def unlock(name: str) -> Answer:
    """Forget the failures to sign in to an account, where no administrator can do it on the
    page.
    """
    engine = bootstrap.engine(bootstrap.settings())
    from accountant.identities import people

    people.unlock(engine, None, name)
    yield {"name": name}
    yield f"{name} can sign in again"


@admin.command("rotate-key")
def rotate_key() -> Answer:
    """Replace the key that signs checkpoints; the old key signs the introduction of the new one."""
    from web.cli.keys import rotate

    key = rotate(bootstrap.settings())
    yield {"key": key}
    yield f"checkpoints are signed by key {key} from now on"


def _account(name: str, roles: list[str], generated: str | None) -> Answer:
    yield {"name": name, "roles": roles, "password": generated}
    yield f"made the account {name} ({', '.join(roles)})"
    if generated is not None:
        yield f"its password, shown once: {generated}"
