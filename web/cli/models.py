"""`model`, `mechanisms`: what a job can be asked with."""

import json
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from web.cli import completion
from web.cli.answers import Answer, Group
from web.cli.data import local_address, until_checked
from web.cli.options import Wait
from web.cli.output import Failed, facts, table
from web.cli.profile import connect
from web.client.api import Api

models = Group(help="Models.", no_args_is_help=True)


@models.command("add")
def add_model(
    name: str,
    path: Annotated[str, typer.Option(help="Folder with safetensors, or a hub name.")],
    trained_on: Annotated[str, typer.Option(help="What it was trained on: your declaration.")],
    kind: Annotated[str, typer.Option(metavar="language|embedding")] = "language",
    wait: Wait = True,
) -> Answer:
    """Register a model. A worker looks at its files before any job can use it."""
    with connect() as client:
        client.add_model(name, local_address(path), trained_on, kind)
        found = wait_for_model(client, name) if wait else find_model(client, name)
    yield found
    if found["state"] == "invalid":
        raise model_refused(found)
    yield f"model {name}: {found['state']}"


def find_model(client: Api, name: str) -> dict[str, Any]:
    """A registered model by name."""
    for each in client.models():
        if each["name"] == name:
            return each
    raise Failed(f"there is no model {name!r}. `exchequer model list` shows those there are.")


def wait_for_model(client: Api, name: str) -> dict[str, Any]:
    """The model once its files have been checked."""
    return until_checked("checking the model", lambda: find_model(client, name))


def model_refused(model: dict[str, Any]) -> Failed:
    """Why a worker refused a model."""
    why = model.get("error") or "its steward can see why"
    hint = " Roots come from EXCHEQUER_MODEL_ROOTS when the stack starts." if "model root" in why else ""
    return Failed(
        f"the model {model['name']!r} was refused: {why}.{hint} Correct it and add it by another name."
    )


@models.command("list")
def list_models() -> Answer:
    """List models with what a worker found in their files."""
    with connect() as client:
        found = client.models()
    yield found
    columns = ["name", "kind", "state", "context", "trained on"]
    rows = [(*(each[name] for name in columns[:3]), _context(each), each["trained_on"]) for each in found]
    nothing = "no model yet. Register one: exchequer model add NAME --path FOLDER --trained-on TEXT"
    yield table(columns, rows, right="context") if rows else nothing


def _context(model: dict[str, Any]) -> str | None:
    found = model["facts"]
    return f"{found['context_tokens']} tokens" if found and "context_tokens" in found else None


# --- mechanisms -----------------------------------------------------------------------------------


def list_mechanisms(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=completion.mechanisms)
    ] = None,
) -> Answer:
    """List what can be asked for; with a name, its parameters."""
    with connect() as client:
        found = client.mechanisms()
    if name is None:
        yield found
        rows = [(each["id"], "yes" if each["runnable"] else "price only", each["summary"]) for each in found]
        yield table(["mechanism", "runs", "what"], rows, whole="mechanism")
        return
    one = next((each for each in found if each["id"] == name), None)
    if one is None:
        known = ", ".join(each["id"] for each in found)
        raise invalid("NAME", f"there is no mechanism {name!r}", known)
    yield one
    yield facts([("mechanism", one["id"]), ("what", one["summary"]), ("source", one["source"])])
    rows = []
    for field, schema in one["parameters"].get("properties", {}).items():
        default = "–" if schema.get("default") is None else json.dumps(schema["default"], ensure_ascii=False)
        rows.append((field, default, schema.get("description", "")))
    yield table(["parameter", "default", "meaning"], rows)
