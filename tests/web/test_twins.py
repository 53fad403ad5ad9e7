"""Two services that differ only in private facts: every route gives an analyst the same answers.

Each twin has a database of its own with the same names in it, and everything was done in the same
order. What differs is what DESIGN calls private: how many records there are and with which labels,
why data was refused, what an ex-post job really cost.
"""

import csv
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest
from sqlalchemy import Engine

from accountant.catalogue import datasets
from accountant.catalogue import notices as addressed
from accountant.core import notices, webhook_rules
from accountant.core.errors import DataError
from accountant.core.ledger.allowances import Allowance
from accountant.core.privacy.cross_check import Charge
from accountant.core.privacy.events import FREE
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.database import connect
from accountant.settings import Settings
from accountant.transactions import (
    allowances,
    hardware,
    leases,
    second_calculation,
    settlement,
    submission,
)
from tests import tallies
from tests.conftest import as_application, fresh_database
from tests.support import Bench, claimed
from tests.web.browsers import Site
from tests.web.routes import API, PAGES, Request, World, filled
from tests.web.test_roles import Sender, make_world
from tests.web.views.looks import OWN, Look, look
from web.app import create_app
from workers.data import fingerprints
from workers.data.records import Layout

pytestmark = pytest.mark.slow

LABELS = ("good", "bad")
LAYOUT = Layout("{text}", label_column="label", labels=LABELS)
MEDIAN = {"aggregation": "median", "ex_post_cap": 2.5, "tokens_per_batch": 5}

#: Records by label, the row that spoils a later version, and what the ex-post job cost in units.
FACTS = (((40, 2), 3, 1), ((7, 311), 200, 987_654_321_987_654))


def written(path: Path, counts: tuple[int, int], broken: int | None = None) -> Path:
    """A file with so many records of each label; the row `broken` has a label that nobody
    declared.
    """
    labels = [label for label, count in zip(LABELS, counts, strict=True) for _ in range(count)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row, label in enumerate(labels, 1):
            writer.writerow(
                [f"a text of {path.parent.name}, number {row}", label if row != broken else "odd"]
            )
    return path


def checked(engine: Engine, version: UUID, path: Path) -> None:
    """Check new data, as a worker does."""
    key = b"k" * 32
    try:
        units = fingerprints.fingerprints(str(path), LAYOUT, key)
        claimed(engine, version, fingerprints.proof(key), units)
    except DataError as problem:
        datasets.dataset_refused(engine, version, str(problem))


def settled(site: Site, figure: int, cap: str = "10") -> str:
    """A median job that cost `figure` units."""
    bench = site.bench
    allowed = Allowance(None, None, "a study", ex_post=cap)
    allowances.allow(bench.engine, bench.dataset, allowed, bench.steward)
    job_id = site.api("analyst").post("/jobs", site.job(parameters=MEDIAN)).json["id"]
    site.api("steward").post(
        f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits the study"}
    )
    claim = leases.claim(bench.engine, UUID(job_id), 1, "worker", 60)
    assert claim is not None
    leases.begin_reading(bench.engine, claim)
    curve = CostCurve.of([[figure / 1e9] * 5, [0.0] * 5, [figure / 3e9] * 5][: 2 + figure % 2])
    output = settlement.Output("x", "0" * 64)
    leases.finish(bench.engine, claim, FREE, output, figure, curve)
    settlement.publish(bench.engine, claim, FREE, output, "worker", ex_post=figure, curve=curve)
    return str(job_id)


def make_twin(engine: Engine, app, password_hash: str, folder: Path, facts) -> World:
    """One twin, with everything done in the same order."""
    counts, broken, figure = facts
    (folder / "out").mkdir(parents=True)
    bench = Bench(engine, tag="twin", label_column="label", labels=list(LABELS))
    site = Site(app, engine, bench, password_hash)
    for path, spoilt in ((folder / "more.csv", None), (folder / "bad.csv", broken)):
        written(path, counts, spoilt)
        version = datasets.add_version(engine, bench.dataset, {"uri": str(path)}, bench.steward)
        checked(engine, version, path)
    bench.allow()
    bench.warm()
    events = [each for each in webhook_rules.EVENTS if each not in webhook_rules.OVERSEERS_EVENTS]
    told = {"url": "https://receiver.example/twin", "events": events, "kind": "json"}
    told["person"] = site.actor("analyst").name
    assert site.api("administrator").post("/notices", told).status_code == 201
    ex_post_job = settled(site, figure)
    world = make_world(site)
    world.settled = ex_post_job
    return world


@pytest.fixture(scope="module")
def twins(servers, password_hash, tmp_path_factory) -> Iterator[list[World]]:
    tallies.register()
    with ExitStack() as stack:
        stack.callback(tallies.forget)
        # When /healthz says that jobs wait for a worker depends on the clock, and on nothing
        # private.
        stack.enter_context(patch.object(hardware, "SECONDS", 3600))
        made = []
        for name, facts in zip(("first", "second"), FACTS, strict=True):
            url = as_application(servers, stack.enter_context(fresh_database(servers)))
            engine = connect(url)
            stack.callback(engine.dispose)
            folder = tmp_path_factory.mktemp(name) / name
            # How much of its limit somebody has left depends on the clock, and on nothing private.
            unlimited = {"requests_per_person": 0, "requests_per_address": 0}
            app = create_app(Settings(home=folder / "home", DATABASE_URL=url, **unlimited))
            made.append(make_twin(engine, app, password_hash, folder, facts))
        yield made


def seen(world: World) -> dict[str, Look]:
    """Return what every route shows to an analyst: their own jobs' and everybody's."""
    found = {}
    for who in ("analyst", "stranger"):
        sender = Sender(world, who)
        for api, routes in ((True, API), (False, PAGES)):
            for name, route in routes.items():
                request = route.request(world)
                if name in PROBES:  # the first ones connect, and write what keys make
                    sender.send(request, api=api)
                shown = look(partial(sender.send, request, api=api))
                found[f"{who} {name}"] = in_any_order(shown) if name in PROBES else shown
        for api, paths in ((True, MORE), (False, MORE_PAGES)):
            for path in paths:
                request = Request("GET", filled(path, world))
                found[f"{who} {path} {api}"] = look(partial(sender.send, request, api=api))
        for number, body in enumerate(REFUSED):
            job = {
                **body,
                "purpose": "x",
                "dataset": world.dataset,
                "model": world.site.bench.model,
            }
            for path, given in (("/jobs", job), (f"/datasets/{world.dataset}/quote", body)):
                request = Request("POST", path, json=given)
                found[f"{who} refused {number} {path}"] = look(
                    partial(sender.send, request, api=True)
                )
    return found


#: Their questions are asked at once, each by a thread of its own.
PROBES = ("readyz", "healthz")


def in_any_order(shown: Look) -> Look:
    """Return what a probe shows, whichever thread asked first or had to connect."""
    asked = (each for each in shown.statements if each != "SELECT calling_process()")
    return replace(shown, statements=tuple(sorted(asked)))


#: Views of the same things that the table of routes has once: other formats, filters, the ex-post
#: job.
MORE = (
    *(
        f"/jobs/{{published}}/output?format={form}&card=true"
        for form in ("jsonl", "csv", "parquet")
    ),
    *("/jobs/{published}/output?format=parquet", "/jobs/{published}/card?format=md"),
    *("/jobs/{settled}", "/jobs/{settled}/card", "/jobs/{settled}/card?format=md"),
    *("/datasets?q=good", "/datasets?open=true", "/datasets?mechanism=private-prediction"),
    *("/jobs?mechanism=private-prediction", "/jobs?since=2020-01-01&until=2100-01-01"),
    *("/decisions?state=open", "/decisions?job={job}", "/artifacts?job={settled}"),
)
MORE_PAGES = (
    *("/?q=good", "/?open=1", "/?mechanism=private-prediction", "/jobs?state=succeeded"),
    *(
        "/jobs/{settled}",
        "/jobs/{settled}/live",
        "/jobs/{settled}/card.md",
        "/datasets/{dataset}/spending",
    ),
    *(f"/jobs/{{published}}/output.{form}?card=true" for form in ("jsonl", "csv", "parquet")),
)

#: Requests that don't fit, with words that say what is left.
REFUSED = (
    {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 100_000}},
    {"mechanism": "private-prediction", "parameters": {**MEDIAN, "ex_post_cap": 7.6}},
    {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": "many"}},
)


def seen_alone(world: World) -> tuple[dict[str, Look], set[Charge]]:
    """What a process that knows nothing yet shows of a world, and the charges that it calculated
    twice.

    A service is a process of its own; here both are in one, which remembers what it calculated and
    the terms of each dataset. Where a charge is not known yet, a transaction begins again, so the
    world that is asked first would need more statements than the other. What a process remembers is
    no leak as long as its keys are public: both worlds must come upon the same charges.
    """
    second_calculation._known.clear()
    submission._last_seen.clear()
    return seen(world), set(second_calculation._known)


def test_the_comparison_has_power(twins):
    """Those who may know see the difference: the facts do differ, and the comparison would
    notice.
    """
    for path in ("/datasets/data-twin", "/datasets/data-twin/ex-post"):
        first, second = (look(partial(world.site.api("steward").get, path)) for world in twins)
        assert first.status == second.status == 200
        assert first.body != second.body


def test_no_notice_of_ones_own_tells_a_private_fact(twins):
    said = []
    for world in twins:
        bodies: list[str] = []
        while taken := addressed.take(world.site.engine, 100):  # a few at a time
            bodies += [
                notices.body(each.kind, each.event, each.facts, None, each.message_id).decode()
                for each in taken
            ]
        said.append(sorted(OWN.sub("*", body) for body in bodies))
    assert said[0] == said[1]
    assert any("job.succeeded" in body for body in said[0])


def test_no_route_shows_an_analyst_a_private_fact(twins):
    (first, charges), (second, others) = (seen_alone(world) for world in twins)
    assert charges == others
    assert charges, "both have begun a transaction again"
    assert first.keys() == second.keys()
    differing = [name for name in first if first[name] != second[name]]
    assert not differing, [(name, first[name], second[name]) for name in differing][:1]
    assert sum(each.status < 400 for each in first.values()) > 60
