"""The auditor's pages and API: every entry, priced anew; refusals, checkpoints, who did what."""

import hashlib
import re

import pytest

from accountant import ledger
from accountant.ledger import Allowance
from tests.web.browsers import Site


@pytest.fixture
def run(site: Site, publish):
    """A dataset with an allowance, a job that succeeded, one that was refused and one that was cancelled."""
    done = site.submitted(tokens=10)
    site.api("steward").post(f"/jobs/{done}/approve", {"reason": "it fits"})
    publish(done, b'{"text": "a"}\n')
    refused = site.submitted(tokens=11)
    site.api("steward").post(f"/jobs/{refused}/refuse", {"reason": "not for this study"})
    return done, refused


def test_pages(site, run):
    auditor = site.pages("auditor")
    for path in (
        "/ledger",
        "/ledger/refusals",
        "/ledger/checkpoints",
        "/ledger/keys",
        "/ledger/exports",
        f"/ledger/exports?dataset={site.bench.dataset}",
        "/ledger/activity",
    ):
        answer = auditor.get(path)
        assert answer.status_code == 200, path
    for seq in (1, 2, 3):
        answer = auditor.get(f"/ledger/{site.bench.dataset}/{seq}")
        assert answer.status_code == 200, answer.text


def test_report(site, run):
    auditor = site.pages("auditor")
    for q in ("", "?public=true"):
        answer = auditor.get(f"/datasets/{site.bench.dataset}/report{q}")
        assert answer.status_code == 200, answer.text
