"""Shell completion, by a real bash that runs the real command."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.web.cli.stand_ins import StandIn
from web.client import Profile, profiles

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")]


@cache
def script() -> str:
    """What the command prints for bash: the same for every line, so asked once."""
    code = "import sys; sys.argv[0] = 'exchequer'; from web.cli import main; main()"
    command = [sys.executable, "-c", code, "--show-completion", "bash"]
    environment = {
        **os.environ,
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def complete(tmp_path: Path, server: StandIn):
    """Bash's completions for a line whose last word is being typed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "exchequer"
    command.write_text(f"#!{sys.executable}\nfrom web.cli import main\nmain()\n")
    command.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{folder}:{os.environ['PATH']}"}
    environment.pop("EXCHEQUER_URL", None)
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"

    def run(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("exchequer", *words))
        lines = (
            f"{script()}\n"
            f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}\n"
            "_exchequer_completion exchequer\n"
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        bash = ["bash", "--norc", "-c", lines]
        found = subprocess.run(bash, env=environment, capture_output=True, text=True, check=True)
        assert found.stderr == ""
        return found.stdout.split()

    profiles.keep(Profile(server.url, "ada", "t0ken"), "work")
    return run


def test_commands_and_options(complete) -> None:
    assert set(complete("le")) == {"ledger"}
    assert "--checkpoint" in complete("ledger", "export", "--che")
    assert complete("price", "noisy") == ["noisy-count"]


def test_names_come_from_the_server(complete, server: StandIn) -> None:
    datasets = [{"name": name, "description": "x: y\x1b[2J"} for name in ("notes", "reviews")]
    server.answers.append((200, {"datasets": datasets, "next": None}))
    assert complete("dataset", "show", "re") == ["reviews"]
    assert server.requests[-1][2]["Authorization"] == "Bearer t0ken"
    job = {
        "id": "0b5fb1a6",
        "state": "awaiting_approval",
        "mechanism": "noisy-count",
        "dataset": "reviews",
    }
    server.answers.append((200, {"jobs": [job], "next": None}))
    assert complete("approve", "") == ["0b5fb1a6"]
    assert "state=awaiting_approval" in server.requests[-1][1]
    assert complete("--profile", "w") == ["work"]


def test_a_server_that_is_away_completes_nothing_and_says_nothing(
    complete, server: StandIn
) -> None:
    for answer in ((401, {}), (500, {}), "drop", (200, b"<html>")):
        server.answers.append(answer)
        before = len(server.requests)
        assert complete("dataset", "show", "re") == []
        assert len(server.requests) == before + 1  # asked once
