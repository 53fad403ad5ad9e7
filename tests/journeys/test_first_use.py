"""First use, by somebody who knows nothing: `exchequer demo`, then only what it prints and what
pages say; then docs/client.md and the notebook as they stand, on what the demo registered.

A real stack of its own and a real browser. The demo's job is made short; all else is what `make
demo` does.
"""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "client.md").read_text()
README = (ROOT / "README.md").read_text()
NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
PASSWORD = "a long enough password"
pytestmark = pytest.mark.slow
#: `exchequer`, with a short job in its demo.
COMMAND = """#!{python}
from web.cli import demo
from web.cli import main
few = ["hotel positive", "gym negative", "bookshop positive"]
whole, short = demo.parameters, dict(labels=few, tokens_per_batch=12, max_text_tokens=12)
demo.parameters = lambda model: whole(model) | short
main()
"""


@dataclass(frozen=True)
class Turn:
    """The step that the demo's last lines tell one person to take."""

    name: str
    address: str
    password: str


class Shell:
    """The command in a folder of its own, as somebody with a profile file of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "bin").mkdir()
        command = folder / "bin" / "exchequer"
        command.write_text(COMMAND.format(python=sys.executable))
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
            "EXCHEQUER_PORT": str(port),
            "COLUMNS": "80",
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
            timeout=400,
        )


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The command, whose stack ends with the last test."""
    made = Shell(tmp_path_factory.mktemp("docs"))
    yield made
    made("exchequer stack down")


@pytest.fixture(scope="module")
def printed(shell: Shell) -> str:
    """The output of `exchequer demo`, with its stack still running."""
    found = shell("exchequer demo")
    assert found.returncode == 0, found.stdout
    return found.stdout


def turns(printed: str) -> dict[str, Turn]:
    found = re.findall(
        r"^ +(\w+) \(password (\S+)\):.*?^ +(http\S+)$", printed, re.MULTILINE | re.DOTALL
    )
    return {name: Turn(name, address, password) for name, password, address in found}


def begun(browser, turn: Turn):
    """A window of one's own, opened where the demo says, after signing in as it says."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.goto(turn.address)
    page.get_by_label("Name").fill(turn.name)
    page.get_by_label("Password").fill(turn.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    return page


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
def test_from_the_demo_to_an_approved_job_by_what_the_screen_says(printed):
    from playwright.sync_api import expect, sync_playwright

    people = turns(printed)
    assert set(people) == {"analyst", "steward", "auditor"}, printed
    assert printed.count("\n") <= 60
    assert "\nverify: ok\n" in printed
    assert re.search(
        r"What ε [\d.]+ means for a person .* at most \d\d(\.\d)? % of", printed, re.DOTALL
    )
    with sync_playwright() as playwright:
        expect.set_options(timeout=60_000)  # five seconds are few where processes share a processor
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )

        # "say what the texts are for, and ask."
        analyst = begun(browser, people["analyst"])
        analyst.get_by_text("It fits, and a steward would have to approve it.").wait_for()
        analyst.get_by_label("What is it for?", exact=True).fill("a first job of my own")
        analyst.get_by_role("button", name="Ask", exact=True).click()
        analyst.get_by_text("A steward has to approve it").wait_for(timeout=60_000)

        # "read the purpose and the price, write a reason, approve."
        steward = begun(browser, people["steward"])
        request = steward.get_by_role("article").filter(has_text="a first job of my own")
        expect(request.get_by_text("by itself").first).to_be_visible()
        request.locator("[name=reason]").fill("made-up reviews")
        request.get_by_role("button", name="Approve").click()
        steward.get_by_role("dialog").get_by_role("button", name="Approve").click()
        steward.get_by_text("is now queued").wait_for()
        steward.get_by_text("Nothing waits for a decision").wait_for()

        # The analyst's page follows by itself.
        analyst.get_by_text("by steward: made-up reviews").wait_for(timeout=60_000)
        analyst.get_by_role("heading", name="Result").wait_for(timeout=150_000)

        # "see both in the ledger, and take it home as a file."
        auditor = begun(browser, people["auditor"])
        expect(auditor.get_by_text("COMMIT", exact=True)).to_have_count(2)
        with auditor.expect_download() as download:
            auditor.get_by_role("link", name="JSON Lines").click()
        assert '"RESERVE"' in Path(download.value.path()).read_text()
        for page in (analyst, steward, auditor):
            assert page.complaints == []
        browser.close()


# --- docs/client.md and the notebook --------------------------------------------------------------


@pytest.fixture(scope="module")
def signed_in(shell: Shell, printed: str) -> Shell:
    """The shell with the profile `steward`, and with an analyst who is in use."""
    steward = turns(printed)["steward"]
    url = f"http://127.0.0.1:{shell.environment['EXCHEQUER_PORT']}"
    for line, password in (
        (f"exchequer login {url} --name steward --profile steward", steward.password),
        (f"echo '{PASSWORD}' | exchequer user add ada --role analyst --password-stdin", ""),
        (f"exchequer login {url} --name ada", PASSWORD),
    ):
        done = shell(line, EXCHEQUER_PASSWORD=password)
        assert done.returncode == 0, done.stdout
    return shell


@pytest.fixture
def here(signed_in: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """This process stands where the shell does."""
    shell = signed_in
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


def test_a_file_of_ones_own_by_the_commands_of_the_readme(signed_in: Shell) -> None:
    """All but those that set the stack up and bring a model: the job here counts, without one."""
    (signed_in.folder / "data").mkdir()
    rows = "".join(f"{('surgery', 'medicine')[row % 2]},a note no. {row}\n" for row in range(200))
    (signed_in.folder / "data" / "notes.csv").write_text("ward,text\n" + rows)
    job = {
        "dataset": "notes",
        "mechanism": "noisy-count",
        "purpose": "how many notes",
        "model": None,
    }
    parameters = {"noise": "laplace", "noise_multiplier": 10, "per": "label"}
    (signed_in.folder / "job.json").write_text(json.dumps({**job, "parameters": parameters}))
    block = README.partition("## Your own data\n\n")[2].partition("\n\n")[0]
    commands = [line.strip() for line in block.splitlines()]
    own = [line for line in commands if not re.match(r"\. |exchequer (stack|model)", line)]
    assert len(own) == len(commands) - 3 > 4
    policy = next(place for place, line in enumerate(own) if "dataset policy" in line)
    own[policy] += " && exchequer dataset policy notes --results-every 0"  # else it takes a minute
    for line in own:
        who = {"HOME": str(signed_in.folder), "EXCHEQUER_PROFILE": "steward"}
        done = signed_in(line, **who)
        assert done.returncode == 0, (line, done.stdout)
    assert "verify: ok" in done.stdout


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
