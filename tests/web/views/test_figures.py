"""Figures on pages: what is used is never shown below what it is, and what is left never above."""

import json
import math
import re
from uuid import UUID

import pytest

from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.verifier import Verified
from accountant.core.privacy.hypothesis_testing import best_success
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal
from tests.support import yes
from web import meaning
from web.views import template_filters
from web.views.template_filters import units


@pytest.mark.parametrize(("value", "spent", "left"), [
    ("2.00004", "2.001", "2"),
    ("0.99999", "1", "0.9999"),
    ("12345.2", "12,346", "12,345"),
    ("0.000000012344", "1.235e-8", "1.234e-8"),
    (0.1 + 0.2, "0.3", "0.3"),
    ("0", "0", "0"),
    ("not shown", "not shown", "not shown"),
])  # fmt: skip
def test_amounts(value, spent, left):
    assert template_filters.spent(value) == spent
    assert template_filters.left(value) == left


@pytest.mark.parametrize(("share", "used", "left"), [
    (0.9996, "100.0 %", "99.9 %"),
    (1.00001, "100.1 %", "100.0 %"),
    (0.07, "7.0 %", "7.0 %"),
    (1 / 3, "34 %", "33 %"),
    (0.0001, "< 0.1 %", "0.0 %"),
    (0.0, "0.0 %", "0.0 %"),
    (5e21, "over 1,000 %", "500,000,000,000,000,000,000,000 %"),
])  # fmt: skip
def test_shares(share, used, left):
    assert template_filters.percent(share) == used
    assert template_filters.percent_left(share) == left


def exported(site) -> tuple[Verified, list[dict]]:
    """The ledger of the site's dataset as `verify` reads it, and its entries."""
    lines = site.api("auditor").get(f"{site.dataset}/ledger/export").text.splitlines(True)
    return verify_lines(lines), [json.loads(line) for line in lines[1:]]


@pytest.mark.slow
def test_no_page_says_a_figure_that_verify_does_not(site, publish):
    """Exact amounts stand in a figure's title; what is shown is rounded to the safe side of them.

    Lefts over time and costs of entries come from the entries that verify accepted.
    """
    done, going = site.submitted(tokens=10), site.submitted(tokens=5)
    for job in (done, going):
        yes(site.engine, UUID(job), site.bench.steward, "it fits")
    publish(done, b'{"text": "a"}\n')
    waiting, name, browser = site.submitted(tokens=4), site.bench.dataset, site.pages("steward")
    verified, documents = exported(site)
    balances = verified.books.account
    paths = {
        "datasets": f"/?q={name}",
        "dataset": f"/datasets/{name}",
        "job": f"/jobs/{done}",
        "spending": f"/datasets/{name}/spending",
        "report": f"/datasets/{name}/report",
        "ledger": f"/ledger?dataset={name}",
        "inbox": f"/decisions/{waiting}",
    }
    shown = {page: browser.get(path).text for page, path in paths.items()}
    # What the inbox says of the request that waits has to be what its entry says.
    yes(site.engine, UUID(waiting), site.bench.steward, "it fits")
    later = exported(site)[1]
    bodies = [each["body"] for each in later]
    exact, known = [], set()
    asked = [each["body"] for each in later if each["kind"] == "RESERVE"]
    for each in balances.filters:
        amounts = {word: getattr(each, word) for word in ("limit", "spent", "reserved", "left")}
        exact.append({word: amount.main for word, amount in amounts.items()})
        for part, scale in (("main", EPSILON_UNITS), ("delta", DELTA_UNITS)):
            costs = [
                [int(body["costs"][each.filter.kind][part]) for body in some]
                for some in ([body for body in bodies if body.get("costs")], asked)
            ]
            running = [sum(costs[1][:number]) for number in range(len(asked) + 1)]
            limit = getattr(each.limit, part)
            sums = [getattr(amount, part) for amount in amounts.values()]
            sums += [*costs[0], *running, *(limit - amount for amount in running)]
            known |= {to_decimal(amount, scale) for amount in sums}
    used = min((limit["spent"] + limit["reserved"]) / limit["limit"] for limit in exact)
    allowed = [body for body in bodies if "epsilon" in body]
    epsilon, delta = (max(float(body[part]) for body in allowed) for part in ("epsilon", "delta"))
    for page, text in shown.items():
        figures = re.findall(r'title="(-?\d[\d.e-]*)"[^>]*>([^<]*)<', text)
        assert {amount for amount, _ in figures} <= known, page
        for amount, figure in figures:
            assert figure in {template_filters.spent(amount), template_filters.left(amount)}, page
        assert figures or page in {"datasets", "inbox"}, page
        lefts = set(re.findall(r"(?<![\d.])(\d+) % left", text))
        now = {str(math.floor(round(100 * (1 - used), 9)))}
        assert now <= lefts if page == "inbox" else lefts <= now, page
    sums = set(re.findall(r'<td class="num">([\d.]+)</td>', shown["report"]))
    assert {units(each[word]) for each in exact for word in each} <= sums
    head, entries = verified.head, len(documents)
    assert head in shown["report"]
    assert f"The ledger has {entries} entries" in shown["report"]
    bound = meaning.at_most(best_success(epsilon, delta))
    for page in ("dataset", "report"):
        assert f"in at most <strong>{bound}</strong> of cases" in shown[page]
        assert f"ε&nbsp;{epsilon:g}" in shown[page] or f"ε {epsilon:g}" in shown[page]
    assert f"<strong>{template_filters.percent(used)}</strong> is used" in shown["report"]
