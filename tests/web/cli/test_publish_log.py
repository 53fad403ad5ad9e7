"""`exchequer ledger publish-log`: it makes the key, says it, and publishes what is new."""

import json
from pathlib import Path
from typing import Any

import pytest

from accountant.core.transparency.notes import read_key
from accountant.core.transparency.proofs import check_head
from accountant.ledger_log.homes import log_at
from accountant.settings import load
from tests.accountant.ledger_log.test_files import chain, write
from tests.web.cli.stand_ins import Run


def test_the_log_is_published(
    exchequer: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, public = log_at(tmp_path / "log"), tmp_path / "public"
    log.begin()
    write(log, "a", chain(3))

    def run(*words: str, **settings: Path | str) -> Any:
        for name, value in settings.items():
            monkeypatch.setenv(f"EXCHEQUER_{name.upper()}", str(value))
        load.cache_clear()
        return exchequer("ledger", "publish-log", *words)

    assert "ledger_log: not set" in run(home=tmp_path / "home").stderr
    assert "public_log: not set" in run(ledger_log=log.folder).stderr
    told = json.loads(
        run("--json", public_log=public, public_log_name="exchequer.example/log").stdout
    )
    key = read_key(told["log_key"])
    assert (told["size"], key.name) == (3, "exchequer.example/log")
    write(log, "a", chain(1, log.head("a")))
    assert key.id.hex() in run().stdout
    head, _ = check_head((public / "checkpoint").read_text(), key)
    assert head.size == 4
