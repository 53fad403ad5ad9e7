"""`user`, `token` and `key rotate`: accounts, by an administrator or on the database itself."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.core.errors import invalid
from web.cli import bootstrap
from web.cli.answers import Answer
from web.cli.options import Database
from web.cli.output import Failed, facts, minute, note, table
from web.cli.session import connect

Roles = Annotated[
    list[str],
    typer.Option(
        "--role", metavar="steward|analyst|auditor|administrator", help="A role; repeat it."
    ),
]

PasswordStdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help="Read the password from standard input. [made here and shown]",
    ),
]
#: Not to be used: it says what to use.
PasswordArgument = Annotated[str | None, typer.Option("--password", hidden=True)]


def add_user(
    name: str,
    role: Roles,
    password_stdin: PasswordStdin = False,
    password: PasswordArgument = None,
    database: Database = False,
) -> Answer:
    """Make an account."""
    chosen = _password(password_stdin, password)
    if database:
        _create(name, role, chosen)
    else:
        with connect() as client:
            client.add_user(name, chosen, role)
    generated = None if password_stdin else chosen
    yield {"name": name, "roles": role, "password": generated}
    yield f"made the account {name} ({', '.join(role)})"
    if generated is not None:
        yield f"its password, shown once: {generated}"


def _create(name: str, role: list[str], password: str) -> None:
    """Make an account in the database itself. Raises Failed if it does not answer."""
    try:
        bootstrap.create_person(bootstrap.settings(), name, tuple(role), password)
    except Exception as error:
        # SQLAlchemy's errors can't be named here without importing it for every command.
        if not type(error).__module__.startswith("sqlalchemy"):
            raise
        raise Failed(
            "the database can't be used. Start it with `exchequer stack up`, or set DATABASE_URL; "
            f"the reason: {str(error).splitlines()[0]}"
        ) from None


def _password(from_stdin: bool, argument: str | None) -> str:
    """Return a new account's password: read from standard input or a terminal, or made here."""
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


def list_users() -> Answer:
    """List accounts."""
    with connect() as client:
        users = client.users()
    yield users
    yield table(["name", "roles"], [(user["name"], ", ".join(user["roles"])) for user in users])


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


def set_roles(name: str, role: Roles) -> Answer:
    """Replace the roles of an account."""
    with connect() as client:
        person = client.set_roles(name, role)
    yield person
    yield f"{name}: {', '.join(person['roles'])}"


ACTS = {
    "close": ("deactivate", "closed", "Close an account: its sessions and tokens end at once."),
    "open": ("activate", "open again", "Let a closed account sign in again."),
    "reset-password": ("reset-password", "reset", "Give an account a password for one use."),
    "sign-out": (
        "sign-out",
        "signed out",
        "Sign an account out on each device.",
    ),
    "revoke-tokens": ("revoke-tokens", "its tokens are ended", "End all the tokens of an account."),
}


def act(act: str, done: str, text: str) -> Callable[..., Answer]:
    """Return the command of one act on an account."""

    def command(name: str) -> Answer:
        with connect() as client:
            person = client.act_on_user(name, act)
        yield person
        yield f"{name}: {done}"
        if person.get("password"):
            yield f"its one-time password, shown once: {person['password']}"

    command.__doc__ = text
    return command


# --- maintenance ----------------------------------------------------------------------------------


def begin_maintenance(
    reason: Annotated[str, typer.Option(help="Why, for all who read it.")],
) -> Answer:
    """Let no job begin until `maintenance off`. What runs goes on."""
    with connect() as client:
        state = client.set_maintenance(True, reason)
    yield state
    yield f"on: {state['running_jobs']} jobs still run (`exchequer maintenance show`)"


def end_maintenance(
    reason: Annotated[str, typer.Option(help="For the log of who did what.")] = "done",
) -> Answer:
    """Let jobs begin again."""
    with connect() as client:
        state = client.set_maintenance(False, reason)
    yield state
    yield "off: waiting jobs begin within two minutes"


def show_maintenance() -> Answer:
    """Show if it is on, and how many jobs still run."""
    with connect() as client:
        state = client.maintenance()
    yield state
    yield facts([(name.replace("_", " "), str(value)) for name, value in state.items()])


# --- tokens ---------------------------------------------------------------------------------------


def add_token(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="read|jobs:submit|budget:approve|data:manage|admin",
            help="What it may do; repeat it.",
        ),
    ],
    days: Annotated[int, typer.Option(min=1, help="Until it ends.")] = 30,
) -> Answer:
    """Make a token that may do some of what you may do."""
    with connect() as client:
        token = client.add_token(name, scope, days)
    yield token
    yield str(token["token"])
    note(
        f"shown once; it ends {minute(token['expires_at'])} UTC. "
        "Use it: exchequer login URL --token-stdin"
    )


def list_tokens() -> Answer:
    """List your tokens by name."""
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


def revoke_token(token_id: Annotated[str, typer.Argument(metavar="ID")]) -> Answer:
    """End a token."""
    with connect() as client:
        token = client.revoke_token(token_id)
    yield token
    yield f"token {token_id} is ended"


def unlock(name: str, database: Database = False) -> Answer:
    """Forget an account's failed tries to sign in."""
    if database:
        engine = bootstrap.engine(bootstrap.settings())
        from accountant.identities import people

        people.unlock(engine, None, name)
        yield {"name": name}
    else:
        with connect() as client:
            yield client.act_on_user(name, "unlock")
    yield f"{name} can sign in again"


def rotate_key() -> Answer:
    """Replace the key that signs ledgers. The old key signs the new one."""
    from web.cli.keys import rotate

    key = rotate(bootstrap.settings())
    yield {"key": key}
    yield f"checkpoints are signed by key {key} from now on"
