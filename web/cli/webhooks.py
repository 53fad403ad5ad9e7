"""`webhook`, `upload`: addresses that are told of changes, and files that become data."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.core.errors import invalid
from web.cli.answers import Answer, Group
from web.cli.output import facts, table
from web.cli.profile import connect

HookId = Annotated[str, typer.Argument(metavar="ID")]

webhooks = Group(help="Addresses that are told when something changes.", no_args_is_help=True)
uploads = Group(help="Files that become data (stewards).", no_args_is_help=True)


@webhooks.command("add")
def add(
    url: str,
    event: Annotated[list[str], typer.Option("--event", help="Such as job.succeeded; repeat it.")],
    kind: Annotated[
        str, typer.Option(help="webhook (signed), chat, or mail (mailto:NAME@DOMAIN).")
    ] = "webhook",
) -> Answer:
    """Register a webhook, a chat or an address for mail. A webhook's secret is shown once."""
    with connect() as client:
        found = client.add_webhook(url, event, kind=kind)
    yield found
    told = f"; its secret, shown once: {found['secret']}" if kind == "webhook" else ""
    yield f"{kind} {found['id']}{told}"


@webhooks.command("list")
def list_webhooks() -> Answer:
    """List your webhooks."""
    with connect() as client:
        found = client.webhooks()
    yield found
    rows = [(each["id"], each["url"], ", ".join(each["events"])) for each in found]
    nothing = "no webhook yet. Register one: exchequer webhook add URL --event job.succeeded"
    yield table(["id", "address", "events"], rows, whole="id") if rows else nothing


@webhooks.command("show")
def show(hook_id: HookId) -> Answer:
    """Show one webhook."""
    with connect() as client:
        found = client.webhook(hook_id)
    yield found
    yield _facts(found)


def _facts(found: dict[str, Any]) -> Table:
    rows = [(name.replace("_", " "), value) for name, value in found.items() if not isinstance(value, dict)]
    return facts((name, ", ".join(map(str, v)) if isinstance(v, list) else v) for name, v in rows)


@webhooks.command("events")
def events() -> Answer:
    """List what a webhook may be told of."""
    with connect() as client:
        found = client.webhook_events()
    yield found
    yield table(["event", "meaning"], [(each["event"], each["meaning"]) for each in found])


@webhooks.command("remove")
def remove(hook_id: HookId) -> Answer:
    """Forget a webhook and its secret."""
    with connect() as client:
        found = client.remove_webhook(hook_id)
    yield found
    yield f"webhook {hook_id} is removed"


@webhooks.command("deliveries")
def deliveries(
    hook_id: HookId,
    limit: Annotated[int, typer.Option(min=1)] = 50,
) -> Answer:
    """List what was sent to a webhook, newest first."""
    with connect() as client:
        found = list(islice(client.deliveries(hook_id), limit))
    yield found
    rows = [(each["id"], each["event"], each["state"]) for each in found]
    yield table(["delivery", "event", "state"], rows, whole="delivery")


@webhooks.command("redeliver")
def redeliver(
    hook_id: HookId,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY")],
) -> Answer:
    """Send a message again, under the same id."""
    with connect() as client:
        found = client.redeliver(hook_id, delivery)
    yield found
    yield f"delivery {found['delivery']} is sent again"


ACTS = {
    "enable": ("enable", "Tell a disabled webhook again, from now on."),
    "disable": ("disable", "Tell a webhook nothing until it is enabled."),
    "test": ("test", "Send a message that says nothing."),
    "renew-secret": ("secret", "Give a webhook a new secret; it is shown once."),
}


def _command(act: str, text: str) -> Callable[..., Answer]:
    def command(hook_id: HookId) -> Answer:
        with connect() as client:
            found = client.act_on_webhook(hook_id, act)
        yield found
        yield _facts(found)

    command.__doc__ = text
    return command


for _name, (_act, _text) in ACTS.items():
    webhooks.command(_name)(_command(_act, _text))


# --- uploads --------------------------------------------------------------------------------------


@uploads.command("add")
def add_upload(file: Path) -> Answer:
    """Send a file: CSV or JSON Lines in UTF-8, plain or in gzip, or Parquet. Its address is for --uri."""
    try:
        with file.open("rb") as content, connect() as client:
            found = client.upload(content, file.stat().st_size, file.name)
    except OSError as error:
        raise invalid("FILE", f"{file} can't be read ({error.strerror})", "an existing file") from None
    yield found
    yield f"kept; register it: exchequer dataset add NAME --uri {found['address']}"


@uploads.command("list")
def list_uploads() -> Answer:
    """List files that are kept."""
    with connect() as client:
        found = client.uploads()
    yield found
    columns = ("name", "format", "bytes", "address")
    rows = [(each["sha256"][:16], *(each[name] for name in columns)) for each in found]
    yield table(["sha256", *columns], rows, right="bytes", whole="sha256")


@uploads.command("show")
def show_upload(sha256: str) -> Answer:
    """Show one file that is kept."""
    with connect() as client:
        found = client.uploaded(sha256)
    yield found
    yield _facts(found)


@uploads.command("remove")
def remove_upload(sha256: str) -> Answer:
    """Destroy a file that nothing was registered with."""
    with connect() as client:
        found = client.discard_upload(sha256)
    yield found
    yield f"{sha256[:16]} is destroyed"
