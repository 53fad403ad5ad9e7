"""docs/charges.md runs as it stands: its commands and its Python, over a real service."""

import re
import shlex
from pathlib import Path

import pytest
from sqlalchemy import Engine

from accountant.queries import integrity
from tests.support import Bench
from tests.web.client.test_client import address  # noqa: F401  (a fixture)
from tests.web.test_commands_live import Run, run  # noqa: F401  (a fixture)

TEXT = (Path(__file__).parents[3] / "docs" / "charges.md").read_text()


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 500


def test_it_runs(
    engine: Engine,
    address: str,  # noqa: F811
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(engine, policy={"auto_approve_epsilon": "5"})
    bench.allow()
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^    exchequer (.*)$", TEXT, re.M)
    assert len(lines) == 6
    assert lines[0].startswith("login https://")  # who runs the others is signed in
    key = ""
    for line in lines[1:]:
        words = [bench.dataset if word == "notes" else word for word in shlex.split(line)]
        who = bench.steward if "policy" in words else bench.analyst
        told = run(who, *(word.replace("PUBLIC-KEY", key) for word in words))
        if words[:2] == ["charge", "key"]:
            key = told.split()[-1]
            block = re.findall(r"```python\n(.*?)```", TEXT, re.S)[0]
        if "policy" in words:
            from accountant.identities import credentials

            token = credentials.add_token(engine, bench.analyst.id, "test", None)
            monkeypatch.setenv("EXCHEQUER_URL", address)
            monkeypatch.setenv("EXCHEQUER_TOKEN", token)
            exec(block.replace('"notes"', repr(bench.dataset)), {})
    assert integrity.check(engine, bench.dataset) == []
