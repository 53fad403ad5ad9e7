"""`upload`: files that become data."""

from pathlib import Path

from accountant.core.errors import invalid
from web.cli.answers import Answer, Group
from web.cli.output import facts, table
from web.cli.profile import connect

uploads = Group(help="Files that become data (stewards).", no_args_is_help=True)


@uploads.command("add")
def add_upload(file: Path) -> Answer:
    """Send a file: CSV or JSON Lines in UTF-8, plain or in gzip, or Parquet. Its address is for
    --uri.
    """
    try:
        with file.open("rb") as content, connect() as client:
            found = client.upload(content, file.stat().st_size, file.name)
    except OSError as error:
        raise invalid(
            "FILE", f"{file} can't be read ({error.strerror})", "an existing file"
        ) from None
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
    rows = (
        (name.replace("_", " "), value)
        for name, value in found.items()
        if not isinstance(value, dict)
    )
    yield facts((name, ", ".join(map(str, v)) if isinstance(v, list) else v) for name, v in rows)


@uploads.command("remove")
def remove_upload(sha256: str) -> Answer:
    """Destroy a file that nothing was registered with."""
    with connect() as client:
        found = client.discard_upload(sha256)
    yield found
    yield f"{sha256[:16]} is destroyed"
