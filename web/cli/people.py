"""`user`, `admin`: accounts, by an administrator or straight in the database."""

from typing import Annotated

import typer

from accountant.core.errors import ExchequerError
from web.cli import bootstrap
from web.cli.options import Json
from web.cli.output import Failed, out, print_json, say, table
from web.cli.profile import connect

Roles = Annotated[
    list[str], typer.Option("--role", help="steward, analyst, auditor or administrator; repeat it.")
]

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
    with connect() as client:
        client.add_user(name, chosen, role)
    _show_account(name, role, None if password else chosen, as_json)


@users.command("list")
def list_users(as_json: Json = False) -> None:
    """List accounts."""
    with connect() as client:
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


@admin.command("rotate-key")
def rotate_key(as_json: Json = False) -> None:
    """Replace the key that signs checkpoints; the old key signs the introduction of the new one."""
    from web.cli.keys import rotate

    key = rotate(bootstrap.settings())
    print_json({"key": key}) if as_json else say(f"checkpoints are signed by key {key} from now on")


def _show_account(name: str, roles: list[str], generated: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "roles": roles, "password": generated})
        return
    say(f"made the account {name} ({', '.join(roles)})")
    if generated is not None:
        say(f"its password, shown once: {generated}")
