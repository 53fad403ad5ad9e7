"""`stack up | down | status`: the service on this machine."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from accountant.core.errors import ExchequerError
from accountant.settings import Settings
from web.cli import bootstrap, failures
from web.cli.answers import Answer
from web.cli.options import Json
from web.cli.output import UNREACHABLE, Failed, note, print_json, say, stop, table
from web.client import profiles
from web.client.api import Api
from web.client.profiles import Profile

#: What the demo puts before a person's name. Only who names such a profile uses it.
PROFILE = "demo-"


def up(as_json: Json = False) -> None:
    """Start the service here. The first start makes an account for you."""
    configured = bootstrap.settings()
    address = start(configured)
    _tell_ledger_problem(configured)
    password = bootstrap.first_account(configured)
    if not as_json:
        say(f"the page: {address}")
    try:
        sign_in_here(configured, address)
    # the stack is up all the same, as where ~/.config is read-only
    except (Failed, OSError) as error:
        note(str(failures.system_error(error) if isinstance(error, OSError) else error))
    if as_json:
        account = None if password is None else {"name": bootstrap.STEWARD, "password": password}
        print_json({"address": address, "first_account": account})
    elif password is not None:
        password_file = bootstrap.password_file(configured, bootstrap.STEWARD)
        say(
            f"sign in as {bootstrap.STEWARD} with {password}  (shown once, kept in {password_file})"
        )


def start(configured: Settings, on_progress: Callable[[str], None] = note) -> str:
    """Start the stack, or find it running; returns the page's address."""
    failures.require_installed("the local stack", "flask", "celery", "torch")
    from web import local
    from web.stack.addresses import page_address

    former = page_address(configured)
    try:
        address = local.up(configured, on_progress=on_progress).address
    except local.StackError as error:
        if error.log:
            note(error.log)
        remedy = error.remedy or f"Its log is in {configured.home / 'logs'}"
        raise Failed(
            f"{error.process} {error.reason}. {remedy}; then `exchequer stack up` again."
        ) from None
    if address != former:
        _move_profiles(former, address)
    return address


def _tell_ledger_problem(configured: Settings) -> None:
    problem = bootstrap.ledger_problem(configured)
    if problem is not None:
        note(f"{problem} (`exchequer stack down` stops the local stack)")


def _move_profiles(former: str, address: str) -> None:
    """Give this stack's profiles its new address: the old one may be another program's."""
    for name, profile in profiles.read().known.items():
        # Else it is a profile of another stack, which has the former address.
        if profile.url == former and _is_signed_in(address, profile.token):
            profiles.forget(name)
            profiles.keep(
                replace(profile, url=address),
                None if name == profiles.default_name(former) else name,
            )


def sign_in_here(configured: Settings, address: str) -> None:
    """Sign in to this stack as its steward, unless somebody is signed in to it already.

    Says so if commands went to another server before.
    """
    saved = profiles.read()
    here = [
        name
        for name, profile in saved.known.items()
        if profile.url == address and not name.startswith(PROFILE)
    ]
    here.sort(key=lambda name: name != saved.current)  # the profile in use stays in use
    valid = next((name for name in here if _is_signed_in(address, saved.known[name].token)), None)
    if valid is not None:
        profiles.use(valid)
    else:
        token = bootstrap.issue_token(configured, bootstrap.STEWARD)
        profiles.keep(Profile(address, bootstrap.STEWARD, token), here[0] if here else None)
    if saved.current is not None and saved.current not in here:
        note(
            f"commands go to {address} from here on; `exchequer profile use {saved.current}` "
            "goes back"
        )


def _is_signed_in(address: str, token: str | None) -> bool:
    """Return False for no token, one that ended, and one of another stack."""
    with suppress(ExchequerError), Api(address, token) as client:
        return token is not None and bool(client.me())
    return False


def down() -> Answer:
    """Stop the service here. It keeps its data."""
    configured = bootstrap.settings()
    from web import local

    try:
        local.down(configured, on_progress=note)
    except local.StackError as error:
        note(error.log)
        raise Failed(f"{error.process} {error.reason}. Run `exchequer stack down` again.") from None
    yield {"running": False}
    yield "the local stack is stopped"


def status() -> Answer:
    """Show what runs here. The exit code is 3 if the service is down."""
    configured = bootstrap.settings()
    from web import local

    status = local.status(configured)
    yield status.model_dump(exclude={"database_url", "broker_url"})
    yield (
        f"{status.phase}; the page: {status.address}"
        if status.running
        else f"{status.phase}; `exchequer stack up`"
    )
    if status.processes:
        rows = [
            (process.name, process.state, process.pid, process.restarts)
            for process in status.processes
        ]
        yield table(["process", "state", "pid", "restarts"], rows, right="pid restarts")
    if not status.running:
        stop(UNREACHABLE)
    stopped = bootstrap.stopped_workers(configured)
    if stopped:
        note(stopped)
    _tell_ledger_problem(configured)
    excess = bootstrap.excess_rights(configured)
    if excess:
        note(
            f"one database role owns the ledger and serves it: it could {', '.join(excess)} "
            "entries, or disable their triggers. Set DATABASE_OWNER_URL for migrations, and in "
            "DATABASE_URL another role."
        )
