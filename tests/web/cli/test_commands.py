"""Commands against a stand-in server: what they send, what they say, and their exit codes."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from accountant.settings import Settings
from tests.web.cli.stand_ins import QUOTED, Run, StandIn
from web.cli import data
from web.cli.commands import app
from web.client import profiles

REQUEST = {
    "dataset": "reviews",
    "mechanism": "private-prediction",
    "model": "small",
    "parameters": {},
}


@pytest.fixture(autouse=True)
def _at(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(REQUEST))
    return path


def job(state: str, **more: Any) -> dict[str, Any]:
    known = {"id": "7", "name": "Texts, 3 March, no. 7", "state": state, "dataset": "reviews"}
    known |= {
        "mechanism": "private-prediction",
        "model": "small",
        "analyst": "ada",
        "purpose": "",
        "epsilon_alone": 1.0,
        "delta": 1e-6,
    }
    known |= {"refusal": None, "failure": None, "decision_reason": None}
    return known | {"progress": {"done": 0, "total": None}} | more


REFUSAL = {
    "cap": "renyi",
    "left": "0.25",
    "asked": "0.5",
    "why": "the job costs 0.5, 0.25 is left",
    "size_field": "tokens_per_batch",
    "largest": 64,
}


@pytest.mark.slow
def test_verify_and_price_work_without_server_packages(tmp_path: Path) -> None:
    """As in an installation of the client alone: importing any of them would fail."""
    block = (
        "import sys\nfor name in ('torch', 'sqlalchemy', 'flask', 'pyarrow', 'celery', "
        "'psycopg'):\n"
    )
    block += "    sys.modules[name] = None\n"
    code = block + "from web.cli import main\nmain()"
    for words, expected in (
        (("price", "private-prediction"), 0),
        (("verify", "absent"), 2),
        (("up",), 1),
    ):
        command = [sys.executable, "-c", code, *words]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == expected, found.stderr
        assert "Traceback" not in found.stderr


def test_login_keeps_a_token_for_this_server_only(
    exchequer: Run, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXCHEQUER_PASSWORD", "open sesame")
    session = {"token": "t0ken", "name": "ada", "roles": ["analyst"], "expires_at": "tomorrow"}
    server.answers += [(200, session), (200, {"datasets": [], "next": None})]
    found = exchequer("login", "--name", "ada", "--url", server.url + "/")
    assert found.exit_code == 0
    assert "t0ken" not in found.output
    assert json.loads(server.requests[0][3]) == {"name": "ada", "password": "open sesame"}
    assert stat.S_IMODE(profiles.path().stat().st_mode) == 0o600
    assert exchequer("dataset", "list").exit_code == 0
    assert server.requests[1][2]["Authorization"] == "Bearer t0ken"
    monkeypatch.setenv("EXCHEQUER_URL", "http://127.0.0.1:9")
    assert profiles.chosen().token is None


def test_login_without_anybody_to_ask(exchequer: Run, server: StandIn) -> None:
    found = exchequer("login", "--name", "ada")
    assert found.exit_code == 2
    assert "EXCHEQUER_PASSWORD" in found.stderr
    assert server.requests == []


def test_login_with_a_wrong_password(exchequer: Run, server: StandIn) -> None:
    server.answers.append((401, {"detail": "name or password is wrong"}))
    found = exchequer("login", "--name", "ada", env={"EXCHEQUER_PASSWORD": "guess"})
    assert found.exit_code == 1
    assert "this name with this password" in found.stderr
    assert not profiles.path().exists()


def test_a_password_is_read_and_never_an_argument(exchequer: Run, server: StandIn) -> None:
    words = ("user", "add", "ada", "--role", "analyst")
    for command in (words, (*words, "--database")):
        found = exchequer(*command, "--password", "open sesame")
        assert found.exit_code == 2
        assert "--password-stdin" in found.stderr
        assert "open sesame" not in found.output
    assert exchequer(*words, "--password-stdin", input="").exit_code == 2
    assert server.requests == []
    server.answers.append((201, {"name": "ada", "roles": ["analyst"]}))
    found = exchequer(*words, "--password-stdin", input="open sesame\n")
    assert found.exit_code == 0, found.output
    assert json.loads(server.requests[0][3])["password"] == "open sesame"
    assert "open sesame" not in found.output


def test_no_option_takes_a_secret() -> None:
    """Everybody on a machine sees arguments: a flag says where a secret is read, or an option is
    hidden.
    """
    # Patterns and columns of data, limits, numbers, public keys, and an idempotency key.
    known = {
        *(
            "secret",
            "secret_pattern",
            "secret_column",
            "secret_terms",
            "key",
            "public_key",
            "log_key",
        ),
        *("witness_key", "tokens"),
    }

    def options(command: Any) -> Iterator[Any]:
        yield from command.params
        for each in getattr(command, "commands", {}).values():
            yield from options(each)

    named = re.compile("password|passphrase|secret|token|credential|key$")
    valued = [
        each
        for each in options(typer.main.get_command(app))
        if named.search(each.name) and each.param_type_name == "option" and not each.is_flag
    ]
    assert {each.name for each in valued if not each.hidden} == known
    # refused, with what to use
    assert {each.name for each in valued if each.hidden} == {"password"}


def test_a_damaged_profile_counts_as_none(exchequer: Run, server: StandIn) -> None:
    profiles.path().parent.mkdir(parents=True)
    profiles.path().write_text("{")
    server.answers.append((401, {"detail": "no token"}))
    found = exchequer("jobs")
    assert found.exit_code == 1
    assert "exchequer login" in found.stderr


BAD_FILES = [
    ("{", ("FILE", "no JSON")),
    ("[]", ("FILE", "no JSON object")),
    ("{}", ("dataset", "mechanism")),
    (json.dumps(REQUEST | {"model": 3}), ("model", "no text")),
    (json.dumps(REQUEST | {"colour": 1}), ("colour", "unknown field")),
    (json.dumps(REQUEST | {"parameters": 3}), ("parameters", "no object")),
    (json.dumps(REQUEST | {"parameters": {"clip": float("nan")}}), ("parameters.clip", "nan")),
    (
        '{"dataset": "a", "mechanism": "b", "model": "c", "parameters": {"x": [1e999]}}',
        ("parameters.x[0]",),
    ),
]


@pytest.mark.parametrize(("text", "said"), BAD_FILES)
def test_a_bad_job_file_is_told_before_anything_is_sent(
    exchequer: Run, server: StandIn, tmp_path: Path, text: str, said: tuple[str, ...]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    found = exchequer("submit", path)
    assert found.exit_code == 2
    assert all(each in found.stderr for each in said), found.stderr
    assert server.requests == []


def test_a_missing_job_file(exchequer: Run, server: StandIn, tmp_path: Path) -> None:
    found = exchequer("submit", tmp_path / "absent.json")
    assert found.exit_code == 2
    assert "absent.json" in found.stderr
    assert server.requests == []


def test_a_refused_job_says_what_would_fit(
    exchequer: Run, server: StandIn, request_file: Path
) -> None:
    server.answers += [QUOTED, (201, job("submitted")), (200, job("refused", refusal=REFUSAL))]
    found = exchequer("submit", request_file, "--key", "monday")
    assert found.exit_code == 1
    for said in ("binding cap: Rényi", "asked: 0.5", "left: 0.25", "tokens_per_batch = 64"):
        assert said in found.stderr
    assert server.requests[1][2]["Idempotency-Key"] == "monday"


def test_waiting_follows_a_job_to_its_end(
    exchequer: Run, server: StandIn, request_file: Path
) -> None:
    progress = {"done": 64, "total": 128}
    states = [job("queued"), job("running", progress=progress), job("succeeded", progress=progress)]
    server.answers += [QUOTED, (201, job("submitted")), *((200, state) for state in states)]
    found = exchequer("submit", request_file, "--wait", "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["state"] == "succeeded"


def test_a_failed_job_is_a_failure(exchequer: Run, server: StandIn) -> None:
    server.answers.append((200, job("failed", failure="it failed while private data was read")))
    found = exchequer("job", "7", "--wait")
    assert found.exit_code == 1
    assert "Traceback" not in found.output


def test_problems_of_the_server_are_sentences(
    exchequer: Run, server: StandIn, request_file: Path
) -> None:
    problem = {
        "field": "parameters.clip",
        "problem": "-1: too small",
        "allowed": "a number above 0",
    }
    wrong = (422, {"code": "invalid", "title": "Invalid request", "problems": [problem]})
    server.answers += [wrong, wrong]  # to the quote, and to the request
    found = exchequer("submit", request_file)
    assert found.exit_code == 2
    said = "exchequer: parameters.clip: -1: too small. Allowed: a number above 0. Correct it"
    assert found.stderr.startswith(said)


@pytest.mark.parametrize(("status", "code"), [(403, 1), (404, 2), (409, 1), (500, 1), (401, 1)])
def test_exit_codes_of_answers(exchequer: Run, server: StandIn, status: int, code: int) -> None:
    server.answers.append((status, {"detail": "no", "code": "x"}))
    assert exchequer("approve", "7", "--reason", "fits").exit_code == code


def test_control_characters_do_not_reach_the_terminal(exchequer: Run, server: StandIn) -> None:
    server.answers.append((404, {"detail": "no \x1b[2Jsuch thing"}))
    assert "\x1b" not in exchequer("job", "7").output


def test_data_that_was_refused(exchequer: Run, server: StandIn) -> None:
    version = {"number": 1, "uri": "x.csv", "state": "invalid", "error": "there is no column txet"}
    checking = {"name": "reviews", "state": "checking"}
    invalid = {"name": "reviews", "state": "invalid", "versions": [version]}
    server.answers += [(201, checking), (200, checking), (200, invalid)]
    found = exchequer("dataset", "add", "reviews", "--uri", "s3://bucket/x.csv", "--labels", "a, b")
    assert found.exit_code == 1
    assert "there is no column txet" in found.stderr
    sent = json.loads(server.requests[0][3])
    assert sent["labels"] == ["a", "b"]
    assert sent["uri"] == "s3://bucket/x.csv"
    assert sent["policy"] == {"auto_approve_epsilon": "0"}


def test_a_correction_sends_what_was_given_and_nothing_else(
    exchequer: Run, server: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "names").write_text("Anna\n\nBert\n")
    server.answers += [
        (202, {}),
        (200, {"name": "reviews", "state": "ready", "versions": [{"number": 1}]}),
    ]
    given = (
        "--groups",
        "north,south",
        "--secret-pattern",
        r"\d{4}",
        "--secret-terms",
        str(tmp_path / "names"),
    )
    assert exchequer("dataset", "correct", "reviews", *given).exit_code == 0
    assert json.loads(server.requests[0][3]) == {
        "groups": ["north", "south"],
        "secret_patterns": [r"\d{4}"],
        "secret_terms": ["Anna", "Bert"],
    }


READY = {"name": "reviews", "state": "ready", "versions": [{"number": 1, "state": "ready"}]}


def test_a_file_under_a_data_root_is_read_where_it_lies(
    exchequer: Run, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text("text\nhello\n")
    monkeypatch.setattr(data, "load", lambda: Settings(data_roots=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    server.answers += [(201, {}), (200, READY)]
    assert exchequer("dataset", "add", "reviews", "--uri", "x.csv").exit_code == 0
    assert json.loads(server.requests[0][3])["uri"] == str((tmp_path / "x.csv").resolve())


@pytest.mark.parametrize("command", ["add", "correct", "add-version"])
def test_any_other_file_is_uploaded(
    exchequer: Run, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "x.csv").write_text("text\nhello\n")
    monkeypatch.chdir(tmp_path)
    server.answers += [(201, {"address": "upload:abc"}), (201, READY), (200, READY)]
    found = exchequer("dataset", command, "reviews", "--uri", "x.csv", "--no-wait")
    assert found.exit_code == 0, found.output
    assert "x.csv is uploaded: the service reads a copy" in found.stderr
    assert server.requests[0][3] == b"text\nhello\n"
    assert json.loads(server.requests[1][3])["uri"] == "upload:abc"


@pytest.mark.parametrize("epsilon", ["nan", "-1", "inf", "much"])
def test_an_impossible_allowance_is_not_sent(exchequer: Run, server: StandIn, epsilon: str) -> None:
    found = exchequer("allow", "reviews", "--epsilon", epsilon, "--delta", "1e-6", "--reason", "so")
    assert found.exit_code == 2
    assert "epsilon" in found.stderr
    assert server.requests == []


def test_a_policy_keeps_what_is_not_named(exchequer: Run, server: StandIn) -> None:
    before = {"auto_approve_epsilon": "0", "solo": True, "models": ["small"]}
    server.answers += [(200, before, {"ETag": '"read"'}), (200, {"policy": before})]
    assert exchequer("dataset", "policy", "reviews", "--auto-approve", "1").exit_code == 0
    assert json.loads(server.requests[1][3]) == before | {"auto_approve_epsilon": "1"}
    assert server.requests[1][2]["If-Match"] == '"read"'


def test_shares_and_a_release_are_named_as_options(exchequer: Run, server: StandIn) -> None:
    before = {"shared_epsilon": None, "shares": []}
    server.answers += [(200, before, {"ETag": '"read"'}), (200, {"policy": before})]
    named = "--shared-epsilon 12 --release-start 2027-01 --release-months 12 --wait-for-release"
    named = [*named.split(), "--shares", "ada 2,grace 1"]
    assert exchequer("dataset", "policy", "reviews", *named).exit_code == 0
    assert json.loads(server.requests[1][3]) == {
        "shared_epsilon": "12",
        "release_start": "2027-01",
        "release_months": 12,
        "shares": ["ada 2", "grace 1"],
        "wait_for_release": True,
    }
    server.answers += [(200, before, {"ETag": '"read"'}), (200, {"policy": before})]
    assert exchequer("dataset", "policy", "reviews", "--shared-epsilon", "").exit_code == 0
    assert json.loads(server.requests[3][3])["shared_epsilon"] is None


def test_a_file_appears_only_when_it_is_whole(
    exchequer: Run, server: StandIn, tmp_path: Path
) -> None:
    target = tmp_path / "ledger.jsonl"
    catalogue = (200, {"datasets": [], "next": None})  # asked for names that are close
    server.answers += [(404, {"detail": "no such dataset"}), catalogue, (200, b"{}\n")]
    assert exchequer("ledger", "export", "reviews", "-o", target).exit_code == 2
    assert list(tmp_path.glob("*ledger*")) == []
    assert exchequer("ledger", "export", "reviews", "-o", target).exit_code == 0
    assert target.read_bytes() == b"{}\n"


def test_output_to_an_impossible_place(exchequer: Run, server: StandIn, tmp_path: Path) -> None:
    for target in (tmp_path / "no" / "file", tmp_path):
        found = exchequer("result", "7", "-o", target)
        assert found.exit_code == 2
        assert "-o" in found.stderr


def test_status_of_a_stack_that_is_not_running(exchequer: Run) -> None:
    found = exchequer("status")
    assert found.exit_code == 3
    assert "exchequer stack up" in found.stdout
    assert json.loads(exchequer("status", "--json").stdout)["running"] is False


@pytest.mark.slow
def test_a_database_that_is_away(exchequer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:9/none")
    code = "from web.cli import main; main()"
    words = ["user", "add", "ada", "--role", "analyst", "--database"]
    found = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    assert "database can't be used" in found.stderr
