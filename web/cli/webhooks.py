"""`webhook`, `upload`: addresses that are told of changes, and files that become data."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from web.cli.options import Json
from web.cli.output import facts, out, print_json, say, table
from web.cli.profile import connect

HookId = Annotated[str, typer.Argument(metavar="ID")]

webhooks = typer.Typer(help="Addresses that are told when something changes.", no_args_is_help=True)
uploads = typer.Typer(help="Files that become data (stewards).", no_args_is_help=True)


@webhooks.command("add")
def add(
    url: str,
    event: Annotated[list[str], typer.Option("--event", help="Such as job.succeeded; repeat it.")],
    as_json: Json = False,
) -> None:
    """Register a webhook. Its secret is shown once."""
    with connect() as client:
        found = client.add_webhook(url, event)
    print_json(found) if as_json else say(f"webhook {found['id']}; its secret, shown once: {found['secret']}")


@webhooks.command("list")
def list_webhooks(as_json: Json = False) -> None:
    """List your webhooks."""
    with connect() as client:
        found = client.webhooks()
    if as_json:
        print_json(found)
    elif not found:
        say("no webhook yet. Register one: exchequer webhook add URL --event job.succeeded")
    else:
        rows = [(each["id"], each["url"], ", ".join(each["events"])) for each in found]
        out.print(table(["id", "address", "events"], rows, whole="id"))


@webhooks.command("show")
def show(hook_id: HookId, as_json: Json = False) -> None:
    """Show one webhook."""
    with connect() as client:
        found = client.webhook(hook_id)
    _show(found, as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [(name.replace("_", " "), value) for name, value in found.items() if not isinstance(value, dict)]
    out.print(facts((name, ", ".join(map(str, v)) if isinstance(v, list) else v) for name, v in rows))


@webhooks.command("events")
def events(as_json: Json = False) -> None:
    """List what a webhook may be told of."""
    with connect() as client:
        found = client.webhook_events()
    if as_json:
        print_json(found)
    else:
        out.print(table(["event", "meaning"], [(each["event"], each["meaning"]) for each in found]))


@webhooks.command("remove")
def remove(hook_id: HookId, as_json: Json = False) -> None:
    """Forget a webhook and its secret."""
    with connect() as client:
        found = client.remove_webhook(hook_id)
    print_json(found) if as_json else say(f"webhook {hook_id} is removed")


@webhooks.command("deliveries")
def deliveries(
    hook_id: HookId, limit: Annotated[int, typer.Option(min=1)] = 50, as_json: Json = False
) -> None:
    """List what was sent to a webhook, newest first."""
    with connect() as client:
        found = list(islice(client.deliveries(hook_id), limit))
    if as_json:
        print_json(found)
    else:
        rows = [(each["id"], each["event"], each["state"]) for each in found]
        out.print(table(["delivery", "event", "state"], rows, whole="delivery"))


@webhooks.command("redeliver")
def redeliver(
    hook_id: HookId, delivery: Annotated[str, typer.Argument(metavar="DELIVERY")], as_json: Json = False
) -> None:
    """Send a message again, under the same id."""
    with connect() as client:
        found = client.redeliver(hook_id, delivery)
    print_json(found) if as_json else say(f"delivery {found['delivery']} is sent again")


ACTS = {
    "enable": ("enable", "Tell a disabled webhook again, from now on."),
    "disable": ("disable", "Tell a webhook nothing until it is enabled."),
    "test": ("test", "Send a message that says nothing."),
    "renew-secret": ("secret", "Give a webhook a new secret; it is shown once."),
}


def _command(act: str, text: str) -> Callable[..., None]:
    def command(hook_id: HookId, as_json: Json = False) -> None:
        with connect() as client:
            found = client.act_on_webhook(hook_id, act)
        _show(found, as_json)

    command.__doc__ = text
    return command


for _name, (_act, _text) in ACTS.items():
    webhooks.command(_name)(_command(_act, _text))


# --- uploads --------------------------------------------------------------------------------------


@uploads.command("add")
def add_upload(file: Path, as_json: Json = False) -> None:
    """Send a file: CSV or JSON Lines in UTF-8, plain or in gzip, or Parquet. Its address is for --uri."""
    try:
        with file.open("rb") as content, connect() as client:
            found = client.upload(content, file.stat().st_size)
    except OSError as error:
        raise invalid("FILE", f"{file} can't be read ({error.strerror})", "an existing file") from None
    if as_json:
        print_json(found)
    else:
        say(f"kept; register it: exchequer dataset add NAME --uri {found['address']}")


@uploads.command("list")
def list_uploads(as_json: Json = False) -> None:
    """List files that are kept."""
    with connect() as client:
        found = client.uploads()
    if as_json:
        print_json(found)
    else:
        rows = [(each["sha256"][:16], each["format"], each["bytes"], each["address"]) for each in found]
        out.print(table(["sha256", "format", "bytes", "address"], rows, right="bytes", whole="sha256"))


@uploads.command("show")
def show_upload(sha256: str, as_json: Json = False) -> None:
    """Show one file that is kept."""
    with connect() as client:
        found = client.uploaded(sha256)
    _show(found, as_json)


@uploads.command("remove")
def remove_upload(sha256: str, as_json: Json = False) -> None:
    """Destroy a file that nothing was registered with."""
    with connect() as client:
        found = client.discard_upload(sha256)
    print_json(found) if as_json else say(f"{sha256[:16]} is destroyed")
