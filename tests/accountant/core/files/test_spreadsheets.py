"""CSV that people open in a spreadsheet: no text of it runs, numbers are numbers, its encoding is
known.
"""

import csv
import io
import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.files import rows
from accountant.core.files.spreadsheets import harmless
from accountant.core.ledger import export_formats

FORMULAS = (
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(1,1)",
    '=HYPERLINK("http://x","y")',
    "=cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    " =1+1",
    "\u00a0=1+1",
    "\ufeff=1+1",
    "\u200b=1+1",
    "＝1+1",
    "＋1+1",
    "－1+1",
    "＠SUM(1)",
    "﹦1+1",
    "−1+1",
    "-",
    "- a point of a list",
    "--1",
    "+49 170 1234",
    "-2+3+cmd|' /C calc'!A0",
    "=",
    "\t",
    "-1;=1+1",
    "\x01=1",
)
WITHIN = (
    "a;=1+1;b",
    "a; =1+1",
    "a\t=1+1",
    "a;-1+1;",
    "a;@SUM(1)",
    "a;＝1+1",
    '";=1+1;"',
    "a\n=1+1",
    "a\r\n-1+1",
)
TEXTS = (
    "",
    "a",
    "a = b",
    "a-b",
    "1-2",
    "'quoted'",
    "a, =b",
    "e-mail",
    "2+2",
    "ε ≤ 1",
    "a;b",
    '{"a": -1}',
    "a\n- b",
)
NUMBERS = ("-1", "+1", "-0.5", "-1e-9", "12", "1E5", "-1234567.25", "+0", "-2.5e+10", "0")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_could_be_a_formula_begins_with_an_apostrophe(text):
    assert harmless(text).startswith("'")
    assert harmless(text).replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("text", WITHIN)
def test_a_line_that_is_cut_at_semicolons_begins_no_formula(text):
    for piece in re.split("[;\t\r\n]", harmless(text)):
        assert piece.lstrip()[:1] not in tuple("=+-@＝"), piece


@pytest.mark.parametrize("text", TEXTS + NUMBERS)
def test_what_is_no_formula_is_left_as_it_is(text):
    assert harmless(text) == text


@given(st.text(st.sampled_from("=+-@＝ \t;'a1\u200b"), max_size=6))
def test_nothing_is_lost_and_nothing_runs(text):
    found = harmless(text)
    assert found.replace("'", "") == text.replace("'", "")
    assert found.lstrip(" \u200b")[:1] not in tuple("=@＝")
    assert harmless(found) == found


@pytest.mark.parametrize("field", ["actor", "job"])
@pytest.mark.parametrize(
    "text", [*FORMULAS[:7], *FORMULAS[9:16], "a;=1+1", "\\u003b", "\\;x", 'a"; \\\\;=b', ";"]
)
def test_a_ledger_row_runs_nothing_and_gives_its_entry_back(field, text):
    document = {
        "seq": 7,
        "kind": "RESERVE",
        "at": "2026-01-01T00:00:00.000000Z",
        "actor": "ada",
        "job": None,
    }
    plain = document | {field: text}
    stored = plain | {"actor": {"salt": "00" * 16, "value": plain["actor"]}}
    canonical = json.dumps(plain, ensure_ascii=False)
    line = export_formats.csv_row(stored, "ab" * 32, canonical)
    (row,) = csv.reader(io.StringIO(line, newline=""))
    assert ";" not in row[-1]
    assert json.loads(row[-1])[field] == text
    assert all(cell[:1] not in tuple("=+-@\t\r\n") for cell in row)


SOFFICE = shutil.which("soffice")
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"


@pytest.mark.slow
@pytest.mark.skipif(SOFFICE is None, reason="LibreOffice is not installed")
# as its dialog offers them: , ; and tab
@pytest.mark.parametrize("separators", ["44", "59", "44/59/9"])
def test_libreoffice_runs_no_cell_and_reads_the_letters(tmp_path, separators):
    texts = [*FORMULAS, *WITHIN, *TEXTS, *NUMBERS, "Łódź: ε ≤ ½"]
    lines = [json.dumps({"n": -1.5, "text": each}).encode() for each in texts]
    path = tmp_path / "output.csv"
    path.write_text(
        "".join(rows.csv_lines(lines, rows.columns(lines))), encoding="utf-8", newline=""
    )
    table = _read_by_libreoffice(path, separators, tmp_path)
    assert not [
        cell.attrib
        for cell in table.iter(f"{_TABLE}table-cell")
        if f"{_TABLE}formula" in cell.attrib
    ]
    assert "Łódź: ε ≤ ½" in "".join(table.itertext())
    if separators == "44":
        numbers = [each.get(f"{_OFFICE}value") for each in table.iter(f"{_TABLE}table-cell")]
        assert numbers.count("-1.5") >= len(texts)


def _read_by_libreoffice(path, separators, folder):
    """The file as LibreOffice reads it, with formulas evaluated: token 16 of its filter's
    options.
    """
    options = f"CSV:{separators},34,0,1,,0,false,true,false,false,false,-1,true,false,false,true"
    command = [SOFFICE, f"-env:UserInstallation=file://{folder}/profile", "--headless"]
    command += [f"--infilter={options}", "--convert-to", "fods", "--outdir", folder, path]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return ElementTree.parse(path.with_suffix(".fods")).getroot()
