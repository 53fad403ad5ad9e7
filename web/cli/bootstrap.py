"""Setup of the local stack before anybody can sign in, made directly in its database.

Read access to the stack's home already gives full control; over the web, only administrators make
accounts.
"""

import importlib
import importlib.util
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from accountant.core.errors import Conflict
from accountant.core.files.private import private_draft
from accountant.settings import Settings, load
from web.cli import failures
from web.cli.output import Failed

T = TypeVar("T")

STEWARD = "steward"
STEWARD_ROLES = ("steward", "administrator")


def settings() -> Settings:
    """Return the settings of the local stack. Raises Failed where the service is not installed.

    Workers may always read the bundled sample, as nobody is in it, and what `model get` brought.
    """
    failures.require_installed("this command", "sqlalchemy", "psycopg")
    configured = load()
    sample, brought = str(configured.home / "sample"), str(configured.home.absolute() / "models")
    added = {
        name: "|".join(dict.fromkeys(folder for folder in (*value.split("|"), *folders) if folder))
        for name, value, folders in (
            ("data_roots", configured.data_roots, [sample]),
            ("model_roots", configured.model_roots, [sample, brought]),
        )
    }
    return configured.model_copy(update=added)


def sample() -> Any:
    """Return the constants of workers.sample: names and paths, no code that runs.

    Imported by name because the web never imports what workers run.
    """
    return importlib.import_module("workers.sample")


def kept_sample(configured: Settings) -> Path:
    """Return the bundled model and data in the stack's home, copied there once.

    What is registered there stays readable when this checkout is moved, and stays the same bytes
    when a later version brings another sample.
    """
    folder = configured.home / "sample"
    if not folder.exists():
        bundled = sample()
        draft = configured.home / f".sample-{secrets.token_hex(8)}"
        shutil.copytree(bundled.MODEL_DIR, draft / bundled.MODEL_DIR.name)
        for data in (bundled.PRIVATE_CSV, bundled.PUBLIC_SAMPLE_CSV):
            shutil.copy(data, draft / data.name)
        draft.rename(folder)  # whole or not at all
    return folder


def fingerprints() -> Any:
    """Return workers.data.fingerprints, which shows the key of fingerprints; like `sample`."""
    return importlib.import_module("workers.data.fingerprints")


def signed_places(configured: Settings) -> Any:
    """Return where heads of the log were signed: the local stack publishes it without a setting."""
    from accountant.ledger_log.signed import SignedPlaces
    from web.local import environment

    public = environment(configured).get("EXCHEQUER_PUBLIC_LOG")
    return SignedPlaces(public, configured.signed_logs)


def engine(configured: Settings, *, owner: bool = False, mending: bool = False) -> Any:
    """Return the database of the local stack, or the one that DATABASE_URL names.

    Args:
        configured: The settings.
        owner: Connect as DATABASE_OWNER_URL.
        mending: Open a log that is not what was signed, too.
    """
    from accountant.database import engine_for
    from web.local import environment

    variables = environment(configured)
    log = variables.get("EXCHEQUER_LEDGER_LOG")
    url = variables.get("DATABASE_OWNER_URL") if owner else None
    return engine_for(
        url or variables["DATABASE_URL"],
        log,
        signed=signed_places(configured),
        mending=mending,
    )


@contextmanager
def database_up(configured: Settings) -> Iterator[None]:
    """Run the local stack's PostgreSQL for a block, if it is the database and the stack is down."""
    from web import local
    from web.stack.addresses import database_url

    home = configured.home.resolve()
    embedded = local.environment(configured)["DATABASE_URL"] == database_url(home)
    if not embedded or local.status(configured).running:
        yield
        return
    with local.Servers(home, valkey=False):
        yield


def excess_rights(configured: Settings) -> list[str] | None:
    """Return rights of the service's role beyond its work, or None without an answer."""
    from accountant import database

    return _asked(lambda: database.excess_rights(engine(configured)))


def ledger_problem(configured: Settings) -> str | None:
    """Return how the ledgers are not what was logged and signed, and what comes next, or None."""
    from accountant.queries import log_comparison

    problem = _asked(lambda: log_comparison.standing(engine(configured)))
    return None if problem in ("ok", log_comparison.NONE) else problem


def stopped_workers(configured: Settings) -> str | None:
    """Return which workers take no jobs, and why, or None if all do."""
    from accountant.queries import workers

    return _asked(lambda: workers.problem(engine(configured), in_their_words=True))


def _asked(ask: Callable[[], T]) -> T | None:
    """Return the database's answer, or None if it gives none."""
    try:
        return ask()
    except Exception as error:
        # SQLAlchemy's errors can't be named here without importing it for every command.
        if type(error).__module__.startswith("sqlalchemy"):
            return None
        raise


def new_password() -> str:
    """96 random bits, to be typed once."""
    return secrets.token_urlsafe(12)


def create_person(configured: Settings, name: str, roles: tuple[str, ...], password: str) -> None:
    """A new account in the database. Raises Conflict where there is one."""
    database = engine(configured)
    from accountant.identities import credentials
    from web.passwords import hash_password

    credentials.add_user(database, name, hash_password(password, name), list(roles))


def ensure_person(configured: Settings, name: str, roles: tuple[str, ...]) -> str | None:
    """Return a new account's password, kept among the keys too, or None if it exists."""
    from accountant.identities import credentials

    if credentials.find_user(engine(configured), name=name) is not None:
        return None
    password = new_password()
    path = password_file(configured, name)
    # The password is on the disk before the account is made. An account that somebody else made
    # first, or that was closed, is left as it is.
    with private_draft(path, password + "\n") as draft, suppress(Conflict):
        create_person(configured, name, roles, password)
        draft.replace(path)
        return password
    return None


def first_account(configured: Settings) -> str | None:
    """Make the steward's account where there is none at all; the password, where one was made."""
    from accountant.identities import people
    from accountant.identities.actor import Actor

    nobody = Actor(UUID(int=0), "bootstrap", frozenset({"administrator"}))
    if people.listing(engine(configured), nobody, limit=1):
        return None
    return ensure_person(configured, STEWARD, STEWARD_ROLES)


def password_file(configured: Settings, name: str) -> Path:
    """Return the path of the generated password of a local stack's account."""
    return configured.home / "keys" / f"{name}-password"


def issue_token(configured: Settings, name: str) -> str:
    """Return a token for a local account, as long as a session. Raises Failed if it is closed."""
    from accountant.identities import credentials

    database = engine(configured)
    user = credentials.find_user(database, name=name)
    if user is None:
        raise Failed(
            f"there is no open account {name!r}. Sign in as another with `exchequer login`."
        )
    ends = datetime.now(UTC) + timedelta(hours=configured.session_hours)
    return credentials.add_token(database, user.id, "command line", ends, by_sign_in=True)
