"""A registry entry says what its ledger says, in whichever form that was exported, and nothing else
holds.
"""

import os
from copy import deepcopy
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.registry_entries import (
    Basic,
    People,
    differences,
    page,
    read_people,
    registry_entry,
)
from accountant.core.ledger.verifier import Verifier
from tests.ledger_exports import export, honest

FILLED = {
    "name": "Ward letters",
    "data_curators": ["a hospital"],
    "intended_use": "research",
    "data_product_type": "Synthetic data",
    "data_product_region": "Europe",
    "description": "Letters like those of the wards.",
    "publication_date": "2026-11-26",
    "registry_authors": ["anna"],
    "sources": "https://example.org",
}
PEOPLE = People.model_validate(FILLED)
#: The schema of the registry, where somebody has it: it is not part of this project.
SCHEMA = os.environ.get("OPENDP_DEPLOYMENTS_SCHEMA")


def found(public: bool = False):
    return verify_lines(export(honest().lines, public))


def test_an_entry_is_that_of_every_export_of_its_ledger():
    entry = registry_entry(found(public=True), PEOPLE)
    assert differences(entry, found(public=True)) == []
    assert differences(entry, found()) == []
    stated = entry["deployment"]
    assert stated["basic"] == {name: FILLED[name] for name in Basic.model_fields}
    assert "differentially private" in stated["privacy_loss"]["privacy_parameters_details"]
    assert found().head in stated["administrative"]["notes"]


def test_whatever_is_changed_in_an_entry_is_found_but_what_no_ledger_knows():
    own = found(public=True)
    entry = registry_entry(own, PEOPLE)
    for name in entry:
        assert differences({**entry, name: "something else"}, own), name
        assert differences({key: value for key, value in entry.items() if key != name}, own), name
    assert differences({**entry, "more": 1}, own)
    for section in entry["deployment"]:
        for name in entry["deployment"][section]:
            changed = deepcopy(entry)
            changed["deployment"][section][name] = "something else"
            said_by_people = section == "basic" or name == "sources"
            allowed = said_by_people and name not in (
                "data_curators",
                "data_product_type",
                "publication_date",
            )
            assert bool(differences(changed, own)) is not allowed, name


def test_a_ledger_that_states_no_terms_has_no_entry():
    with pytest.raises(VerificationFailed, match="no REGISTER"):
        registry_entry(Verifier().result(), PEOPLE)


def test_a_page_that_is_not_filled_in_is_refused_by_the_names_of_its_fields():
    with pytest.raises(ValueError, match="intended_use is not filled in") as refused:
        read_people(page())
    for name in ("data_product_region", "registry_authors", "sources"):
        assert f"{name} is not filled in" in str(refused.value)
    assert read_people(FILLED) == PEOPLE
    with pytest.raises(ValueError, match="publication_date"):
        read_people({**FILLED, "publication_date": "2026-13-01"})


def test_an_entry_has_the_fields_that_the_registry_requires():
    entry = registry_entry(found(public=True), PEOPLE)
    assert entry.keys() == {"url_slug", "status", "tier", "deployment"}
    stated = entry["deployment"]
    assert set(stated) <= {
        *("basic", "dp_variant", "privacy_loss", "deployment_model", "accounting"),
        *("implementation", "administrative"),
    }
    assert stated["basic"].keys() == page().keys() - {"registry_authors", "sources"}
    assert stated["administrative"]["registry_authors"]


@pytest.mark.skipif(SCHEMA is None, reason="OPENDP_DEPLOYMENTS_SCHEMA names no schema")
def test_an_entry_is_valid_by_the_schema_of_the_registry():
    schema = yaml.safe_load(Path(str(SCHEMA)).read_text())
    entry = registry_entry(found(public=True), PEOPLE)
    checked = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    assert [str(each) for each in checked.iter_errors(entry)] == []
    assert not checked.is_valid({**entry, "more": 1})
