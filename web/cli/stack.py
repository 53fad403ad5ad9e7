"""`up`, `down`, `status`, `login`, `whoami`, `user`, `admin`: the local stack, and people."""

import os
import sys
from typing import Annotated

import typer

from accountant.core.errors import ExchequerError, invalid
from accountant.settings import Settings
from web.cli import bootstrap, profile
from web.cli.output import UNREACHABLE, Failed, note, out, print_json, say, stop, table
from web.client import ApiProblem, Client

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Roles = Annotated[
    list[str], typer.Option("--role", help="steward, analyst, auditor or administrator; repeat it.")
]


def up() -> None:
    """Start the local stack: servers, web and workers. Makes the first account on a first start."""
    configured = bootstrap.settings()
    address = start(configured)
    password = bootstrap.first_account(configured)
    say(f"the page: {address}")
    try:
        sign_in_here(configured, address)
    except Failed as error:  # the stack is up all the same
        note(str(error))
    if password is not None:
        kept = bootstrap.password_file(configured, bootstrap.STEWARD)
        say(f"sign in as {bootstrap.STEWARD} with {password}  (shown once, kept in {kept})")


def start(configured: Settings) -> str:
    """Start the stack, or find it running; returns the page's address."""
    bootstrap.require_packages()
    from web import local

    try:
        return local.up(configured, on_progress=note).address
    except local.StackError as error:
        note(error.log)
        where = configured.home / "logs"
        raise Failed(
            f"{error.process} {error.reason}. Its log is in {where}; then `exchequer up` again."
        ) from None


def sign_in_here(configured: Settings, address: str) -> None:
    """Keep whoever is signed in to this stack; else sign in as its steward."""
    token = profile.read()["servers"].get(address, {}).get("token")
    name = bootstrap.STEWARD
    if token is not None:
        try:
            with Client(address, token) as client:
                name = client.me()["name"]
        except ExchequerError:  # it expired, or belongs to an earlier stack at this address
            token = None
    profile.write(address, name, token or bootstrap.issue_token(configured, name))


def down() -> None:
    """Stop the local stack. It keeps its data."""
    from web import local

    try:
        local.down(bootstrap.settings(), on_progress=note)
    except local.StackError as error:
        note(error.log)
        raise Failed(f"{error.process} {error.reason}. Run `exchequer down` again.") from None
    say("the local stack is stopped")


def status(as_json: Json = False) -> None:
    """Say what runs. Exit code 3 where the local stack is not running."""
    from web import local

    configured = bootstrap.settings()
    found = local.status(configured)
    if as_json:
        print_json(found.model_dump(exclude={"database_url", "broker_url"}))
    else:
        say(
            f"{found.phase}; the page: {found.address}" if found.running else f"{found.phase}; `exchequer up`"
        )
        if found.processes:
            rows = [(each.name, each.state, each.pid, each.restarts) for each in found.processes]
            out.print(table(["process", "state", "pid", "restarts"], rows, right="pid restarts"))
    if not found.running:
        stop(UNREACHABLE)
    excess = bootstrap.excess_rights(configured)
    if excess:
        note(
            f"one database role owns the ledger and serves it: it could {', '.join(excess)} entries, or "
            "disable their triggers. Set DATABASE_OWNER_URL for migrations, and in DATABASE_URL another role."
        )


def login(
    name: Annotated[str, typer.Option(help="Your account.", prompt=True)],
    url: Annotated[str | None, typer.Option(help="The server's address.")] = None,
) -> None:
    """Sign in and keep the token. The password is asked for, or read from EXCHEQUER_PASSWORD."""
    address = (url or profile.server_url()).rstrip("/")
    password = os.environ.get("EXCHEQUER_PASSWORD") or _ask_password()
    with Client(address) as client:
        try:
            session = client.sign_in(name, password)
        except ApiProblem as problem:
            if problem.status != 401:
                raise
            raise Failed(f"{address} does not know this name with this password. Try again.") from None
    profile.write(address, session["name"], session["token"])
    roles = ", ".join(session["roles"])
    say(f"signed in to {address} as {session['name']} ({roles}) until {session['expires_at']}")


def _ask_password() -> str:
    if not sys.stdin.isatty():
        raise invalid("EXCHEQUER_PASSWORD", "not set, and nobody is here to be asked", "your password")
    return str(typer.prompt("Password", hide_input=True, err=True))


def whoami(as_json: Json = False) -> None:
    """Say who you are signed in as, and where."""
    with profile.connect() as client:
        me = client.me()
        if as_json:
            print_json({"url": client.url} | me)
        else:
            say(f"{me['name']} ({', '.join(me['roles'])}) at {client.url}")


users = typer.Typer(help="Accounts (administrators).", no_args_is_help=True)


@users.command("add")
def add_user(
    name: str,
    role: Roles,
    password: Annotated[str | None, typer.Option(help="[generated and printed]")] = None,
    as_json: Json = False,
) -> None:
    """Make an account."""
    chosen = password or bootstrap.new_password()
    with profile.connect() as client:
        client.add_user(name, chosen, role)
    _show_account(name, role, None if password else chosen, as_json)


@users.command("list")
def list_users(as_json: Json = False) -> None:
    """List accounts."""
    with profile.connect() as client:
        found = client.users()
    if as_json:
        print_json(found)
    else:
        out.print(table(["name", "roles"], [(each["name"], ", ".join(each["roles"])) for each in found]))


admin = typer.Typer(help="Acts on the database itself, where no web server is needed.", no_args_is_help=True)


@admin.callback()
def _admin() -> None:
    """Makes `admin` a group."""


@admin.command("create-user")
def create_user(
    name: str,
    role: Roles,
    password: Annotated[str | None, typer.Option(help="[generated and printed]")] = None,
    as_json: Json = False,
) -> None:
    """Make an account straight in the database (DATABASE_URL, or the local stack's)."""
    chosen = password or bootstrap.new_password()
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
    _show_account(name, role, None if password else chosen, as_json)


@admin.command("unlock")
def unlock(name: str) -> None:
    """Forget the failures to sign in to an account, where no administrator can do it on the page."""
    from accountant import people

    people.unlock(bootstrap.engine(bootstrap.settings()), None, name)
    say(f"{name} can sign in again")


@admin.command("rotate-key")
def rotate_key() -> None:
    """Replace the key that signs checkpoints; the old key signs the introduction of the new one."""
    from web.cli.keys import rotate

    say(f"checkpoints are signed by key {rotate(bootstrap.settings())} from now on")


def _show_account(name: str, roles: list[str], generated: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "roles": roles, "password": generated})
        return
    say(f"made the account {name} ({', '.join(roles)})")
    if generated is not None:
        say(f"its password, shown once: {generated}")
