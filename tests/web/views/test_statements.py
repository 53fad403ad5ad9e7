"""What a page costs the database: few statements, whatever it shows."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests import tallies
from tests.web.conftest import open_site
from tests.web.routes import PAGES, World
from tests.web.test_roles import make_world
from tests.web.views.looks import look

pytestmark = pytest.mark.slow
MOST = 12
#: A steward's masthead counts what waits, on each page.
MORE = {"auditing.report": 13}


@pytest.fixture(scope="module")
def world(app, engine, password_hash) -> Iterator[World]:
    tallies.register()
    yield make_world(open_site(app, engine, password_hash))
    tallies.forget()


def test_no_page_costs_many_statements(world):
    costs = {}
    for who in ("steward", "auditor", "analyst"):
        browser = world.site.pages(who)
        for name, route in PAGES.items():
            request = route.request(world)
            if route.file or request.method != "GET" or who not in route.may:
                continue
            browser.get(request.path)
            seen = look(partial(browser.get, request.path))
            costs[name] = max(costs.get(name, 0), len(seen.statements))
    dear = {name: cost for name, cost in costs.items() if cost > MORE.get(name, MOST)}
    assert not dear
