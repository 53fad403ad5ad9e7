"""The document of fields, made of what the fields of each form say: `python -m web.fields FILE`.

A row is FORM.FIELD and what the API says of that field. `OTHERS` has what forms alone ask for.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from accountant.catalogue.corpora import CorpusSpec
from accountant.catalogue.datasets import DatasetSpec
from accountant.catalogue.models import EndpointSpec
from accountant.core.ledger.policy import Policy
from web.api.datasets import NewAllowance
from web.api.jobs import NewJob
from web.api.models import NewModel
from web.api.notices import NewNotice
from web.api.people import NewPassword, TokenRequest

#: The title of each form, a line that leads on, and the prefix and the model of its fields.
FORMS: tuple[tuple[str, str, tuple[tuple[str, type[BaseModel]], ...]], ...] = (
    (
        "A dataset",
        "How a file is read: [uploads](uploads.md). Then [groups and "
        "secrets](groups-and-secrets.md).",
        (("dataset", DatasetSpec),),
    ),
    ("An allowance", "The meaning: [accounting](accounting.md).", (("allowance", NewAllowance),)),
    ("A policy", "Owners and signatures: [stewards](stewards.md).", (("policy", Policy),)),
    ("A request", "A mechanism's parameters are on its [page](mechanisms).", (("job", NewJob),)),
    (
        "A model",
        "What is checked: [models](models.md). Endpoints: [writers](writers.md).",
        (("model", NewModel), ("model.endpoint", EndpointSpec)),
    ),
    ("A public corpus", "Public texts that jobs may read.", (("corpus", CorpusSpec),)),
    (
        "Your account",
        "More: [accounts](accounts.md).",
        (("account", NewPassword), ("account", TokenRequest)),
    ),
    ("A notice", "More: [notices](notices.md).", (("notice", NewNotice),)),
)

#: Fields that hold others, which have lines of their own, or that no form has.
LEFT_OUT = {
    "dataset.policy",
    "allowance.shares",
    "allowance.secret",
    "job.dataset",
    "job.parameters",
    "model.endpoint",
    "account.scopes",
    "notice.events",
}

#: Fields of forms alone, and parts of a field.
OTHERS = {
    "dataset.upload": "a file of your own, sent to the service: CSV, JSON Lines or Parquet, in "
    "UTF-8",
    "dataset.file": "a file that was sent before",
    "dataset.text_column": "the column that holds the text, where one does",
    "allowance.shares.renyi": "share of δ of the first Rényi filter. The first allowance "
    "sets all shares",
    "allowance.shares.gaussian": "share of δ of the Gaussian filter",
    "allowance.shares.renyi2": "share of δ of the Rényi filter at a lower order",
    "allowance.shares.basic": "share of δ of the basic filter",
    "allowance.secret.prior": "the best chance to guess a secret before any job",
    "allowance.secret.bound": "the best chance to guess it after all jobs",
    "allowance.secret.records_per_secret": "how many records carry one secret, at most",
    "allowance.secret.sampling_rate": "public rate at which such records are drawn. 1: all",
    "allowance.secret.neighbour": "a world without a secret: its records are gone, or its text is "
    "blacked out",
    "allowance.secret.kind": "whether many jobs share the statement, or one exact job has it alone",
    "job.goal": "what you want. It picks a mechanism; all of them are under *Details*",
    "job.share": "largest part of what is left that *Fit to this part* may use",
    "job.reason": "why you should be able to ask on this dataset. Its stewards read it",
    "account.again": "the new password once more, so that a slip is seen",
}


def page() -> str:
    """Return the document in Markdown."""
    parts = [
        "# Fields\n\nWhat each field of a form means. *More* beside a field leads to its line here."
    ]
    for title, lead, models in FORMS:
        rows = [f"| `{name}` | {_sentence(text)} |" for name, text in _fields(models)]
        parts.append(
            "\n".join([f"## {title}\n\n{lead}\n\n| field | what it means |\n|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _fields(models: Iterable[tuple[str, type[BaseModel]]]) -> Iterator[tuple[str, str]]:
    forms = {prefix for prefix, _ in models}
    for prefix, model in models:
        for field, about in model.model_fields.items():
            name = f"{prefix}.{field}"
            if name not in LEFT_OUT:
                assert about.description, f"{name} says nothing of itself"
                yield name, about.description
    yield from ((name, text) for name, text in OTHERS.items() if name.partition(".")[0] in forms)


def _sentence(text: str) -> str:
    return (text[0].upper() + text[1:] + ".").replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
