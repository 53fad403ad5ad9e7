"""Each request has one line of the log and an id; a line is JSON, or text on a terminal."""

import io
import json
import logging
import subprocess
import sys

import pytest

from accountant import logs
from tests.web.serving import ROOT, serving


@pytest.fixture
def lines():
    """The lines of requests, as JSON."""
    logger, stream = logging.getLogger("exchequer.request"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.formatter(for_people=False))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_request_has_one_line_with_its_id_and_what_it_is_about(site, lines):
    asked = site.job()
    client, token = site.app.test_client(), site.api("analyst").headers["Authorization"]
    before = len(lines())
    headers = {"X-Request-ID": "from-a-proxy.1", "Authorization": token}
    answer = client.post("/api/v1/jobs", json=asked, headers=headers)
    assert answer.headers["X-Request-ID"] == "from-a-proxy.1"
    told = lines()[before:]
    assert len(told) == 1
    assert told[0] | {"ms": 0, "timestamp": ""} == {
        "message": "request",
        "level": "info",
        "logger": "exchequer.request",
        "timestamp": "",
        "request": "from-a-proxy.1",
        "job": answer.json["id"],
        "dataset": site.bench.dataset,
        "method": "POST",
        "route": "/api/v1/jobs",
        "status": 201,
        "ms": 0,
    }
    client.get(f"/api/v1/jobs/{answer.json['id']}?note=a-private-word", headers=headers)
    told = lines()
    assert told[-1]["job"] == answer.json["id"]
    assert "a-private-word" not in json.dumps(told)


@pytest.mark.parametrize("stated", ["", "x" * 65, "two words", 'a"quote', "é"])
def test_another_id_is_given_where_one_could_do_harm(site, stated):
    answer = site.app.test_client().get("/livez", headers={"X-Request-ID": stated.encode()})
    given = answer.headers["X-Request-ID"]
    assert given != stated
    assert len(given) == 32


PROCESS = """
import logging, structlog
from accountant import logs
logs.configure()
with logs.about(job="7"):
    structlog.get_logger("ours").warning("lease expired", part=1)
    logging.getLogger("theirs").warning("it is %s", "late")
try:
    raise ValueError("what happened")
except ValueError:
    logging.getLogger("theirs").exception("failed")
"""


def test_lines_of_structlog_and_of_libraries_are_alike():
    told = subprocess.run(
        [sys.executable, "-c", PROCESS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ours, theirs, failed = map(json.loads, told.stderr.splitlines())
    assert (ours["message"], ours["part"], ours["job"]) == ("lease expired", 1, "7")
    assert (theirs["message"], theirs["job"], theirs["level"]) == ("it is late", "7", "warning")
    assert "ValueError: what happened" in failed["exception"]
    assert "job" not in failed


def test_a_terminal_gets_text():
    record = logging.LogRecord("theirs", logging.WARNING, "", 1, "it is late", (), None)
    told = logs.formatter(for_people=True).format(record)
    assert "it is late" in told
    assert "{" not in told


@pytest.mark.slow
@pytest.mark.parametrize("gunicorn", [True, False])
def test_every_line_of_a_server_is_json(database_url, tmp_path, gunicorn):
    log = tmp_path / "lines"
    with serving(database_url, tmp_path, gunicorn=gunicorn, log=log):
        pass
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert bool(told) or not gunicorn
