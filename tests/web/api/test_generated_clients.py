"""Clients that other people's generators make from the OpenAPI document: every operation, no
warning.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.web import peers
from web.api.openapi import document, routes


def test_schemas_have_public_names(app):
    """A name with a module in it is pydantic's way to keep two classes of one name apart."""
    names = document(app)["components"]["schemas"]
    assert [name for name in names if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name)] == []
    assert {"NewToken", "TokenRequest"} <= set(names)
    # files of a generator may ignore case
    assert len({name.lower() for name in names}) == len(names)


@pytest.fixture
def described(app, tmp_path):
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document(app)))
    return path


@pytest.mark.slow
def test_openapi_python_client_makes_every_operation(app, described, tmp_path):
    target = tmp_path / "generated"
    command = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
        "--fail-on-warning",
    ]
    command += ["--path", described, "--output-path", target, "--config", tmp_path / "config.json"]
    (tmp_path / "config.json").write_text('{"post_hooks": []}')  # no linters of its own
    environment = os.environ | {"PYTHONPATH": str(peers.pip("openapi-python-client==0.29.1"))}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    told = done.stdout + done.stderr
    assert (done.returncode, "arning" in told) == (0, False), told
    made = {path.stem for path in target.glob("api/*/*.py")} - {"__init__"}
    assert made == {route.endpoint.removeprefix("api.") for route in routes(app)}


@pytest.mark.slow
def test_openapi_typescript_makes_types_that_compile(described, tmp_path):
    folder = peers.npm("openapi-typescript@7.13.0", "typescript@5.9.3")
    types, tools = tmp_path / "types.ts", folder / "node_modules/.bin"
    for command in (
        [tools / "openapi-typescript", described, "-o", types],
        [tools / "tsc", "--noEmit", types],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "NewToken: {" in types.read_text()
