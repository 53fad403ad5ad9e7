"""/metrics: sums over all processes of a server, figures of the database, and nothing private."""

import re
from unittest import mock

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from accountant.core.states import JOB_STATES
from accountant.ledger_log.published import files_at
from accountant.queries import figures
from accountant.queries.ledgers import CAPS
from accountant.transactions import leases
from tests.object_stores import answering_503, s3
from tests.support import yes
from tests.web.serving import free_port, serving
from web.app import create_app
from web.probes import probe_app

pytestmark = pytest.mark.slow

__all__ = ["s3"]

#: Words of what data decides: no name may have one.
PRIVATE = re.compile(
    r"record|unit|text|row|word|token|document|person|user|analyst|realized|ex_post|group|size|length"
)
#: All that a label may say, by its name.
LABELS = {
    "state": {*JOB_STATES},
    "queue": {"generate", "free"},
    "binds": {*CAPS},
    "quantile": {"0.5", "0.9", "0.99"},
    "currency": {"epsilon-delta", "secret"},
}


def families(answer):
    return {each.name: each.samples for each in text_string_to_metric_families(answer)}


def told(site):
    answer = probe_app(site.app).test_client().get("/metrics")
    return families(answer.text)


def value(found, name, **labels):
    samples = [each.value for each in found[f"exchequer_{name}"] if each.labels == labels]
    return sum(samples)


def test_figures_are_those_of_the_rows(site):
    before = told(site)
    waits, lost = site.bench.submit(3), site.bench.submit(4)
    site.bench.submit(10**6)
    yes(site.engine, lost, site.bench.steward, "yes")
    claim = leases.claim(site.engine, lost, 1, "a worker", 60)
    with site.engine.begin() as connection:
        past = text("UPDATE parts SET lease_expires = now() - interval '1 hour' WHERE job_id = :id")
        connection.execute(past, {"id": lost})
    assert leases.expire(site.engine, 3) == [(lost, claim.token)]
    after = told(site)

    def more(name, **labels):
        return value(after, name, **labels) - value(before, name, **labels)

    assert (waits, more("asked_24h"), more("admitted_24h")) == (waits, 3, 1)
    assert sum(more("refused_24h", binds=cap) for cap in CAPS) == 1
    assert more("jobs", state="awaiting_approval") == 1
    assert more("parts", queue="generate", state="queued") == 1
    assert (more("attempts_24h"), more("leases_lost_24h")) == (2, 1)
    assert more("entries") == 1
    assert value(after, "outbox_age_seconds") > 0
    share = value(after, "spent_share", dataset=site.bench.dataset, currency="epsilon-delta")
    assert 0 < share < 1
    assert value(after, "database_up") == 1


def test_no_name_and_no_label_says_what_data_decides(site):
    site.bench.submit(10**6)
    routes = {rule.rule for rule in site.app.url_map.iter_rules()} | {"none"}
    site.app.test_client().get("/no/such/page/of-anybody")
    found = told(site)
    datasets = {site.bench.dataset}
    with site.engine.connect() as connection:
        datasets |= set(connection.execute(text("SELECT name FROM datasets")).scalars())
    for name, samples in found.items():
        assert not PRIVATE.search(name), name
        for label, said in {pair for sample in samples for pair in sample.labels.items()}:
            if label == "dataset":
                assert said in datasets
            elif label in LABELS:
                assert said in LABELS[label], (label, said)
            else:
                assert label in ("route", "method", "status", "le"), label
            if label == "route":
                assert said in routes


def test_every_figure_is_described_and_read_by_the_web_alone(site):
    names = {name for name, _, _ in figures.read(site.app.extensions["exchequer"]["engine"])}
    assert names <= figures.FIGURES.keys()
    assert {"jobs", "spent_share", "entries", "outbox_messages"} <= names


def test_nobody_reads_it_where_people_come(site):
    assert site.app.test_client().get("/metrics").status_code == 404


def test_processes_of_one_server_are_added_up(database_url, tmp_path):
    probe = f"127.0.0.1:{free_port()}"
    settings = {"gunicorn": True, "workers": 2, "probe_address": probe}
    with serving(database_url, tmp_path, **settings) as server:
        for _ in range(20):  # each on a connection of its own: either process
            assert httpx2.get(f"{server.url}/livez").status_code == 200
        for _ in range(3):  # whichever process is asked
            found = families(httpx2.get(f"http://{probe}/metrics").text)
            counted = {"route": "/livez", "method": "GET", "status": "200"}
            assert value(found, "http_requests", **counted) == 20


def test_the_published_log_and_its_key_are_for_anybody_where_the_settings_say_so(
    database_url, tmp_path, site
):
    (tmp_path / "checkpoint").write_text("a note")
    settings = site.app.extensions["exchequer"]["settings"]
    changed = {"public_log": tmp_path, "serve_public_log": True, "DATABASE_URL": database_url}
    served = create_app(settings.model_copy(update=changed)).test_client()
    assert served.get("/log/checkpoint").data == b"a note"
    assert served.get("/log/%2e%2e/keys/session").status_code == 404
    assert site.app.test_client().get("/log/checkpoint").status_code == 404


def test_a_published_log_in_a_store_is_handed_out_the_same_way(database_url, site, s3):
    for name, content in (("log/checkpoint", b"a note"), ("log/key", b"its key\n"), ("k", b"no")):
        files_at(s3).replace(name, content)
    settings = site.app.extensions["exchequer"]["settings"]
    changed = {"public_log": f"{s3}/log", "serve_public_log": True, "DATABASE_URL": database_url}
    app = create_app(settings.model_copy(update=changed))
    served = app.test_client()
    answer = served.get("/log/checkpoint")
    assert (answer.status_code, answer.data) == (200, b"a note")
    assert answer.mimetype == "application/octet-stream"
    assert served.get("/api/v1/keys").json["public_log"] == "its key"
    assert served.get("/log/nothing").status_code == 404
    with mock.patch.object(type(files_at(s3)), "read", return_value=b"outside"):
        for name in ("%2e%2e/k", "tile/../../k"):
            assert served.get(f"/log/{name}").status_code == 404, name
    with answering_503():
        for address in ("/log/checkpoint", "/api/v1/keys"):
            assert served.get(address).status_code == 503, address
    closed = app.extensions["exchequer"]["settings"].model_copy(update={"serve_public_log": False})
    assert create_app(closed).test_client().get("/log/checkpoint").status_code == 404
