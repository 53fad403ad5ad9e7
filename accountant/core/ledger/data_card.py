"""Data cards: the facts published with an output, so that its recipients know what it is.

A card states public facts only: those an analyst may see, whoever asks. It has no time later than
the job's queuing, no realized ex-post figure and no name of a person.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from accountant.core.files.rows import Column

FORMAT = "exchequer data card"
VERSION = 1

LIMITS = (
    "The guarantee is of the release, not of what somebody knows besides; it counts every release "
    "of the dataset only together with the others (see what holds of the dataset).",
    "That a job succeeds or fails, and how long it runs, is not priced.",
    "Texts are made by a language model: they state nothing about any person, and need not be "
    "true.",
    "The service states no licence: the terms of the dataset's steward and of the model apply.",
)


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee of one job's release, taken by itself.

    `epsilon` is None if the release has no (epsilon, delta) part, and 0 if it spends nothing.
    `to_key_holders`: the epsilon for whoever knows which batch a unit lay in; None if nothing was
    secret.
    """

    epsilon: float | None
    delta: float
    neighbours: str
    unit: str
    records_per_unit: int
    ex_post_cap: str | None = None
    secret: bool = False
    to_key_holders: float | None = None


def figure(value: float, digits: int = 4) -> str:
    """Return a cost with `digits` significant digits, rounded up: never less than was paid."""
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    text = f"{rounded:f}" if -5 <= rounded.adjusted() < 6 else f"{rounded:e}".replace("E", "e")
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def step(neighbours: str, unit: str, records_per_unit: int) -> str:
    """Return the neighbouring step in words."""
    act = "replacing one" if neighbours == "replace-one" else "adding or removing one"
    if unit == "record":
        return f"{act} record"
    most = f"{records_per_unit:,} records are" if records_per_unit > 1 else "one record is"
    return f"{act} {unit} (of which at most {most} read)"


def sentence(held: Guarantee) -> str:
    """Return the guarantee in one sentence."""
    moved = step(held.neighbours, held.unit, held.records_per_unit)
    if held.secret:
        return "Protects declared secrets, not records: no (ε, δ) statement holds of it."
    part = None
    if held.epsilon:
        part = f"({figure(held.epsilon)}, {held.delta!r})-differentially private for {moved}"
    if held.ex_post_cap is not None:
        guarantee = (
            "The output has no (ε, δ) guarantee: what it costs depends on the data, and the cap of "
            f"ε {held.ex_post_cap} that was set aside is a planning figure, neither a bound nor a "
            "mean"
        )
        return guarantee + (f"; the noisy counts released with it are {part}." if part else ".")
    if part is None:
        return "Reads nothing private: it adds no privacy loss."
    guarantee = f"By itself the release is {part}, given whatever was released before it."
    if held.to_key_holders is None:
        return guarantee
    return (
        f"{guarantee} That is for whoever does not hold the job's key, deleted as it ended; for "
        f"whoever does, it is ({figure(held.to_key_holders)}, {held.delta!r})-differentially "
        "private."
    )


def inherited(own: Mapping[str, Any], source: str | None) -> str:
    """Return the guarantee of a job that reads a job's release; `own` is its RESERVE's source."""
    what = "the published output" if "output" in own else "the artifacts"
    guarantee = (
        f"Made from {what} of job {own['job']} and from public things alone: post-processing, "
        "which adds "
    )
    return guarantee + "no privacy loss." + ("" if source is None else f" Of that job: {source}")


def front_matter(card: Mapping[str, Any], data_file: str, about: Mapping[str, Any]) -> str:
    """Return the head of a README.md, as the Hugging Face Hub and `datasets` read it.

    Args:
        card: the data card.
        data_file: the file that `datasets` loads; empty if it loads none.
        about: what no ledger knows: the `license` and the `language`.
    """
    dataset, loss, head = card["dataset"], card["privacy_loss"], card["ledger"]["head"]
    facts = {
        **about,
        "pretty_name": f"Job {card['job']}, of {dataset['name']}",
        "tags": ["differential-privacy", "exchequer", card["mechanism"]["id"]],
        "configs": data_file and [{"config_name": "default", "data_files": data_file}],
    }
    privacy = {
        "epsilon": "null" if loss is None else _plain_number(figure(loss["epsilon"])),
        "delta": "null" if loss is None else _plain_number(repr(loss["delta"])),
        "guarantee": _yaml(card["guarantee"]),
        "unit": _yaml(dataset["unit"]),
        "neighbours": _yaml(dataset["neighbours"]),
        "ledger_entries": str(head["seq"]),
        "ledger_head": _yaml(head["hash"]),
    }
    lines = [f"{name}: {_yaml(value)}" for name, value in facts.items() if value]
    lines += ["differential_privacy:", *(f"  {name}: {text}" for name, text in privacy.items())]
    return "\n".join(["---", *lines, "---", "", ""])


def _yaml(value: Any) -> str:
    """Return a value as YAML: JSON, without the characters that YAML prints in no text."""
    unprintable = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
    text = json.dumps(value, ensure_ascii=False)
    return unprintable.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain_number(text: str) -> str:
    """Return a number without an exponent, which YAML 1.1 would read as text."""
    return f"{Decimal(text):f}"


def markdown(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown, for people. Every fact in it is also in the JSON."""
    dataset, model, output = card["dataset"], card["model"], card["output"]
    ledger = card["ledger"]
    lines = [
        f"# Data card: job {card['job']}",
        "",
        card["guarantee"],
        "",
        *_section(
            "What it is",
            {
                "dataset": dataset["name"],
                "mechanism": f"{card['mechanism']['title']} (`{card['mechanism']['id']}`): "
                f"{card['mechanism']['summary']} Source: {card['mechanism']['source']}",
                "model": "none"
                if model is None
                else f"{model['name']}, SHA-256 `{model['sha256']}`, trained on "
                f"{model['trained_on']}",
                "made from": _made_from(card["lineage"]),
                **_public(card["lineage"]),
                **_read_beside(card["lineage"]),
                "file": f"SHA-256 `{output['sha256']}` (JSON Lines)",
                **_left_out(output),
                **{
                    f"artifact {artifact['name']}": f"`{artifact['sha256']}`"
                    for artifact in card["artifacts"]
                },
            },
        ),
        *_section(
            "Privacy",
            {
                "privacy unit": dataset["unit"],
                "neighbours": dataset["neighbours"],
                "records kept per unit": f"at most {dataset['max_records_per_unit']:,}",
                **({"groups": ", ".join(dataset["groups"])} if dataset.get("groups") else {}),
                "price reserved": _price(card["reserved"]),
                "charged": _price(card["charged"]),
                **({"ex-post cap": f"ε {card['ex_post_cap']}"} if card["ex_post_cap"] else {}),
                "of the whole dataset": card["statement"]["text"],
            },
        ),
        *_section(
            "Parameters",
            {
                name: ("—" if value is None else _code(str(value)))
                for name, value in card["parameters"].items()
            },
        ),
        *_section(
            "Ledger",
            {
                "reserved by": f"entry {ledger['reserve']['seq']}, `{ledger['reserve']['hash']}`",
                "charged by": f"entry {ledger['charge']['seq']}, `{ledger['charge']['hash']}`",
                "newest entry": f"entry {ledger['head']['seq']}, `{ledger['head']['hash']}`",
                "check": "an auditor's export holds both: `exchequer verify FILE`",
            },
        ),
        "## Cite",
        "",
        card["cite"],
        "",
        "## Limits",
        "",
        *[f"- {limit}" for limit in card["limits"]],
        "",
    ]
    return "\n".join(lines)


def _left_out(output: Mapping[str, Any]) -> dict[str, str]:
    """Return how many texts public rules kept, where the job counted them."""
    if "written" not in output:
        return {}
    written, lost = output["written"], sum(output["left_out"].values())
    return {"texts": f"kept {written - lost:,} of {written:,} drafts by public rules"}


def _section(title: str, facts: Mapping[str, str]) -> list[str]:
    rows = [f"- **{name}**: {value}" for name, value in facts.items()]
    return [f"## {title}", "", *rows, ""]


def _code(value: str) -> str:
    """Return a text as inline code, between more backticks than it contains (CommonMark 6.1)."""
    text = "⏎ ".join(value.splitlines())
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _price(part: Mapping[str, Any]) -> str:
    if part["epsilon"] is None:
        return "no (ε, δ) part"
    if not part["epsilon"]:
        return "nothing"
    return f"ε {figure(part['epsilon'])} at δ {part['delta']!r}, by itself"


def _made_from(lineage: Mapping[str, Any]) -> str:
    if "version" in lineage:
        return f"version {lineage['version']} of the data"
    if "job" not in lineage:
        return "public things alone"
    if "output" in lineage:
        return f"the output of job {lineage['job']}, SHA-256 `{lineage['output']}`"
    named = ", ".join(f"{name} `{sha256}`" for name, sha256 in lineage.get("artifacts", {}).items())
    return f"artifacts of job {lineage['job']}: {named}"


def _public(lineage: Mapping[str, Any]) -> dict[str, str]:
    resources = lineage.get("public", {})
    return {
        f"public {field.replace('_', ' ')}": f"{each['name']}, SHA-256 `{each['sha256']}`"
        for field, each in resources.items()
    }


def _read_beside(lineage: Mapping[str, Any]) -> dict[str, str]:
    """Return what jobs released that are read beside the data, by the field that names each."""
    return {
        field: f"of job {source['job']}"
        + (f" (public, on dataset {source['dataset']})" if "dataset" in source else "")
        + "".join(f", {name} `{sha256}`" for name, sha256 in source["artifacts"].items())
        for field, source in lineage.get("sources", {}).items()
    }


def citation(
    job: str,
    dataset: str,
    mechanism: str,
    charge: Mapping[str, Any],
    sha256: str,
    public: bool = False,
) -> str:
    """Return a citation of the output for a paper: all that is needed to find it in the ledger.

    `public`: it was made of public things alone, and asked for on the dataset.
    """
    origin = f"of public things alone by {mechanism}, in the ledger of dataset “{dataset}”"
    if not public:
        origin = f"from dataset “{dataset}” by {mechanism}, accounted for by differential privacy"
    entry = f"Exchequer ledger entry {charge['seq']} ({charge['hash'][:16]}…), SHA-256 {sha256}"
    return f"Output of job {job}, made {origin}; {entry}."


# --- Croissant ----------------------------------------------------------------------------------

# What a published file is, for loaders and catalogues: the form of MLCommons, 1.0.
# Every fact in it stands in the data card too.

_CR = "http://mlcommons.org/croissant/"
_NAMES = ("recordSet", "field", "source", "extract", "column", "fileObject", "citeAs")
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": _CR,
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{name: f"cr:{name}" for name in _NAMES},
}
_TYPES = {"boolean": "Boolean", "integer": "Integer", "number": "Float", "text": "Text"}
#: Media types as readers of Croissant name them, where they differ.
_FORMATS = {
    "application/x-ndjson": "application/jsonlines",
    "application/vnd.apache.parquet": "application/x-parquet",
}


@dataclass(frozen=True)
class DataFile:
    """A file that lies beside its metadata. `columns`: none if it is no table."""

    name: str
    media_type: str
    columns: Iterable[Column] = ()
    sha256: str = ""


def croissant(
    card: Mapping[str, Any], file: DataFile, about: Mapping[str, Any], made: date
) -> dict[str, Any]:
    """Return the metadata of a file. `about`: its `license` and `language`, as whoever exports it
    says.
    """
    source = {"fileObject": {"@id": "data"}}
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"records/{column.name}",
            "name": column.name,
            "dataType": f"sc:{_TYPES[column.kind]}",
            "source": {**source, "extract": {"column": column.name}},
        }
        for column in file.columns
        if column.kind in _TYPES
    ]
    records = {"@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": f"{_CR}1.0",
        "name": f"job-{card['job']}",
        "description": f"{card['guarantee']} {card['statement']['text']}",
        "license": about["license"],
        "inLanguage": about["language"],
        "url": f"urn:uuid:{card['job']}",
        "citeAs": card["cite"],
        "datePublished": made.isoformat(),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "data",
                "name": file.name,
                "contentUrl": file.name,
                "encodingFormat": _FORMATS.get(file.media_type, file.media_type),
                "sha256": file.sha256,
            }
        ],
        "recordSet": [records] if fields else [],
    }
