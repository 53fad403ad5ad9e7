"""`exchequer verify`: offline, and no digit of an export can change unnoticed."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from accountant.core.ledger.checkpoints import introduction, public_key, sign
from accountant.core.ledger.export_formats import json_header, summary
from accountant.core.ledger.hash_chain import EntryKind
from tests.accountant.core.ledger.test_forged_claims import reader, vocabularies
from tests.accountant.core.ledger.test_registry_entries import FILLED
from tests.ledger_exports import export as honest_export
from tests.ledger_exports import honest
from tests.passkeys import signed_ledger
from tests.web.cli.stand_ins import Ledger, Run, StandIn


@pytest.fixture
def export(ledger: Ledger, tmp_path: Path) -> Path:
    path = tmp_path / "ledger.txt"
    path.write_text(ledger.json_lines(), encoding="utf-8")
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
    assert (found["ok"], found["entries"], found["head"]) == (True, 7, ledger.head)
    assert found["balances"]["live_reservations"] == 1


def test_standard_input(ledger: Ledger, tmp_path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "web.cli", "verify", "-"]
    found = subprocess.run(
        command, input=ledger.json_lines(), capture_output=True, text=True, check=True
    )
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
    assert result.stderr.startswith("verify: failed: entry 5: ")
    assert "ok" not in result.stdout
    assert json.loads(exchequer("verify", export, "--json").stdout)["entry"] == 5


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


def test_no_such_format(exchequer: Run) -> None:
    assert exchequer("ledger", "export", "reviews", "--format", "xml").exit_code == 2


# --- checkpoints and keys -----------------------------------------------------------------------

SEED, OTHER = b"a" * 32, b"b" * 32
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def checkpoint_of(ledger: Ledger, seed: bytes = SEED) -> dict[str, Any]:
    balances = summary(ledger.books, ledger.replay.live_count, public=True)
    keys = [introduction(public_key(seed), NOW, None)]
    return sign(ledger.dataset, len(ledger.documents), ledger.head, balances, NOW, seed, keys)


def test_a_checkpoint_and_the_key_that_one_knows(
    exchequer: Run, export: Path, ledger: Ledger
) -> None:
    kept = export.with_name("checkpoint.json")
    kept.write_text(json.dumps(checkpoint_of(ledger)))
    found = exchequer(
        "verify", export, "--checkpoint", kept, "--public-key", public_key(SEED).hex()
    )
    assert found.exit_code == 0
    assert "all of 7 entries" in found.stdout
    assert "--public-key" not in found.stdout
    unpinned = exchequer("verify", export, "--checkpoint", kept)
    assert "give the one you know with --public-key" in unpinned.stdout
    told = json.loads(exchequer("verify", export, "--checkpoint", kept, "--json").stdout)
    assert (told["checkpoints"][0]["seq"], told["key_pinned"]) == (7, False)


def test_a_file_of_keys(exchequer: Run, export: Path, ledger: Ledger) -> None:
    kept, keys = export.with_name("checkpoint.json"), export.with_name("keys.json")
    kept.write_text(json.dumps(checkpoint_of(ledger)))
    keys.write_text(json.dumps({"keys": checkpoint_of(ledger)["keys"]}))
    assert exchequer("verify", export, "--checkpoint", kept, "--public-key", keys).exit_code == 0


def test_the_wrong_key_fails(exchequer: Run, export: Path, ledger: Ledger) -> None:
    kept = export.with_name("checkpoint.json")
    kept.write_text(json.dumps(checkpoint_of(ledger)))
    found = exchequer(
        "verify", export, "--checkpoint", kept, "--public-key", public_key(OTHER).hex()
    )
    assert found.exit_code == 1
    assert "does not follow from key" in found.stderr


def test_a_checkpoint_beyond_the_export(exchequer: Run, ledger: Ledger, tmp_path: Path) -> None:
    path, kept = tmp_path / "ledger.jsonl", tmp_path / "checkpoint.json"
    path.write_text(ledger.json_lines())
    ledger.append(EntryKind.VOID, "second", {"outcome": "cancelled", "reason": "x", "read": False})
    kept.write_text(json.dumps(checkpoint_of(ledger)))
    found = exchequer("verify", path, "--checkpoint", kept)
    assert found.exit_code == 1
    assert "cut off" in found.stderr


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"checkpoint": {}}', "\x00"])
def test_no_checkpoint_at_all(exchequer: Run, export: Path, content: str) -> None:
    kept = export.with_name("checkpoint.json")
    kept.write_text(content)
    assert exchequer("verify", export, "--checkpoint", kept).exit_code in (1, 2)
    for key in (kept, "f" * 63, "z" * 64, export.with_name("absent")):
        assert exchequer("verify", export, "--public-key", key).exit_code == 2


def test_a_key_that_one_knows_asks_for_a_checkpoint(exchequer: Run, export: Path) -> None:
    found = exchequer("verify", export, "--public-key", public_key(SEED).hex())
    assert found.exit_code == 1
    assert "no checkpoint signed with the key that you know" in found.stderr


def test_no_file_that_is_read_says_a_thing_twice(
    exchequer: Run, export: Path, ledger: Ledger
) -> None:
    """A reader who takes the first would see another than one who takes the last."""
    kept, keys = export.with_name("checkpoint.json"), export.with_name("keys.json")
    text = json.dumps(checkpoint_of(ledger))
    for twice in ('{"checkpoint":{},', '{"keys":[],'):
        kept.write_text(text.replace("{", twice, 1))
        found = exchequer("verify", export, "--checkpoint", kept)
        assert found.exit_code == 2
        assert "an object holds a name twice" in found.stderr
    keys.write_text('{"keys":[],' + json.dumps({"keys": json.loads(text)["keys"]})[1:])
    assert exchequer("verify", export, "--public-key", keys).exit_code == 2
    assert exchequer("verify", export, "--registry", keys).exit_code == 2


def test_what_an_export_does_not_prove_is_named_and_fails(exchequer: Run, tmp_path: Path) -> None:
    """A public export shows no signatures: what it does show is printed all the same."""
    path = tmp_path / "public.jsonl"
    path.write_text("".join(honest_export(signed_ledger().lines, public=True)), encoding="utf-8")
    found = exchequer("verify", path)
    assert found.exit_code == 1
    assert found.stdout.splitlines()[0] == "verify: incomplete"
    assert "not provable: whether people signed 10 entries" in " ".join(found.stdout.split())
    assert "reservations not settled yet: 1" in found.stdout
    told = json.loads(exchequer("verify", path, "--json").stdout)
    assert (told["ok"], len(told["unproved"]), told["entries"]) == (False, 1, 17)
    several = exchequer("verify", path, path, "--json")
    assert several.exit_code == 1
    assert [each["ok"] for each in json.loads(several.stdout)["files"]] == [False, False]


def test_the_ledger_of_another_dataset_proves_what_is_read_of_it(
    exchequer: Run, tmp_path: Path
) -> None:
    files = {}
    for name, lines in {
        "reader": reader(dataset="novels", mechanism="vocabulary"),
        "other": vocabularies(),
        "another": vocabularies(terms="f" * 64),
        "private": honest_export(honest().lines),
    }.items():
        files[name] = tmp_path / f"{name}.jsonl"
        files[name].write_text("".join(lines), encoding="utf-8")
    alone = exchequer("verify", files["reader"])
    assert alone.exit_code == 1
    assert "verify an export of that dataset together with this one" in " ".join(
        alone.stdout.split()
    )
    assert exchequer("verify", files["reader"], files["other"]).exit_code == 0
    assert exchequer("verify", files["other"], files["reader"]).exit_code == 0
    assert exchequer("verify", files["reader"], files["private"]).exit_code == 1
    false = exchequer("verify", files["reader"], files["another"], "--json")
    assert false.exit_code == 1
    problem = json.loads(false.stdout)["files"][0]["problem"]
    assert problem == "entry 25: it reads artifacts of 'novels' that no public job there released"


def test_without_a_checkpoint_it_says_so(exchequer: Run, export: Path) -> None:
    assert "no signed checkpoint" in exchequer("verify", export).stdout


def test_the_check_of_a_live_ledger_ends_with_1(
    exchequer: Run, server: StandIn, monkeypatch: Any
) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    server.answers += [(200, {"datasets": [{"name": "a"}, {"name": "b"}], "next": None})]
    server.answers += [(200, {"problems": []}), (200, {"problems": ["cached balances differ"]})]
    found = exchequer("ledger", "check", "--all")
    assert found.exit_code == 1
    assert found.stdout.splitlines() == ["a: ok", "b: 1 disagree", "  cached balances differ"]
    server.answers += [(200, {"problems": []})]
    assert exchequer("ledger", "check", "a").exit_code == 0
    assert exchequer("ledger", "check").exit_code == 2


def test_the_place_in_a_public_log(exchequer: Run, ledger: Ledger, tmp_path: Path) -> None:
    """Its key and a witness's are asked for; a key that did not sign is named."""
    from accountant.core.transparency.notes import COSIGNATURE, key_of
    from accountant.core.transparency.publication import proof_of, publish
    from accountant.core.transparency.witnesses import LogSigner
    from tests.witness import Witness

    lines = ledger.json_lines().splitlines(keepends=True)
    dataset = json.loads(lines[0])["dataset"]
    entries = [(dataset, seq, json.loads(line)["hash"]) for seq, line in enumerate(lines[1:], 1)]
    log, one = key_of("our.log", b"s" * 32), key_of("one", b"w" * 32, COSIGNATURE)
    witness = Witness(
        tmp_path / "witness", "one", b"w" * 32, {"our.log": log}, lambda: 1_800_000_000
    )
    signer = LogSigner(tmp_path / "signer", "our.log", b"s" * 32)
    publish(
        tmp_path / "log", lambda size: iter(entries[size:]), signer, [(one, witness.add_checkpoint)]
    )
    seq, proof = proof_of(tmp_path / "log", dataset, 7) or (0, "")
    header = json.loads(lines[0]) | {"log_proof": {"seq": seq, "proof": proof}}
    path = tmp_path / "with proof.jsonl"
    path.write_text("".join([json_header(header), *lines[1:]]))

    assert "a proof of a public log, not checked" in exchequer("verify", path).stdout
    asked = ["--log-key", str(log), "--witness-key", str(one), "--log", str(tmp_path / "log")]
    found = exchequer("verify", path, *asked, "--log-checkpoint", str(tmp_path / "log/checkpoint"))
    assert "logged by our.log as entry 7 of 7: all of 7 entries" in found.stdout
    assert "witnessed by one at 2027-01-15 08:00:00 UTC" in found.stdout
    told = json.loads(exchequer("verify", path, "--json", *asked).stdout)["log"]
    assert (told["seq"], told["index"], told["signed"]) == (
        7,
        6,
        {"our.log": None, "one": 1_800_000_000},
    )
    other = key_of("two", b"w" * 32, COSIGNATURE)
    refused = exchequer("verify", path, *asked, "--witness-key", str(other))
    assert refused.exit_code == 1
    assert "the checkpoint is not signed by two" in refused.stderr


def test_several_exports_at_once(exchequer: Run, ledger: Ledger, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(ledger.json_lines())
    bad.write_text(ledger.json_lines().replace("RESERVE", "COMMIT", 1))
    found = exchequer("verify", good, bad, good, "--json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)["files"]
    assert [each["ok"] for each in told] == [True, False, True]
    assert (told[0]["entries"], told[0]["head"]) == (7, ledger.head)
    assert told[1]["problem"].startswith(f"entry {told[1]['entry']}: ")
    assert "several exports" in exchequer("verify", good, bad, "--checkpoint", good).stderr


@pytest.mark.parametrize("form", ["CSV", "CSV in UTF-16", "CSV without a mark"])
def test_other_formats_are_no_evidence(
    exchequer: Run, ledger: Ledger, tmp_path: Path, form: str
) -> None:
    encoding = {"CSV": "utf-8-sig", "CSV in UTF-16": "utf-16"}.get(form, "utf-8")
    content = ledger.csv().removeprefix("\ufeff").encode(encoding)
    path = tmp_path / "ledger"
    path.write_bytes(content)
    found = exchequer("verify", path)
    assert found.exit_code == 2
    said = " ".join(found.stderr.split())
    assert "this is a CSV export, which can't be verified" in said
    assert "exchequer ledger export DATASET --format jsonl" in said
    path.with_suffix(".jsonl").write_text(ledger.json_lines())
    several = json.loads(exchequer("verify", path, path.with_suffix(".jsonl"), "--json").stdout)[
        "files"
    ]
    assert [each["ok"] for each in several] == [False, True]


def test_a_registry_entry_is_made_from_a_ledger_and_checked_against_it(
    exchequer: Run, server: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = "".join(honest_export(honest().lines, public=True))
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    monkeypatch.setenv("EXCHEQUER_TOKEN", "exq_any")
    server.answers += [(200, content.encode())]
    entry, export = tmp_path / "entry.json", tmp_path / "ledger.jsonl"
    export.write_text(content)
    people = tmp_path / "people.json"
    assert exchequer("ledger", "registry", "reviews", "-o", people).exit_code == 0
    made_of = ("ledger", "registry", "reviews", "--people", people, "-o", entry)
    blank = exchequer(*made_of)
    assert (blank.exit_code, "intended_use is not filled in" in " ".join(blank.stderr.split())) == (
        2,
        True,
    )
    people.write_text(json.dumps(FILLED))
    assert exchequer(*made_of).exit_code == 0
    assert exchequer("verify", export, "--registry", entry).exit_code == 0
    made = json.loads(entry.read_text())
    assert made["deployment"]["basic"]["data_curators"] == ["a hospital"]
    for text, told in (
        ("[" * 900 + "]" * 900, "no JSON"),
        ("1e400", "no JSON"),
        ("9" * 20, "no JSON"),
    ):
        entry.write_text(text)
        refused = exchequer("verify", export, "--registry", entry)
        assert (refused.exit_code, told in refused.stderr) == (2, True), text
    made["deployment"]["privacy_loss"]["privacy_parameters_details"] = "ε 1"
    entry.write_text(json.dumps(made))
    refused = exchequer("verify", export, "--registry", entry)
    assert refused.exit_code == 1
    assert "privacy_loss" in refused.output
