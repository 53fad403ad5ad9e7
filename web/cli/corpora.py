"""`corpus`: public texts that mechanisms and evaluation may read without a price."""

from typing import Annotated, Any

import typer

from web.cli.answers import Answer, Group
from web.cli.data import local_address, until_checked
from web.cli.options import Wait
from web.cli.output import Failed, table
from web.cli.session import connect
from web.client.api import Api

corpora = Group(help="Public corpora.", no_args_is_help=True)


@corpora.command("add")
def add_corpus(
    name: str,
    uri: Annotated[str, typer.Option(help="File, folder or address that the workers may open.")],
    statement: Annotated[
        str, typer.Option(help="Whose texts these are, and why nobody is touched.")
    ],
    text_template: Annotated[str, typer.Option(help="A text from its columns.")] = "{text}",
    label_column: Annotated[str | None, typer.Option()] = None,
    declaration: Annotated[str, typer.Option(metavar="public|consented")] = "public",
    wait: Wait = True,
) -> Answer:
    """Register a corpus. A worker reads it through before any job can use it."""
    body = {
        "name": name,
        "uri": local_address(uri),
        "statement": statement,
        "text_template": text_template,
        "label_column": label_column,
        "declaration": declaration,
    }
    with connect() as client:
        client.add_corpus(body)
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
    yield f"corpus {name}: {corpus['state']}{_texts(corpus)}"


def find_corpus(client: Api, name: str) -> dict[str, Any]:
    """Return a registered corpus by name."""
    for corpus in client.corpora():
        if corpus["name"] == name:
            return corpus
    raise Failed(f"there is no corpus {name!r}. `exchequer corpus list` shows those there are.")


def _texts(corpus: dict[str, Any]) -> str:
    return f", {corpus['facts']['texts']:,} texts" if corpus["facts"] else ""


@corpora.command("list")
def list_corpora() -> Answer:
    """List corpora with what a worker found in their files."""
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
