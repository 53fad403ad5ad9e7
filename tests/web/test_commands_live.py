"""Commands against the real web service: what people, tokens, offers, hooks and auditors' lists
print.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from accountant.core.ledger.policy import Policy
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.transactions import policies
from tests.support import Bench, person
from tests.web.client.test_client import address  # noqa: F401  (a fixture)
from web.cli.commands import app

pytestmark = pytest.mark.slow

Run = Callable[..., str]


@pytest.fixture
def run(engine: Engine, address: str, tmp_path: Path) -> Run:  # noqa: F811
    def command(who: Actor, *words: object, code: int = 0, told: str = "") -> str:
        token = credentials.add_token(engine, who.id, "test", None)
        environment = {"EXCHEQUER_URL": address, "EXCHEQUER_TOKEN": token, "COLUMNS": "80"}
        environment |= {"XDG_CONFIG_HOME": str(tmp_path), "EXCHEQUER_PROFILE": ""}
        found = CliRunner().invoke(app, [str(word) for word in words], env=environment)
        assert found.exit_code == code, (words, found.output, found.exception)
        assert "Traceback" not in found.output
        assert told in " ".join(found.stderr.split())
        if "--json" not in words:
            assert all(
                len(line.rstrip()) <= 80 for line in found.stdout.splitlines() if "─" in line
            ), words
        return found.stdout

    return command


def both(run: Run, who: Actor, *words: object) -> Any:
    """Runs it for people, then for programs; the document."""
    run(who, *words)
    return json.loads(run(who, *words, "--json"))


def test_people_and_tokens(bench: Bench, engine: Engine, run: Run) -> None:
    admin = person(engine, "administrator")
    made = json.loads(run(admin, "token", "add", "ci", "--scope", "read", "--days", "3", "--json"))
    assert made["token"].startswith("exq_")
    listed = both(run, admin, "token", "list")
    assert made["id"] in [each["id"] for each in listed]
    run(admin, "token", "revoke", made["id"])
    assert bench.analyst.name in [each["name"] for each in both(run, admin, "user", "list")]
    shown = both(run, admin, "user", "show", bench.analyst.name)
    assert shown["roles"] == ["analyst"]
    run(admin, "user", "roles", bench.analyst.name, "--role", "analyst", "--role", "auditor")
    assert both(run, admin, "user", "show", bench.analyst.name)["roles"] == ["analyst", "auditor"]
    assert "shown once" in run(admin, "user", "reset-password", bench.analyst.name)
    for act in ("unlock", "sign-out", "revoke-tokens", "close", "open"):
        run(admin, "user", act, bench.analyst.name)
    both(run, admin, "user", "sign-ins")


def test_offers(bench: Bench, run: Run) -> None:
    bench.warm()
    job = str(bench.submit(100))
    assert job in [each["id"] for each in both(run, bench.steward, "decision", "list")]
    assert both(run, bench.steward, "decision", "show", job)["kind"] == "approval"
    smaller = ("job", "offer", job, "--set", "tokens_per_batch=20")
    assert both(run, bench.steward, *smaller)["epsilon_alone"] > 0
    offered = json.loads(run(bench.steward, *smaller, "--reason", "smaller will do", "--json"))
    listed = both(run, bench.analyst, "decision", "list", "--kind", "offer")
    assert [each["id"] for each in listed] == [offered["id"]]
    assert both(run, bench.analyst, "decision", "show", offered["id"])["state"] == "open"
    made = json.loads(run(bench.analyst, "decision", "answer", offered["id"], "--yes", "--json"))
    assert made["parameters"]["tokens_per_batch"] == 20
    assert made["state"] == "queued"


def test_one_answers_for_all_kinds_of_decisions(bench: Bench, run: Run) -> None:
    """Approve and refuse are short forms of one command."""
    bench.allow()
    bench.warm()
    second = person(bench.engine, "steward")
    first, other = str(bench.submit(10)), str(bench.submit(10))
    assert (
        json.loads(run(bench.steward, "approve", first[:8], "--reason", "it fits", "--json"))[
            "state"
        ]
        == "queued"
    )
    refused = json.loads(run(bench.steward, "refuse", other, "--reason", "not this", "--json"))
    assert (refused["state"], refused["answer"]) == ("refused", "not this")
    policies.set_policy(bench.engine, bench.dataset, Policy(two_people=True), bench.steward)
    asked = run(
        bench.steward,
        "allow",
        bench.dataset,
        "--epsilon",
        "20",
        "--delta",
        "1e-6",
        "--reason",
        "more",
    )
    decision = re.search(r"exchequer decision answer (\S+) --yes", asked)[1]
    said = run(second, "decision", "answer", decision, "--yes", "--reason", "seen")
    assert f"of {bench.dataset} is written" in said


def test_uploads(bench: Bench, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("text\nhello\n")
    kept = json.loads(run(bench.steward, "upload", "add", file, "--json"))
    assert kept["sha256"] in [each["sha256"] for each in both(run, bench.steward, "upload", "list")]
    assert both(run, bench.steward, "upload", "show", kept["sha256"])["columns"]
    run(bench.steward, "upload", "remove", kept["sha256"])


def test_what_auditors_look_through(open_bench: Bench, run: Run, tmp_path: Path) -> None:
    bench = open_bench
    bench.submit(10)
    bench.submit(600)
    refusals = both(run, bench.auditor, "job", "refused", "--dataset", bench.dataset)
    assert [each["refusal"]["cap"] for each in refusals] == ["basic"]
    assert both(run, bench.auditor, "user", "activity", "--dataset", bench.dataset)
    found = both(
        run, bench.auditor, "ledger", "find", "--dataset", bench.dataset, "--kind", "RESERVE"
    )
    assert {each["kind"] for each in found} == {"RESERVE"}
    entry = both(run, bench.auditor, "ledger", "entry", bench.dataset, found[0]["seq"])
    assert json.dumps(entry).count(found[0]["hash"]) >= 1
    run(bench.auditor, "checkpoint", "add", bench.dataset, "-o", tmp_path / "checkpoint.json")
    assert both(run, bench.auditor, "checkpoint", "list")
    assert both(run, bench.auditor, "checkpoint", "list", bench.dataset)
    assert both(run, bench.auditor, "ledger", "ex-post", bench.dataset)["jobs"] == []
    assert (
        both(run, bench.auditor, "dataset", "spending", bench.dataset)["dataset"] == bench.dataset
    )
    assert json.loads(run(bench.auditor, "dataset", "report", bench.dataset))
    run(bench.analyst, "job", "refused", code=1)
    whole = json.loads(run(bench.auditor, "ledger", "show", bench.dataset, "--all", "--json"))
    assert whole[-1]["seq"] == 1
