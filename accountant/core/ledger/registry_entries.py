"""An entry of a public registry of deployments of differential privacy, made from a verified
ledger.

Everything in it but `about` follows from the entries, so whoever has an export of it can make it
anew and compare (`differences`). `about` is what no ledger can know: who runs the deployment, and
what for.
"""

from collections.abc import Mapping
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.rules import UNIT_TERMS
from accountant.core.ledger.statements import statements
from accountant.core.ledger.verifier import Verified
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

FORMAT = "exchequer registry entry"
VERSION = 1


def registry_entry(found: Verified, about: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of a deployment. Raises VerificationFailed if no entry states terms."""
    terms, books = found.terms, found.books
    if terms is None:
        raise VerificationFailed(
            "no REGISTER entry states what is protected, so nothing can be said of it"
        )
    unit = terms["unit_column"] or "record"
    history = books.history
    statements_ = statements(books.accounts, history, str(terms["neighbours"]), unit, found.vouched)
    dp = books.account
    return {
        "format": FORMAT,
        "version": VERSION,
        "dataset": found.dataset,
        "ledger": {"entries": found.entries, "head": found.head},
        "model": "central: the service reads records as they are and adds noise to what it "
        "releases",
        "privacy_unit": {
            "unit": unit,
            "records_at_most": terms["max_records_per_unit"],
            **{name: terms[name] for name in UNIT_TERMS if name in terms},
        },
        "neighbours": terms["neighbours"],
        "public_size": terms["public_size"],
        "privacy_loss": {
            "epsilon": to_decimal(history.largest_epsilon, EPSILON_UNITS),
            "delta": to_decimal(history.largest_delta, DELTA_UNITS),
            "of": "all releases together, while a filter holds: the largest allowance ever granted",
        }
        if dp is not None and not history.losses
        else None,
        "composition": []
        if dp is None
        else [
            {"filter": str(filter_.filter.kind), "closed": filter_.closed, "holds": filter_.holds}
            for filter_ in dp.filters
        ],
        "releases": {
            "jobs": history.jobs,
            "unsettled": found.live,
            "ex_post_jobs": history.ex_post_jobs,
            "secret_jobs": history.secret_jobs,
            "failed_jobs": history.failures,
            "raises_after_a_release": history.raises_after_release,
            "losses": history.losses,
        },
        "statements": [
            {"currency": each.currency, "text": each.text, "without_exceptions": each.unqualified}
            for each in statements_
        ],
        "not_proved": list(found.unproved),
        "about": dict(about),
    }


def differences(entry: Mapping[str, Any], found: Verified) -> list[str]:
    """Return what an entry says that this ledger does not; empty where it is the ledger's own."""
    if entry.get("format") != FORMAT or entry.get("version") != VERSION:
        return [f"this is no {FORMAT} of version {VERSION}"]
    expected = registry_entry(found, {})
    sentences = []
    for name in expected.keys() | entry.keys():
        if name == "about":
            continue
        if (
            name not in expected
            or name not in entry
            or value_text(expected[name]) != value_text(entry[name])
        ):
            sentences.append(
                f"{name}: the entry says {entry.get(name)!r}, the ledger {expected.get(name)!r}"
            )
    return sorted(sentences)
