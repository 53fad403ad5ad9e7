"""docs/client.md and the notebook run as they stand, against a real service with its workers."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "client.md").read_text()
NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
PASSWORD = "a long enough password"
pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Shell:
    """The command in a folder of its own, as somebody with a profile file of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        (folder / "bin").mkdir()
        command = folder / "bin" / "exchequer"
        command.write_text(f"#!{sys.executable}\nfrom web.cli import main\nmain()\n")
        command.chmod(0o755)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("EXCHEQUER_")
        }
        for name in ("DATABASE_URL", "BROKER_URL"):
            kept.pop(name, None)
        self.environment = {
            **kept,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "EXCHEQUER_HOME": str(folder / "home"),
            "EXCHEQUER_PORT": str(self.port),
        }

    def __call__(self, line: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--norc", "-c", line],
            cwd=self.folder,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


REGISTER = """
from accountant.settings import load
from web.cli import bootstrap
from web.client import connect
from web.cli.demo import Story, _register
with connect() as client:
    _register(Story(False), client.api, bootstrap.settings())
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The stack with the demo's dataset; the profile `steward`, and an analyst who is in use."""
    made = Shell(tmp_path_factory.mktemp("docs"))
    url = f"http://127.0.0.1:{made.port}"
    try:
        done = made("exchequer stack up --json")
        assert done.returncode == 0, done.stdout
        first = json.loads(done.stdout)["first_account"]
        for line, password in (
            (f"exchequer login {url} --name steward --profile steward", first["password"]),
            (f"echo '{PASSWORD}' | exchequer user add ada --role analyst --password-stdin", ""),
            (f"{sys.executable} -c '{REGISTER}'", ""),
            (f"exchequer login {url} --name ada --profile demo-analyst", PASSWORD),
            (f"exchequer login {url} --name steward --profile demo-steward", first["password"]),
            (f"exchequer login {url} --name ada", PASSWORD),
        ):
            done = made(line, EXCHEQUER_PASSWORD=password)
            assert done.returncode == 0, done.stdout
        yield made
    finally:
        made("exchequer stack down")


@pytest.fixture
def here(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """This process stands where the shell does."""
    monkeypatch.chdir(shell.folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", shell.environment["XDG_CONFIG_HOME"])
    for name in ("URL", "TOKEN", "PROFILE"):
        monkeypatch.delenv(f"EXCHEQUER_{name}", raising=False)
    return shell


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, as a notebook would show it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def test_the_walk_through_runs(here: Shell) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert len(blocks) >= 11
    shown = [run_cell(block, names) for block in blocks]
    assert shown[0].name == "ada"
    assert shown[1]._repr_svg_().startswith("<svg")
    assert names["quote"].decision == "NeedsApproval"
    assert names["largest"].epsilon <= 0.5
    assert names["job"].state == "succeeded"
    assert "label" in names["frame"].columns
    assert len(names["frame"]) == len(names["rows"]) == len(names["dataset"].facts.labels)
    assert "RESERVE" in names["entries"]
    assert "COMMIT" in names["entries"]
    assert names["spent"]
    for line in re.findall(
        r"^\$ (.*)$", "".join(re.findall(r"```console\n(.*?)```", TEXT, re.S)), re.M
    ):
        assert line.startswith(("exchequer ", "echo "))
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.S):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            check(here, command, expected)


def check(shell: Shell, command: str, expected: str) -> None:
    """Run a command of the document: its output is as shown, where `…` stands for anything."""
    code = re.search(r"\[exit code (\d)\]\n", expected)
    done = shell(command)
    assert done.returncode == (int(code[1]) if code else 0), (command, done.stdout)
    pattern = re.escape(expected.replace(code[0] if code else "\0", "")).replace("…", "(?:.|\n)*?")
    assert re.fullmatch(pattern, done.stdout), (command, done.stdout, expected)


@pytest.mark.release  # the walk-through calls what its cells call
def test_the_notebook_runs(here: Shell) -> None:
    names: dict[str, Any] = {}
    cells = [each for each in NOTEBOOK["cells"] if each["cell_type"] == "code"]
    assert cells
    assert all(each["outputs"] == [] and each["execution_count"] is None for each in cells)
    shown = [run_cell("".join(each["source"]), names) for each in cells]
    pictures = [each for each in shown if hasattr(each, "_repr_svg_")]
    assert pictures
    assert names["job"].state == "succeeded"
    assert len(names["texts"]) > 0
