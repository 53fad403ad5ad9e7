"""`dataset` and `upload`: the catalogue, and what a steward registers."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.core.errors import invalid
from accountant.core.names import FILTER_NAMES
from accountant.core.privacy.units import percent_up
from accountant.settings import load
from web.cli.answers import Answer
from web.cli.options import DatasetName, Wait
from web.cli.output import Failed, err, facts, note, table
from web.cli.price import split
from web.cli.session import connect
from web.client.api import Api

CHECK_SECONDS = 600.0
LOOK_SECONDS = 0.3
FILES_SHOWN = 5

DataAddress = Annotated[
    str,
    typer.Option(
        help="File, folder or address that the workers may open. "
        "Any other file is sent to the service."
    ),
]
UnitSpelling = Annotated[
    str,
    typer.Option(
        metavar="refuse|merge|keep",
        help="What to do with units that are all but spelled the same.",
    ),
]
MissingUnits = Annotated[
    str,
    typer.Option(
        metavar="refuse|separate", help="Refuse records that name no unit, or count each as one."
    ),
]


def add_dataset(
    name: str,
    uri: DataAddress | None = None,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="The data never comes here, and no job reads it.")
    ] = False,
    label_column: Annotated[str | None, typer.Option()] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The labels there may be.")
    ] = None,
    text_template: Annotated[
        str, typer.Option(help="A record's text from its columns.")
    ] = "{text}",
    unit_column: Annotated[
        str | None, typer.Option(help="Column that says whose a record is. [each stands alone]")
    ] = None,
    max_records_per_unit: Annotated[int, typer.Option()] = 1,
    unit_spelling: UnitSpelling = "refuse",
    missing_units: MissingUnits = "refuse",
    neighbours: Annotated[str, typer.Option(metavar="add-remove|replace-one")] = "add-remove",
    public_size: Annotated[
        int | None, typer.Option(help="A round public figure, never a count.")
    ] = None,
    group_column: Annotated[
        str | None, typer.Option(help="Column of the group; a unit is in one only.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The groups there may be.")
    ] = None,
    secret_pattern: Annotated[
        list[str] | None,
        typer.Option(help="What a secret looks like, in RE2 syntax; may be repeated."),
    ] = None,
    secret_terms: Annotated[
        Path | None,
        typer.Option(help="A file with a secret word a line.", exists=True, dir_okay=False),
    ] = None,
    secret_column: Annotated[
        str | None, typer.Option(help="Column with a record's secret.")
    ] = None,
    description: Annotated[str, typer.Option()] = "",
    auto_approve: Annotated[str, typer.Option(help="ε up to which a job needs no approval.")] = "0",
    wait: Wait = True,
) -> Answer:
    """Add a dataset. A worker reads it through before any job can run."""
    if (uri is None) is not elsewhere:
        raise invalid("--uri", "it goes with no --elsewhere", "an address, or --elsewhere alone")
    declaration = {
        "name": name,
        "label_column": label_column,
        "labels": split(labels or ""),
        "text_template": text_template,
        "unit_column": unit_column,
        "max_records_per_unit": max_records_per_unit,
        "unit_spelling": unit_spelling,
        "missing_units": missing_units,
        "neighbours": neighbours,
        "public_size": public_size,
        "group_column": group_column,
        "groups": split(groups or ""),
        "secret_patterns": secret_pattern or [],
        "secret_terms": [] if secret_terms is None else _lines(secret_terms),
        "secret_column": secret_column,
        "description": description,
        "policy": {"auto_approve_epsilon": auto_approve},
    }
    with connect() as client:
        address = None if uri is None else address_of_data(client, uri)
        client.add_dataset({**declaration, "uri": address})
        dataset = wait_for_dataset(client, name) if wait else client.dataset(name)
    yield from _checked(dataset)


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]


def correct_dataset(
    name: DatasetName,
    uri: DataAddress | None = None,
    text_template: Annotated[str | None, typer.Option(help="Another text template.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Another label column.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="The right labels, with commas between.")
    ] = None,
    unit_column: Annotated[str | None, typer.Option(help="The right column of the unit.")] = None,
    unit_spelling: UnitSpelling | None = None,
    missing_units: MissingUnits | None = None,
    group_column: Annotated[str | None, typer.Option(help="Another column of the group.")] = None,
    groups: Annotated[
        str | None, typer.Option(help="The right groups, with commas between.")
    ] = None,
    secret_pattern: Annotated[
        list[str] | None,
        typer.Option(help="Other patterns of secrets, in RE2; repeat it."),
    ] = None,
    secret_terms: Annotated[
        Path | None,
        typer.Option(help="A file of other secret words, one a line.", exists=True, dir_okay=False),
    ] = None,
    secret_column: Annotated[
        str | None, typer.Option(help="The right column of the secret.")
    ] = None,
    wait: Wait = True,
) -> Answer:
    """Mend a dataset if it was refused. What you don't name stays."""
    fields = {
        "text_template": text_template,
        "label_column": label_column,
        "labels": None if labels is None else [label.strip() for label in labels.split(",")],
        "unit_column": unit_column,
        "unit_spelling": unit_spelling,
        "missing_units": missing_units,
        "group_column": group_column,
        "groups": None if groups is None else split(groups),
        "secret_patterns": secret_pattern or None,
        "secret_terms": None if secret_terms is None else _lines(secret_terms),
        "secret_column": secret_column,
    }
    with connect() as client:
        fields["uri"] = None if uri is None else address_of_data(client, uri)
        client.correct_dataset(
            name, **{field: value for field, value in fields.items() if value is not None}
        )
        dataset = wait_for_dataset(client, name) if wait else client.dataset(name)
    yield from _checked(dataset)


def add_version(
    name: DatasetName,
    uri: DataAddress,
    text_template: Annotated[str | None, typer.Option(help="Another text template.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Another label column.")] = None,
    wait: Wait = True,
) -> Answer:
    """Add new data of the same people to a dataset."""
    fields = {"text_template": text_template, "label_column": label_column}
    layout = {field: value for field, value in fields.items() if value is not None}
    with connect() as client:
        address = address_of_data(client, uri)
        number = client.add_version(name, address, **layout)["versions"][-1]["number"]
        look = partial(_version, client, name, number)
        version = until_checked("checking the data", look) if wait else look()
    yield version
    if version["state"] == "invalid":
        raise Failed(
            f"version {number} of {name!r} was refused: {version['error']}. The others stay as "
            "they are."
        )
    yield f"dataset {name}, version {number}: {version['state']}{files_text(version)}"


def _version(client: Api, name: str, number: int) -> dict[str, Any]:
    versions: list[dict[str, Any]] = client.dataset(name)["versions"]
    return next(version for version in versions if version["number"] == number)


def local_address(uri: str) -> str:
    """Return a path on this machine in full, as workers start elsewhere; else the address."""
    path = Path(uri).expanduser()
    return uri if "://" in uri or not path.exists() else str(path.resolve())


def address_of_data(client: Api, uri: str) -> str:
    """Return where workers find data: a file of this machine is uploaded if no data root has it."""
    address = local_address(uri)
    path = Path(address)
    roots = (Path(root).resolve() for root in load().data_root_list)
    if not path.is_file() or any(map(path.is_relative_to, roots)):
        return address
    note(f"{path.name} is uploaded: the service reads a copy")
    return str(_upload(client, path)["address"])


def _checked(dataset: dict[str, Any]) -> Answer:
    yield dataset
    if dataset["state"] == "invalid":
        raise data_refused(dataset)
    yield f"dataset {dataset['name']}: {dataset['state']}{files_text(dataset['versions'][-1])}"


def files_text(version: Mapping[str, Any]) -> str:
    """Return the files that a version of data is, in words; nothing if they are not known."""
    data = version.get("data")
    if not data:
        return ""
    names = ", ".join(name for name, _, _ in data["list"][:FILES_SHOWN])
    more = ", …" if data["files"] > FILES_SHOWN else ""
    count = "1 file" if data["files"] == 1 else f"{data['files']:,} files"
    return f", {count} of {data['bytes']:,} bytes read: {names}{more}"


def data_refused(dataset: dict[str, Any]) -> Failed:
    """Return the error for data that a worker refused; only its steward is told why."""
    name = dataset["name"]
    why = (dataset.get("versions") or [{}])[-1].get("error") or "its steward can see why"
    hint = (
        " Upload it, or name its folder in EXCHEQUER_DATA_ROOTS when the stack starts."
        if "data root" in why
        else ""
    )
    return Failed(
        f"the data of {name!r} was refused: {why}.{hint} "
        f"Then `exchequer dataset correct {name} --uri ADDRESS`."
    )


def wait_for_dataset(client: Api, name: str) -> dict[str, Any]:
    """Return the dataset once its data has been checked."""
    return until_checked("checking the data", lambda: client.dataset(name))


def until_checked(what: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    ends = time.monotonic() + CHECK_SECONDS
    with err.status(f"{what} …"):
        while (thing := read())["state"] == "checking":
            if time.monotonic() > ends:
                raise Failed(
                    f"{what} takes over {CHECK_SECONDS:.0f} s. `exchequer stack status` shows the "
                    "workers."
                )
            time.sleep(LOOK_SECONDS)
    return thing


def list_datasets() -> Answer:
    """List the datasets, and how much of each is used."""
    with connect() as client:
        datasets = client.datasets()
    yield datasets
    columns = ["name", "state", "neighbours", "unit"]
    rows = [
        (*(dataset[name] for name in columns), allowance_text(dataset), used_text(dataset))
        for dataset in datasets
    ]
    nothing = "no dataset yet. Register one: exchequer dataset add NAME --uri FILE"
    yield table([*columns, "allowance", "used"], rows, right="used") if rows else nothing


def allowance_text(dataset: dict[str, Any]) -> str:
    account = dataset["account"]
    return "none yet" if account is None else f"ε {account['epsilon']}, δ {account['delta']}"


def used_text(dataset: dict[str, Any]) -> str | None:
    account = dataset["account"]
    return None if account is None else percent_up(account["used_share"])


def show_dataset(name: DatasetName) -> Answer:
    """Show a dataset, and what is left of it."""
    with connect() as client:
        dataset = client.dataset(name)
    yield dataset
    public = (
        "name",
        "description",
        "state",
        "neighbours",
        "unit",
        "max_records_per_unit",
        "unit_spelling",
        "missing_units",
        "public_size",
    )
    rows: list[tuple[str, object]] = [
        (column.replace("_", " "), dataset[column] or None) for column in public
    ]
    rows.append(("labels", ", ".join(dataset["labels"]) or None))
    rows.append(("allowance", allowance_text(dataset)))
    policy = (
        f"{key.replace('_', ' ')} {value}" for key, value in dataset["policy"].items() if value
    )
    rows.append(("policy", "; ".join(policy)))
    for version in dataset.get("versions", []):
        note = f": {version['error']}" if version["error"] else ""
        note += files_text(version)
        place = version["uri"] or "it never comes here"
        rows.append((f"data {version['number']}", f"{place} ({version['state']}{note})"))
    yield facts(rows)
    yield from account(dataset)


def account(dataset: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the filters of a dataset's account."""
    if dataset["account"] is None:
        name = dataset["name"]
        yield f"no allowance yet. Set it: exchequer dataset allow {name} --epsilon E --delta D"
        return
    rows = [
        (
            FILTER_NAMES[filter_["kind"]],
            filter_["limit"],
            filter_["spent"],
            filter_["reserved"],
            "0" if filter_["left"].startswith("-") else str(filter_["left"]),
            _state(filter_),
        )
        for filter_ in dataset["account"]["filters"]
    ]
    if dataset.get("remaining"):
        yield dataset["remaining"]["sentence"]
    columns = ["filter", "limit", "spent", "reserved", "left", "state"]
    yield table(columns, rows, right="limit spent reserved left")
    yield "A job is admitted while one filter holds for it and everything before it."
    yield from (statement["text"] for statement in dataset.get("statements", []))


def _state(each: dict[str, Any]) -> str:
    if each["closed"]:
        return "closed"
    return f"{percent_up(each['used_share'])} used" if each["holds"] else "passed"


# --- `upload`: files that become data ------------------------------------------------------------


def add_upload(file: Path) -> Answer:
    """Send a file of CSV, JSON Lines or Parquet. `dataset add` takes the address it prints."""
    with connect() as client:
        upload = _upload(client, file)
    yield upload
    yield f"kept; register it: exchequer dataset add NAME --uri {upload['address']}"


def _upload(client: Api, file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as content:
            return client.upload(content, file.stat().st_size, file.name)
    except OSError as error:
        raise invalid(
            "FILE", f"{file} can't be read ({error.strerror})", "an existing file"
        ) from None


def list_uploads() -> Answer:
    """List the files that are kept."""
    with connect() as client:
        uploads = client.uploads()
    yield uploads
    columns = ("name", "format", "bytes", "address")
    rows = [(upload["sha256"][:16], *(upload[name] for name in columns)) for upload in uploads]
    yield table(["sha256", *columns], rows, right="bytes", whole="sha256")


def show_upload(sha256: str) -> Answer:
    """Show one file that is kept."""
    with connect() as client:
        upload = client.uploaded(sha256)
    yield upload
    rows = (
        (name.replace("_", " "), value)
        for name, value in upload.items()
        if not isinstance(value, dict)
    )
    yield facts((name, ", ".join(map(str, v)) if isinstance(v, list) else v) for name, v in rows)


def remove_upload(sha256: str) -> Answer:
    """Delete a file that nothing was made from."""
    with connect() as client:
        discarded = client.discard_upload(sha256)
    yield discarded
    yield f"{sha256[:16]} is destroyed"
