"""docs/api.md, command by command: curl against a real server, and what the page says is
answered.
"""

import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from accountant.queries import jobs
from tests.web.browsers import PASSWORD
from web.api.openapi import examples, routes
from web.views.api_docs import operations_by_tag

GUIDE = Path(__file__).parents[3] / "docs" / "api.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture
def address(app):
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def worker(site, publish):
    """Ends each job that is approved, as a worker would."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.1):
            for job in jobs.jobs(site.engine, site.bench.steward, jobs.Wanted(state="queued")):
                publish(job["id"], b'{"text": "hello", "label": null, "complete": true}\n')

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.slow
def test_the_guide_s_commands_answer_what_it_says(site, address, worker, tmp_path):
    (_, _), *blocks = BLOCK.findall(GUIDE.read_text())
    assert len(blocks) >= 9
    variables = f"""
        URL={address} DATASET={site.bench.dataset} MODEL={site.bench.model}
        ANALYST={site.actor("analyst").name} ANALYST_PASSWORD='{PASSWORD}'
        STEWARD={site.actor("steward").name} STEWARD_PASSWORD='{PASSWORD}'
    """
    first = BLOCK.findall(GUIDE.read_text())[0][0]
    field = next(line for line in first.splitlines() if line.startswith("field()"))
    script = "\n".join(
        ["set -eu -o pipefail", variables, field]
        + [f"{commands}\necho '=== {number}'" for number, (commands, _) in enumerate(blocks)]
    )
    ran = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    answered = re.split(r"=== \d+\n", ran.stdout)
    for (commands, told), found in zip(blocks, answered, strict=False):
        assert sorted(found.split()) == sorted(told.split()), commands


#: Asked last: the token that asks is no good afterwards.
ENDS_THE_TOKEN = ("/session", "/me/sign-out-everywhere", "/me/password")


@pytest.mark.slow
def test_every_command_of_the_description_s_page_is_answered_as_described(
    site, address, app, tmp_path
):
    """Quoting and all: each is run as it stands, with names of things that exist in place of the
    braces.
    """
    job = site.submitted()
    things = {"job": job, "decision": job, "sha256": "0" * 64, "name": site.bench.dataset}
    token = site.api("steward").headers["Authorization"].removeprefix("Bearer ")
    script, operations = [f"URL={address} TOKEN={token} KEY=k"], []
    everything = [each for group in operations_by_tag(app).values() for each in group]
    for operation in sorted(everything, key=lambda each: each["path"].endswith(ENDS_THE_TOKEN)):
        command = re.sub(
            r"(?<=/)\{(\w+)\}", lambda found: things.get(found[1], "1"), operation["curl"]
        )
        for plain, real in (("notes", site.bench.dataset), ("tiny", site.bench.model)):
            command = command.replace(f'"{plain}"', f'"{real}"')
        script.append(f"{command} -s -o /dev/null -w '%{{http_code}}\\n'")
        operations.append(operation)
    ran = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=True,
    )
    statuses = ran.stdout.split()
    assert len(statuses) == len(operations) == len(routes(app))
    good = 0
    for operation, status in zip(operations, statuses, strict=True):
        assert status in {each["status"] for each in operation["answers"]}, (
            operation["path"],
            status,
        )
        label = f"{operation['method']} {operation['path']}"
        # what is sent was right
        if operation["method"] == "GET" or "request" in examples().get(label, {}):
            assert status not in ("415", "422", "500"), (operation["path"], status)
        good += status < "300"
    assert good >= 30, statuses
