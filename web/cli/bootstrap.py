"""What the local stack needs before anybody can sign in, straight to its database.

Whoever can read the stack's home may do anything with it anyway; across the web, accounts are made by
administrators only.
"""

import importlib
import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from accountant.core.errors import Conflict
from accountant.settings import Settings, load
from web.cli.output import Failed

STEWARD = "steward"
STEWARD_ROLES = ("steward", "administrator")


def settings() -> Settings:
    """The settings of the local stack; the bundled sample may always be read, as nobody is in it."""
    configured = load()
    folder = str(sample().HERE)
    roots = {name: getattr(configured, name) for name in ("data_roots", "model_roots")}
    added = {
        name: "|".join(each for each in (value, folder) if each)
        for name, value in roots.items()
        if folder not in value.split("|")
    }
    return configured.model_copy(update=added)


def sample() -> Any:
    """The constants of workers.sample: names and paths, no code that runs.

    Imported by name because the web never imports what workers run.
    """
    return importlib.import_module("workers.sample")


def engine(configured: Settings) -> Any:
    """The database of the local stack, or the one that DATABASE_URL names."""
    try:
        from accountant.database import engine_for
        from web.local import environment
    except ModuleNotFoundError as error:
        raise missing_part(error) from None
    return engine_for(environment(configured)["DATABASE_URL"])


def missing_part(error: ModuleNotFoundError) -> Failed:
    """The client was installed without what the local stack needs."""
    return Failed(
        f"{error.name} is not installed: the local stack needs `pip install exchequer[server,worker]`"
    )


def new_password() -> str:
    """96 random bits, to be typed once."""
    return secrets.token_urlsafe(12)


def create_person(configured: Settings, name: str, roles: tuple[str, ...], password: str) -> None:
    """A new account in the database. Raises Conflict where there is one."""
    from argon2 import PasswordHasher

    from accountant import registry

    registry.add_user(engine(configured), name, PasswordHasher().hash(password), list(roles))


def ensure_person(configured: Settings, name: str, roles: tuple[str, ...]) -> str | None:
    """The password of a new account, kept in the home's keys too; None where the account exists."""
    from accountant import registry

    if registry.find_user(engine(configured), name=name) is not None:
        return None
    password = new_password()
    with suppress(Conflict):  # somebody was first, or the account was closed: it is left as it is
        create_person(configured, name, roles, password)
        _keep(password_file(configured, name), password)
        return password
    return None


def password_file(configured: Settings, name: str) -> Path:
    """Where the generated password of an account of the local stack is kept."""
    return configured.home / "keys" / f"{name}-password"


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")


def issue_token(configured: Settings, name: str) -> str:
    """A token for an account of the local stack, as long as a session."""
    from accountant import registry

    database = engine(configured)
    user = registry.find_user(database, name=name)
    if user is None:
        raise Failed(f"the account {name!r} is closed or missing. Sign in as another with `exchequer login`.")
    ends = datetime.now(UTC) + timedelta(hours=configured.session_hours)
    return registry.add_token(database, user.id, "command line", ends)
