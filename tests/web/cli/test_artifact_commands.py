"""`exchequer artifact list | get` and `dataset add-version` against a stand-in server."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.web.cli.stand_ins import Run, StandIn

CONTENT = b'{"up": 41}'
SHA = hashlib.sha256(CONTENT).hexdigest()
ROW = {"sha256": SHA, "name": "counts", "kind": "noisy-counts", "size": 10, "dataset": "reviews"}
ROW |= {
    "mechanism": "tally",
    "model": None,
    "job": "7",
    "entry": 3,
    "media_type": "application/json",
}


@pytest.fixture(autouse=True)
def _at(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)


def test_artifacts_of_a_job_are_listed(exchequer: Run, server: StandIn) -> None:
    server.answers = [
        (200, {"artifacts": [ROW], "next": None}),
        (200, {"artifacts": [ROW], "next": None}),
        (200, {"artifacts": [], "next": None}),
    ]
    result = exchequer("artifact", "list", "7")
    assert result.exit_code == 0
    assert SHA[:16] in result.stdout
    assert server.requests[0][1] == "/api/v1/artifacts?limit=200&job=7"
    assert json.loads(exchequer("artifact", "list", "--json").stdout) == [ROW]
    assert "no artifact" in exchequer("artifact", "list", "--dataset", "reviews").stdout


def test_an_artifact_is_saved_when_its_bytes_are_the_ones_asked_for(
    exchequer: Run, server: StandIn, tmp_path: Path
) -> None:
    server.answers = [(200, CONTENT), (200, CONTENT + b" ")]
    file = tmp_path / "counts.json"
    assert exchequer("artifact", "get", SHA, "-o", file).exit_code == 0
    assert file.read_bytes() == CONTENT
    other = tmp_path / "other.json"
    result = exchequer("artifact", "get", SHA, "-o", other)
    assert result.exit_code == 1
    assert "do not use it" in result.stderr
    assert not other.exists()


@pytest.mark.parametrize(("state", "code"), [("ready", 0), ("invalid", 1)])
def test_a_version_is_added_and_waited_for(
    exchequer: Run, server: StandIn, state: str, code: int
) -> None:
    def dataset(second: str) -> dict:
        error = "units of it have an account already" if second == "invalid" else None
        versions = [{"number": 1, "state": "ready", "error": None}]
        return {
            "name": "notes",
            "state": "ready",
            "versions": [*versions, {"number": 2, "state": second, "error": error}],
        }

    server.answers = [(201, dataset("checking")), (200, dataset("checking")), (200, dataset(state))]
    result = exchequer(
        "dataset", "add-version", "notes", "--uri", "s3://b/n.csv", "--text-template", "{body}"
    )
    assert result.exit_code == code
    method, path, _, body = server.requests[0]
    assert (method, path) == ("POST", "/api/v1/datasets/notes/versions")
    assert json.loads(body) == {"uri": "s3://b/n.csv", "text_template": "{body}"}
    assert ("version 2: ready" in result.stdout) == (code == 0)
    assert ("have an account already" in result.stderr) == (code == 1)
