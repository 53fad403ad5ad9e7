"""`exchequer verify` of exports that another program saved: what was added is told, any change is
found.
"""

import json
from pathlib import Path

import pytest

from tests.web.cli.stand_ins import Ledger, Run

BOM = b"\xef\xbb\xbf"


def utf16(data: bytes, encoding: str = "utf-16") -> bytes:
    return data.decode().encode(encoding)


ADDED = {
    "nothing": (lambda data: data, []),
    "a mark": (lambda data: BOM + data, ["a byte-order mark"]),
    "a blank line": (lambda data: data + b"\n", ["1 blank line at the end"]),
    "blank lines": (lambda data: data + b"\n" * 6, ["6 blank lines at the end"]),
    "many blank lines": (lambda data: data + b"\r\n" * 9000, ["9,000 blank lines at the end"]),
    "Windows": (lambda data: data.replace(b"\n", b"\r\n"), ["Windows line ends"]),
    "no last line end": (lambda data: data.removesuffix(b"\n"), []),
    "Notepad": (
        lambda data: BOM + data.replace(b"\n", b"\r\n"),
        ["a byte-order mark", "Windows line ends"],
    ),
    "PowerShell": (
        lambda data: utf16(data.replace(b"\n", b"\r\n")),
        ["UTF-16", "Windows line ends"],
    ),
    "UTF-16 BE": (
        lambda data: b"\xfe\xff" + utf16(data, "utf-16-be") + b"\0\n",
        ["UTF-16", "1 blank line at the end"],
    ),
    "all": (
        lambda data: BOM + data.replace(b"\n", b"\r\n") + b"\r\n\r\n",
        ["a byte-order mark", "Windows line ends", "2 blank lines at the end"],
    ),
}


@pytest.fixture
def data(ledger: Ledger) -> bytes:
    return ledger.json_lines().encode()


@pytest.mark.parametrize("how", ADDED)
def test_what_was_added_is_told(exchequer: Run, data: bytes, tmp_path: Path, how: str) -> None:
    save, added = ADDED[how]
    file = tmp_path / "export"
    file.write_bytes(save(data))
    found = exchequer("verify", file, "--json")
    assert found.exit_code == 0, found.stdout
    assert json.loads(found.stdout)["added"] == added
    said = exchequer("verify", file).stdout
    assert said.startswith("verify: ok")
    assert all(each in said for each in added)
    together = exchequer("verify", file, file)
    assert together.exit_code == 0
    assert all(each in together.stdout for each in added)


REFUSED = {
    "two marks": lambda data: BOM + BOM + data,
    "a mark within": lambda data: data.replace(b"\n", b"\n" + BOM, 1),
    "a blank line first": lambda data: b"\n" + data,
    "a blank line within": lambda data: data.replace(b"\n", b"\n\n", 1),
    "a line of blanks": lambda data: data + b"  \n",
    "a comment": lambda data: data + b"# end\n",
    "a letter": lambda data: data + b"x",
    "Latin-1": lambda data: data.replace(b"\n", b"\xe9\n", 1),
    "UTF-16 without a mark": lambda data: utf16(data, "utf-16-le"),
    "UTF-32": lambda data: utf16(data, "utf-32"),
    "an odd byte of UTF-16": lambda data: utf16(data)[:-1],
    "a mark alone": lambda data: BOM,
    "blank lines alone": lambda data: b"\n\n\n",
}


@pytest.mark.parametrize("how", REFUSED)
def test_nothing_else_is_left_out(exchequer: Run, data: bytes, tmp_path: Path, how: str) -> None:
    file = tmp_path / "export"
    file.write_bytes(REFUSED[how](data))
    found = exchequer("verify", file)
    assert found.exit_code == 1
    assert "ok" not in found.stdout


@pytest.mark.parametrize("how", ["a mark", "all", "PowerShell"])
def test_a_changed_digit_is_found_below_what_was_added(
    exchequer: Run, data: bytes, tmp_path: Path, how: str
) -> None:
    place = data.index(b"RESERVE")
    changed = data[:place] + b"RESERVF" + data[place + 7 :]
    file = tmp_path / "export"
    file.write_bytes(ADDED[how][0](changed))
    assert exchequer("verify", file).exit_code == 1
