"""A quote prices once and reads its dataset once; so does a form, its check aside."""

from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event

from accountant.core import mechanisms

ID = "private-prediction"


@pytest.fixture
def counted(monkeypatch):
    """Calls of a mechanism's price, and statements that read datasets."""
    seen: Counter[str] = Counter()
    real = mechanisms.get(ID)

    def price(parameters, terms):
        seen["prices"] += 1
        return real.price(parameters, terms)

    def note(*args):
        seen["statements"] += "FROM datasets" in args[2]

    monkeypatch.setitem(mechanisms.MECHANISMS, ID, replace(real, price=price))
    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


def test_a_quote_of_the_api_prices_once(site, counted):
    api = site.api("analyst")
    counted.clear()
    body = {"mechanism": ID, "parameters": {"tokens_per_batch": 7}}
    assert api.post(f"{site.dataset}/quote", body).json["dataset"]["decision"] == "NeedsApproval"
    assert counted == {"prices": 1, "statements": 1}


def test_a_form_is_priced_once_with_its_check(site, counted):
    browser = site.pages("analyst")
    form = {"csrf_token": browser.token(f"{site.dataset}/submit"), "mechanism": ID}
    form |= {"model": site.bench.model, "parameters.tokens_per_batch": "8"}
    counted.clear()
    assert "Costs" in browser.client.post(f"{site.dataset}/price", data=form).text
    assert counted["prices"] == 1
    assert counted["statements"] <= 2  # one of the price, one of the check
