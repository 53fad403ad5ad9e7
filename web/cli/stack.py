"""`up`, `down`, `status`: the local stack."""

from accountant.core.errors import ExchequerError
from accountant.settings import Settings
from web.cli import bootstrap, installation
from web.cli.answers import Answer
from web.cli.options import Json
from web.cli.output import UNREACHABLE, Failed, note, print_json, say, stop, table
from web.client import profiles
from web.client.api import Api
from web.client.profiles import Profile


def up(as_json: Json = False) -> None:
    """Start the local stack: servers, web and workers. Makes the first account on a first start."""
    configured = bootstrap.settings()
    address = start(configured)
    password = bootstrap.first_account(configured)
    if not as_json:
        say(f"the page: {address}")
    try:
        sign_in_here(configured, address)
    except Failed as error:  # the stack is up all the same
        note(str(error))
    if as_json:
        made = None if password is None else {"name": bootstrap.STEWARD, "password": password}
        print_json({"address": address, "first_account": made})
    elif password is not None:
        kept = bootstrap.password_file(configured, bootstrap.STEWARD)
        say(f"sign in as {bootstrap.STEWARD} with {password}  (shown once, kept in {kept})")


def start(configured: Settings) -> str:
    """Start the stack, or find it running; returns the page's address."""
    installation.require("the local stack", "flask", "celery", "torch")
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
    """Sign in to this stack as its steward, unless somebody is signed in to it already."""
    known = profiles.read().known
    kept_as = next((name for name, each in known.items() if each.url == address and each.token), None)
    name, token = bootstrap.STEWARD, known[kept_as].token if kept_as is not None else None
    if token is not None:
        try:
            with Api(address, token) as client:
                name = client.me()["name"]
        except ExchequerError:  # it expired, or belongs to an earlier stack at this address
            token = None
    made = Profile(address, name, token or bootstrap.issue_token(configured, name))
    profiles.keep(made, kept_as)


def down() -> Answer:
    """Stop the local stack. It keeps its data."""
    configured = bootstrap.settings()
    from web import local

    try:
        local.down(configured, on_progress=note)
    except local.StackError as error:
        note(error.log)
        raise Failed(f"{error.process} {error.reason}. Run `exchequer down` again.") from None
    yield {"running": False}
    yield "the local stack is stopped"


def status() -> Answer:
    """Say what runs. Exit code 3 where the local stack is not running."""
    configured = bootstrap.settings()
    from web import local

    found = local.status(configured)
    yield found.model_dump(exclude={"database_url", "broker_url"})
    yield f"{found.phase}; the page: {found.address}" if found.running else f"{found.phase}; `exchequer up`"
    if found.processes:
        rows = [(each.name, each.state, each.pid, each.restarts) for each in found.processes]
        yield table(["process", "state", "pid", "restarts"], rows, right="pid restarts")
    if not found.running:
        stop(UNREACHABLE)
    excess = bootstrap.excess_rights(configured)
    if excess:
        note(
            f"one database role owns the ledger and serves it: it could {', '.join(excess)} entries, or "
            "disable their triggers. Set DATABASE_OWNER_URL for migrations, and in DATABASE_URL another role."
        )
