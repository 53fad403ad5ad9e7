"""`exchequer verify`: offline, and no digit of an export can change unnoticed."""

import json
import re
from pathlib import Path

import pytest
from stand_ins import Ledger, Run


@pytest.fixture(params=["json_lines", "csv"])
def export(request: pytest.FixtureRequest, ledger: Ledger, tmp_path: Path) -> Path:
    path = tmp_path / "ledger.txt"
    path.write_text(getattr(ledger, request.param)(), encoding="utf-8")
    return path


def test_an_export_holds(exchequer: Run, export: Path, ledger: Ledger) -> None:
    found = exchequer("verify", export)
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0] == "verify: ok"
    assert "reviews" in found.stdout
    assert ledger.head in found.stdout
    assert "reservations not settled yet: 1" in found.stdout


def test_json(exchequer: Run, export: Path, ledger: Ledger) -> None:
    found = json.loads(exchequer("verify", export, "--json").stdout)
    assert (found["ok"], found["entries"], found["head"]) == (True, 4, ledger.head)
    assert found["balances"]["live_reservations"] == 1


def test_standard_input(ledger: Ledger, tmp_path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "web.cli", "verify", "-"]
    found = subprocess.run(command, input=ledger.json_lines(), capture_output=True, text=True, check=True)
    assert found.stdout.startswith("verify: ok")


def test_one_digit_of_one_amount(exchequer: Run, export: Path) -> None:
    text = export.read_text()
    amount = re.search(r'"reviews.*?RESERVE', text, re.DOTALL)
    assert amount is not None
    lines = text.splitlines(keepends=True)
    row = next(i for i, line in enumerate(lines) if "RESERVE" in line)
    found = re.search(r"main\W+?(\d{6,})", lines[row])
    assert found is not None
    place = found.start(1) + 2
    digit = str((int(lines[row][place]) + 1) % 10)
    lines[row] = lines[row][:place] + digit + lines[row][place + 1 :]
    export.write_text("".join(lines))
    result = exchequer("verify", export)
    assert result.exit_code == 1
    assert result.stderr.startswith("verify: failed: entry 2: ")
    assert "ok" not in result.stdout
    assert json.loads(exchequer("verify", export, "--json").stdout)["entry"] == 2


def test_a_missing_entry(exchequer: Run, export: Path) -> None:
    lines = export.read_text().splitlines(keepends=True)
    export.write_text("".join(lines[:2] + lines[3:]))
    found = exchequer("verify", export)
    assert found.exit_code == 1
    assert "entry 2" in found.stderr


def test_a_line_cut_short(exchequer: Run, export: Path) -> None:
    export.write_text(export.read_text()[:-40])
    found = exchequer("verify", export)
    assert found.exit_code == 1
    assert "entry " in found.stderr  # the last entry, or the totals after it


def test_last_entries_cut_off(exchequer: Run, ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(ledger.json_lines().splitlines(keepends=True)[:-1]))
    found = exchequer("verify", path)
    assert found.exit_code == 1
    assert "entries" in found.stderr


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", b"{}\n", b"\xff\xfe\x00", b"[1]\n"])
def test_no_export_at_all(exchequer: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    found = exchequer("verify", path)
    assert found.exit_code == 1
    assert found.stderr.startswith("verify: failed: ")


def test_missing_file(exchequer: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        found = exchequer("verify", path)
        assert found.exit_code == 2
        assert str(path) in found.stderr


def test_exports_that_do_not_exist_yet(exchequer: Run) -> None:
    for words in (("--public",), ("--format", "parquet")):
        found = exchequer("ledger", "export", "reviews", *words)
        assert found.exit_code == 2
        assert "not available yet" in found.stderr
    assert exchequer("ledger", "export", "reviews", "--format", "xml").exit_code == 2
