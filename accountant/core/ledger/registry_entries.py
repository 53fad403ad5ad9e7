"""An entry of the public OpenDP registry of deployments, made from a verified ledger.

What `People` answer stands in it as they say it. Everything else follows from the ledger, so
whoever has an export of it can make the entry anew and compare (`differences`).
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.data_card import step
from accountant.core.ledger.statements import statements
from accountant.core.ledger.verifier import Verified
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

_DAY = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"


class Basic(BaseModel):
    """What no ledger knows of a deployment: its curators, and what it is for."""

    model_config = ConfigDict(extra="forbid", str_min_length=1)

    name: str = Field(description="the name of the data product")
    data_curators: tuple[str, ...] = Field(min_length=1, description="who publishes it")
    intended_use: str = Field(description="what it is for")
    data_product_type: Literal[
        "Summary statistics",
        "Machine learning model",
        "Dataset",
        "Synthetic data",
        "Interactive API",
        "SQL queries",
    ] = Field(description="what is published")
    data_product_region: str = Field(description="where the people live, or whose law applies")
    description: str = Field(description="what it is, in a few sentences")
    publication_date: str = Field(pattern=_DAY, description="when it was first published")


class People(Basic):
    """The answers that people give on one page."""

    registry_authors: tuple[str, ...] = Field(min_length=1, description="who fills in this page")
    sources: str = Field(description="papers and pages about it, and whom to ask")


#: What an entry says of each kind of product.
PRODUCTS = get_args(Basic.model_fields["data_product_type"].annotation)


def page() -> dict[str, Any]:
    """Return the page to fill in: each field with what it asks for."""
    asked = {name: f"<{field.description}>" for name, field in People.model_fields.items()}
    several = {name: [asked[name]] for name in ("data_curators", "registry_authors")}
    product = f"<{', '.join(PRODUCTS)}>"
    return asked | several | {"data_product_type": product, "publication_date": "<YYYY-MM-DD>"}


def read_people(document: object) -> People:
    """Return the answers of a page. Raises ValueError that names each field left or wrong."""
    problems = [f"{name} is not filled in" for name in _left(document)]
    try:
        people = People.model_validate(document)
    except ValidationError as error:
        problems += [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    if problems:
        raise ValueError("; ".join(problems))
    return people


def _left(document: object, name: str = "") -> list[str]:
    """Return the names of fields that still hold what they ask for."""
    if isinstance(document, Mapping):
        return [left for key, value in document.items() for left in _left(value, str(key))]
    if isinstance(document, list):
        return [left for value in document for left in _left(value, name)]
    return [name] if isinstance(document, str) and re.fullmatch(r"<.*>", document) else []


def registry_entry(ledger: Verified, people: People) -> dict[str, Any]:
    """Return the entry of a deployment. Raises VerificationFailed if no entry states terms."""
    terms, books = ledger.terms, ledger.books
    if terms is None:
        raise VerificationFailed(
            "no REGISTER entry states what is protected, so nothing can be said of it"
        )
    unit, history = str(terms["unit_column"] or "record"), books.history
    neighbours, most = str(terms["neighbours"]), int(terms["max_records_per_unit"])
    here = ledger.data_is_here
    said = statements(books.accounts, history, neighbours, unit, ledger.vouched, here)
    holds = books.account is not None and books.account.holds
    bounded = holds and not (history.losses or history.ex_post_jobs or history.secret_jobs)
    epsilon, delta = (
        float(to_decimal(units, scale))
        for units, scale in (
            (history.largest_epsilon, EPSILON_UNITS),
            (history.largest_delta, DELTA_UNITS),
        )
    )
    parameters = {"privacy_parameters": {"epsilon": epsilon, "delta": delta}} if bounded else {}
    filters = [] if books.account is None else books.account.filters
    composition = "; ".join(
        f"{each.filter.kind} {'holds' if each.holds else 'does not hold'}"
        + (", closed" if each.closed else "")
        for each in filters
    )
    return {
        "url_slug": re.sub("[^a-z0-9]+", "-", ledger.dataset.lower()).strip("-") or "dataset",
        "status": "Draft",
        "tier": 2,
        "deployment": {
            "basic": people.model_dump(mode="json", include=set(Basic.model_fields)),
            "dp_variant": {"variant_name": "Approximate DP" if bounded else "Custom"},
            "privacy_loss": {
                "privacy_unit": unit,
                "privacy_unit_details": step(neighbours, unit, most),
                **parameters,
                "privacy_parameters_details": " ".join(each.text for each in said),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "The service reads records as they are and adds noise to "
                "what it releases."
                if here
                else "Other programs read records as they are and add noise to what they release.",
                "release_type": "Many releases",
                "release_type_details": f"{history.jobs} jobs, of which {ledger.live} are not "
                f"settled; {history.ex_post_jobs} ex-post, {history.secret_jobs} for declared "
                f"secrets, {history.failures} failed. The allowance was raised after a release "
                f"{history.raises_after_release} times; entries were lost {history.losses} times.",
                "access_type": "Interactive",
            },
            "accounting": {"composition": f"A portfolio of privacy filters: {composition}."},
            "administrative": {
                "sources": people.sources,
                "notes": " ".join(
                    (
                        f"From the ledger of Exchequer: {ledger.entries} entries, head "
                        f"{ledger.head}.",
                        *(f"Not proved: {each}." for each in ledger.unproved),
                    )
                ),
                "registry_authors": list(people.registry_authors),
            },
        },
    }


def differences(entry: Mapping[str, Any], ledger: Verified) -> list[str]:
    """Return what an entry says that this ledger does not; empty where it is the ledger's own."""
    try:
        stated = entry["deployment"]
        administrative = stated["administrative"]
        people = read_people(
            stated["basic"]
            | {name: administrative[name] for name in ("registry_authors", "sources")}
        )
    except (KeyError, TypeError, ValueError) as error:
        return [f"this is no registry entry of `exchequer ledger registry` ({error})"]
    expected = registry_entry(ledger, people)
    return sorted(
        [
            *_different(entry, {**expected, "deployment": stated}),
            *_different(stated, expected["deployment"]),
        ]
    )


def _different(entry: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: the entry says {entry.get(name)!r}, the ledger {expected.get(name)!r}"
        for name in expected.keys() | entry.keys()
        if name not in expected
        or name not in entry
        or value_text(expected[name]) != value_text(entry[name])
    ]
