"""Every listing of the API that has pages, by its description: walked while rows come in, and its
cursors.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from flask import Flask

from tests import tallies
from tests.web.api.test_http import is_problem
from tests.web.browsers import PASSWORD, Api
from tests.web.conftest import open_site
from tests.web.routes import API, World
from tests.web.test_roles import make_world
from tests.web.test_twins import settled
from web.api.openapi import Listing, Route, routes
from web.api.paging import Order, encoded
from web.views import forms

pytestmark = pytest.mark.slow

# --- how rows get in ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """A listing's test: how it gets a row, who reads it (and who sees least), the filter for our
    rows.
    """

    add: Callable[[World, Path], object]
    query: str = ""
    reader: str = "steward"


def posted(world: World, kind: str, **body: str) -> None:
    answer = world.site.api("steward").post(f"/{kind}", {"name": world.fresh(kind), **body})
    assert answer.status_code == 201, answer.text


def approved(world: World) -> None:
    job = world.job()
    assert (
        world.site.api("steward")
        .post(f"/decisions/{job}/answer", {"yes": True, "reason": "a test"})
        .status_code
        == 200
    )


def refused(world: World) -> None:
    job = world.job()
    assert (
        world.site.api("steward")
        .post(f"/decisions/{job}/answer", {"yes": False, "reason": "a test"})
        .status_code
        == 200
    )


def signed(world: World) -> None:
    world.site.bench.allow()
    assert world.site.api("steward").post(f"{world.site.dataset}/checkpoints").status_code == 201


def signed_in(world: World) -> None:
    body = {"name": world.site.actor("analyst").name, "password": PASSWORD}
    assert Api(world.site.app, None).post("/session", body).status_code == 201


ROWS = {
    "/activity": Rows(lambda world, _: approved(world), "dataset={dataset}"),
    "/artifacts": Rows(lambda world, folder: make_world(world.site), reader="analyst"),
    "/checkpoints": Rows(lambda world, _: signed(world), "dataset={dataset}"),
    "/corpora": Rows(
        lambda world, _: posted(world, "corpora", uri="/c.csv", statement="public"),
        reader="analyst",
    ),
    "/datasets": Rows(lambda world, _: posted(world, "datasets", uri="/d.csv"), reader="analyst"),
    "/datasets/{name}/checkpoints": Rows(lambda world, _: signed(world)),
    "/datasets/{name}/ex-post": Rows(lambda world, _: settled(world.site, 10**9, "100")),
    "/datasets/{name}/ledger": Rows(lambda world, _: world.site.bench.allow()),
    "/decisions": Rows(lambda world, n: world.job() if len(world.made) % 2 else world.offer()),
    "/jobs": Rows(lambda world, _: world.job(), reader="analyst"),
    "/ledger": Rows(lambda world, _: world.site.bench.allow(), "dataset={dataset}"),
    "/models": Rows(
        lambda world, _: posted(world, "models", path="/m", trained_on="public"), reader="analyst"
    ),
    "/refusals": Rows(lambda world, _: refused(world), "dataset={dataset}"),
    "/sign-ins": Rows(lambda world, _: signed_in(world), reader="analyst"),
    "/uploads": Rows(lambda world, _: world.upload()),
    "/users": Rows(lambda world, _: world.person(), "name=person-", "administrator"),
}


def paged(app: Flask) -> dict[str, tuple[Route, Listing, Order]]:
    """Every listing that has pages, by its path."""
    found = {}
    for route in routes(app):
        answer = route.operation.answer
        if isinstance(answer, Listing) and answer.paged:
            found[route.path.removeprefix("/api/v1")] = (route, answer, answer.paged)
    return found


@pytest.fixture
def world(site) -> Iterator[World]:
    tallies.register()
    made = World(site)
    yield made
    tallies.forget()


@pytest.fixture(scope="module")
def still(app, engine, password_hash) -> World:
    """A world to which nobody adds anything."""
    return World(open_site(app, engine, password_hash))


def address(world: World, path: str, query: str = "") -> str:
    """The path with names in it, and `?` where `limit` and the like can follow."""
    return f"{path.replace('{name}', world.dataset)}?{query.format(dataset=world.dataset)}&"


# --- walking ------------------------------------------------------------------------------------


def key_of(row: dict[str, Any], order: Order) -> tuple[Any, ...]:
    found = []
    for path, _ in order.key:
        value: Any = row
        for name in path.split("."):
            value = value[name]
        found.append(value)
    return tuple(found)


def walk(api: Api, path: str, listing: Listing, limit: int) -> Iterator[list[Any]]:
    """The keys of each page, by `next` and by `Link` alike; a cursor is made of what its reader has
    seen.
    """
    order = listing.paged
    assert order is not None
    answer = api.get(f"{path}limit={limit}")
    while True:
        assert answer.status_code == 200, answer.text
        keys = [key_of(row, order) for row in answer.json[listing.name]]
        cursor, link = answer.json["next"], answer.headers.get("Link")
        yield keys
        if cursor is None:
            assert link is None
            return
        assert len(keys) == limit
        held = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        assert held == [order.listing, *keys[-1]], (
            "public members of the last row, and nothing else"
        )
        answer = api.get(f"{path}limit={limit}&cursor={cursor}")
        target = re.fullmatch(r'<([^>]+)>; rel="next"', link)
        assert target is not None
        linked = api.client.get(target[1], headers=api.headers)
        assert linked.json == answer.json


def test_each_paged_listing_is_walked_here(app):
    assert set(paged(app)) == set(ROWS), "say in ROWS how the listing gets a row"


@pytest.mark.parametrize("path", ROWS)
def test_rows_that_come_meanwhile_hide_and_repeat_none(world, tmp_path, path):
    rows, (_, listing, _) = ROWS[path], paged(world.site.app)[path]
    api, where = world.site.api(rows.reader), address(world, path, rows.query)
    for _ in range(5):
        rows.add(world, tmp_path)
    whole = [key for keys in walk(api, where, listing, 200) for key in keys]
    assert len(whole) >= 5
    seen = []
    for number, keys in enumerate(walk(api, where, listing, 2)):
        seen += keys
        if number < 3:
            rows.add(world, tmp_path)
    assert len(seen) == len(set(seen)), "repeated"
    there = set(whole)
    assert [key for key in seen if key in there] == whole, "hidden"


# --- the same on pages --------------------------------------------------------------------------


UUIDS = "([0-9a-f-]{36})"


@pytest.mark.parametrize(
    ("page", "reader", "link", "shown", "path", "member"),
    [
        ("/inbox", "steward", "Later decisions", f'id="decision-{UUIDS}"', "/decisions", "id"),
        (
            "/artifacts",
            "analyst",
            "Older artifacts",
            'title="([0-9a-f]{64})"',
            "/artifacts",
            "sha256",
        ),
        ("/uploads", "steward", "Older files", r"([0-9a-f]{64})\.\w+</code>", "/uploads", "sha256"),
    ],
)
def test_a_page_that_is_cut_links_to_what_follows(
    world, tmp_path, monkeypatch, page, reader, link, shown, path, member
):
    for module in ("artifacts", "decisions"):
        monkeypatch.setattr(f"web.views.{module}.PAGE", 5)
    monkeypatch.setitem(forms.listed.__kwdefaults__, "limit", 5)
    for _ in range(7):
        ROWS[path].add(world, tmp_path)
    browser, seen, address = world.site.pages(reader), [], page
    while address:
        text = browser.get(address).text
        seen += re.findall(shown, text)
        following = re.search(rf'href="([^"]+)" rel="next">{link}</a>', text)
        address = unescape(following[1]) if following else ""
    rows, cursor, listing = [], "", paged(world.site.app)[path][1]
    while cursor is not None:
        answer = world.site.api(reader).get(f"{path}?limit=200&cursor={cursor}").json
        rows += [each[member] for each in answer[listing.name]]
        cursor = answer["next"]
    assert len(seen) > 5
    assert seen == rows


# --- cursors ------------------------------------------------------------------------------------

MOMENT = "2026-01-01T00:00:00+00:00"
ID = "6f1c0de0-0000-4000-8000-000000000001"
RIGHT: dict[type, Any] = {str: "a", int: 1, UUID: ID, datetime: MOMENT}
WRONG: dict[type, list[Any]] = {
    str: [None, 1, ["a"], "a\0b", "\ud800"],
    int: [None, "1", True, 1.0, -1, 2**63, 2**70],
    UUID: [None, 1, "x", ID[:-1]],
    datetime: [None, 1, "x", "2026-01-01", MOMENT[:19], "0001-01-01T00:00:00+14:00"],
}


def right(order: Order) -> list[Any]:
    return [RIGHT[kind] for _, kind in order.key]


def refused_cursor(answer: Any) -> None:
    is_problem(answer, 422)
    assert [each["field"] for each in answer.json["problems"]] == ["cursor"]


def reader_of(world: World, route: Route) -> Api:
    """Somebody who may read the listing."""
    for who in ("analyst", "steward", "administrator"):
        if who in API[route.endpoint].may:
            return world.site.api(who)
    raise AssertionError(route.label)


def test_a_listing_takes_its_own_cursors_alone(still):
    every = paged(still.site.app)
    assert len({order.listing for _, _, order in every.values()}) == len(every)
    for path, (route, _, order) in every.items():
        api, where = reader_of(still, route), address(still, path)
        own = api.get(f"{where}cursor={encoded(order, right(order))}")
        if own.status_code != 200:
            refused_cursor(own)  # an entry or a checkpoint that there is not
        for _, _, other in every.values():
            if other is not order:
                refused_cursor(api.get(f"{where}cursor={encoded(other, right(other))}"))


def test_a_key_of_another_kind_is_refused(still):
    for path, (route, _, order) in paged(still.site.app).items():
        api, where = reader_of(still, route), address(still, path)
        keys = [[], [*right(order), 1], right(order)[:-1]]
        for place, (_, kind) in enumerate(order.key):
            keys += [
                [*right(order)[:place], wrong, *right(order)[place + 1 :]] for wrong in WRONG[kind]
            ]
        for key in keys:
            refused_cursor(api.get(f"{where}cursor={encoded(order, key)}"))


def text_of(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        *("x", "\0", "é", "A" * 5000, "WyJqb2JzIg"),
        *(text_of(value) for value in ([], {}, None, 1, "jobs", ["jobs"], [["jobs"]])),
        base64.urlsafe_b64encode(b"[" * 20_000).decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_what_is_no_cursor_is_refused(still, cursor):
    for path, (route, _, _) in paged(still.site.app).items():
        api, where = reader_of(still, route), address(still, path)
        refused_cursor(api.get(f"{where}cursor={quote(cursor)}"))


def test_a_cursor_tells_nothing_of_what_its_reader_may_not_see(world, tmp_path):
    """Artifacts are ordered by when their jobs ended, which is no analyst's to know."""
    for _ in range(3):
        make_world(world.site)
    first = world.site.api("analyst").get("/artifacts?limit=1").json
    assert first["artifacts"][0]["created_at"] is None
    assert not re.search(
        r"\d{4}-\d\d-\d\dT", base64.b64decode(first["next"] + "==", altchars=b"-_").decode()
    )
    order = paged(world.site.app)["/artifacts"][2]
    stranger = world.site.api("analyst-stranger")
    hidden = stranger.get(f"/artifacts?cursor={first['next']}")
    none = stranger.get(f"/artifacts?cursor={encoded(order, [ID, 'counts'])}")
    refused_cursor(hidden)
    assert hidden.json == none.json


# --- what is not paged --------------------------------------------------------------------------

#: Lists in one piece: one person's things, each of a bounded number, and what use does not
#: lengthen.
WHOLE = {
    "GET /api/v1/keys",
    "GET /api/v1/mechanisms",
    "GET /api/v1/me/tokens",
    "GET /api/v1/users/{name}/tokens",
    "GET /api/v1/notices",
    "GET /api/v1/notices/events",
}


def test_lists_without_pages_are_those_that_use_does_not_lengthen(app):
    whole = {
        route.label
        for route in routes(app)
        if isinstance(route.operation.answer, Listing) and not route.operation.answer.paged
    }
    assert whole == WHOLE


def test_the_description_tells_each_listing_alike(app):
    from web.api.openapi import document

    for path, (_, _, order) in paged(app).items():
        told = document(app)["paths"][f"/api/v1{path}"]["get"]
        query = {
            each["name"]: each["schema"] for each in told["parameters"] if each["in"] == "query"
        }
        assert query["limit"] == {
            "type": "integer",
            "minimum": 1,
            "maximum": 200,
            "default": order.rows,
        }
        assert "cursor" in query
        assert "after" not in query
        assert (
            "next" in told["responses"]["200"]["content"]["application/json"]["schema"]["required"]
        )
        assert "Link" in told["responses"]["200"]["headers"]
