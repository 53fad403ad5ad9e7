"""A registry entry says what its ledger says, in whichever form that was exported, and nothing else
holds.
"""

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.registry_entries import differences, registry_entry
from accountant.core.ledger.verifier import Verifier
from tests.ledger_exports import export, honest


def found(public: bool = False):
    return verify_lines(export(honest().lines, public))


def test_an_entry_is_that_of_every_export_of_its_ledger():
    entry = registry_entry(found(public=True), {"curator": "a hospital"})
    assert differences(entry, found(public=True)) == []
    assert differences(entry, found()) == []
    assert entry["privacy_loss"]["epsilon"] == "12"
    assert entry["releases"]["jobs"] > 0
    assert any("differentially private" in each["text"] for each in entry["statements"])


def test_whatever_is_changed_in_an_entry_is_found_but_what_no_ledger_knows():
    own = found(public=True)
    entry = registry_entry(own, {})
    for name in entry.keys() - {"about"}:
        assert differences({**entry, name: "something else"}, own), name
        assert differences({key: value for key, value in entry.items() if key != name}, own), name
    assert differences({**entry, "more": 1}, own)
    assert differences({**entry, "about": {"curator": "anybody"}}, own) == []


def test_a_ledger_that_states_no_terms_has_no_entry():
    with pytest.raises(VerificationFailed, match="no REGISTER"):
        registry_entry(Verifier().result(), {})
