"""Rules for every command: --json and nothing else, errors that say what to do next, 80 columns."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from accountant.core.ledger.policy import Policy
from tests.web.cli.stand_ins import QUOTED, Run, StandIn
from tests.web.cli.test_commands import REFUSAL, REQUEST, job
from web.cli.commands import TREE, app
from web.cli.policy import policy
from web.client import NotFound, profiles

ROOT = Path(__file__).resolve().parents[3]

# A walk-through for people, and audits, which write reports of their own.
AUDITS = {f"audit {name}" for name in ("reconstruction", "leave-one-out")}
WITHOUT_JSON = {"demo", "ledger registry", "registry export", *AUDITS}  # the entry is JSON itself


@pytest.fixture(autouse=True)
def _at(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(leaves(get_command(app)))


def test_every_command_speaks_json() -> None:
    without = {
        name
        for name, each in COMMANDS.items()
        if not any("--json" in option.opts for option in each.params)
    }
    assert without == WITHOUT_JSON


def test_every_command_says_what_it_does() -> None:
    assert [name for name, each in COMMANDS.items() if not each.help] == []


def test_a_policy_has_an_option_for_every_field(exchequer: Run, server: StandIn) -> None:
    assert set(signature(policy).parameters) == {"dataset", "settings", *Policy.model_fields}
    words = ["--auto-approve", "1", "--solo", "--share-artifacts", "--mechanisms", "noisy-count"]
    words += [
        "--analysts",
        "ada",
        "--models",
        "small",
        "--approval-days",
        "3",
        "--analyst-epsilon",
        "1",
    ]
    words += [
        "--project-epsilon",
        "2",
        "--two-people",
        "--charge-each-attempt",
        "--time-limit",
        "60",
    ]
    words += ["--departed-analysts", "--secret-jobs", "--results-every", "60"]
    words += ["--stewards", "bo", "--auditors", "cy"]
    words += ["--stated-charges", "1", "--signed-charges", "2", "--runners", "gpu 0a"]
    words += ["--signed", "allow,policy", "--signers", "bo host key"]
    words += ["--shared-epsilon", "12", "--release-start", "2027-01", "--release-months", "12"]
    words += ["--shares", "ada 2", "--share-by-project", "--wait-for-release"]
    server.answers += [(200, {}, {"ETag": '"seen"'}), (200, {"policy": {}})]
    assert exchequer("dataset", "policy", "reviews", *words).exit_code == 0
    assert server.requests[1][2]["If-Match"] == '"seen"'  # nobody else's change is lost
    sent = json.loads(server.requests[1][3])
    assert set(sent) == set(Policy.model_fields)
    assert sent["time_limit_seconds"] == 60
    server.answers += [(200, {}), (200, {"policy": {}})]
    assert (
        exchequer(
            "dataset", "policy", "reviews", "--time-limit", "0", "--set", "later=[1]"
        ).exit_code
        == 0
    )
    assert json.loads(server.requests[3][3]) == {"time_limit_seconds": None, "later": [1]}


# --- errors ---------------------------------------------------------------------------------------

ERRORS = [
    ((401, {"detail": "sign in first"}), 1, "exchequer login"),
    ((403, {"detail": "only for stewards"}), 1, "exchequer profile show"),
    ((404, {"detail": "there is no job '7', or it is not yours to see"}), 2, "exchequer job list"),
    ((409, {"detail": "it is queued"}), 1, None),
    ((429, {"detail": "too many requests"}, {"Retry-After": "3600"}), 3, "in 3600 s"),
    (
        (503, {"detail": "the database is away"}, {"Retry-After": "3600"}),
        3,
        "exchequer stack status",
    ),
    ((500, {"detail": "reference abc"}), 1, "can be repeated"),
]


@pytest.mark.parametrize(("answer", "code", "step"), ERRORS)
def test_an_error_says_what_to_do_next(
    exchequer: Run, server: StandIn, answer: Any, code: int, step: str | None
) -> None:
    server.answers += [answer]
    found = exchequer("job", "7")
    assert found.exit_code == code
    assert answer[1]["detail"] in found.stderr
    assert step is None or step in found.stderr
    assert found.stdout == ""
    server.answers = [answer]
    found = exchequer("job", "7", "--json")
    assert found.exit_code == code
    error = json.loads(found.stderr)["error"]
    assert answer[1]["detail"] in error["message"]
    assert error["exit_code"] == code
    assert step is None or step in error["next"]
    assert found.stdout == ""


def test_nobody_answers(exchequer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", "http://127.0.0.1:9")
    found = exchequer("jobs", "--json")
    assert found.exit_code == 3
    error = json.loads(found.stderr)["error"]
    assert error["code"] == "unreachable"
    assert "exchequer stack up" in error["next"]


def test_a_submission_that_may_have_arrived_says_how_to_find_out(
    exchequer: Run, server: StandIn, request_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers += [QUOTED, *["drop"] * 5]
    found = exchequer("submit", request_file)
    assert found.exit_code == 3
    key = server.requests[1][2]["Idempotency-Key"]
    assert f"--key {key}" in found.stderr


def test_wrong_fields_and_wrong_usage_as_json(
    exchequer: Run, server: StandIn, request_file: Path
) -> None:
    problem = {
        "field": "parameters.clip",
        "problem": "-1: too small",
        "allowed": "a number above 0",
    }
    server.answers += [(422, {"code": "invalid", "problems": [problem]})] * 2
    found = exchequer("submit", request_file, "--json")
    error = json.loads(found.stderr)["error"]
    assert (found.exit_code, error["code"], error["problems"]) == (2, "invalid", [problem])
    for words in (("jobs", "--colour", "--json"), ("job", "--json"), ("ledger", "shwo", "--json")):
        found = exchequer(*words)
        error = json.loads(found.stderr)["error"]
        assert (found.exit_code, error["code"]) == (2, "usage"), words
        assert found.stdout == ""


def test_a_slip_in_a_name_is_told(exchequer: Run, server: StandIn) -> None:
    missing = (404, {"detail": "there is no dataset 'reveiws', or it is not yours to see"})
    server.answers += [
        missing,
        (200, {"datasets": [{"name": "reviews"}, {"name": "notes"}], "next": None}),
    ]
    found = exchequer("dataset", "show", "reveiws")
    assert found.exit_code == 2
    assert "Did you mean 'reviews'?" in found.stderr
    server.answers += [missing, (200, {"datasets": [{"name": "notes"}], "next": None})]
    assert "exchequer dataset list" in exchequer("dataset", "show", "reveiws").stderr
    server.answers += [missing, (200, {"datasets": [{"name": "reviews"}], "next": None})]
    error = json.loads(exchequer("dataset", "policy", "reveiws", "--json").stderr)["error"]
    assert error["near"] == ["reviews"]


def test_looking_for_close_names_hides_no_error(exchequer: Run, server: StandIn) -> None:
    for failure in ((500, {}), (200, b"<html>"), (200, {"datasets": 3})):
        server.answers = [
            (404, {"detail": "there is no dataset 'x', or it is not yours to see"}),
            failure,
        ]
        found = exchequer("dataset", "show", "x")
        assert found.exit_code == 2
        assert "there is no dataset" in found.stderr


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "a job.json"
    path.write_text(json.dumps(REQUEST | {"parameters": {"tokens_per_batch": 500}}))
    return path


def test_the_command_that_a_refusal_names_submits_what_fits(
    exchequer: Run, server: StandIn, request_file: Path
) -> None:
    server.answers += [QUOTED, (201, job("refused", refusal=REFUSAL))]
    found = exchequer("submit", request_file)
    command = f"exchequer job submit '{request_file}' --set tokens_per_batch=64"
    assert command in found.stderr
    server.answers += [QUOTED, (201, job("refused", refusal=REFUSAL))]
    found = exchequer("submit", request_file, "--json")
    assert json.loads(found.stdout)["state"] == "refused"
    error = json.loads(found.stderr)["error"]
    assert (error["cap"], error["asked"], error["left"], error["largest"]) == (
        "renyi",
        "0.5",
        "0.25",
        64,
    )
    assert error["command"] == command
    server.answers += [QUOTED, (201, job("queued"))]
    assert exchequer("submit", request_file, "--set", "tokens_per_batch=64").exit_code == 0
    assert json.loads(server.requests[-1][3])["parameters"] == {"tokens_per_batch": 64}


def test_a_price_names_the_same(exchequer: Run, server: StandIn) -> None:
    on = {"name": "reviews", "decision": "Refused", "refusal": REFUSAL, "filters": []}
    quote = {"mechanism": "noisy-count", "parameters": {}, "neighbours": "add-remove", "dp": None}
    server.answers.append(
        (200, quote | {"ex_post": None, "secret": None, "breakdown": [], "dataset": on})
    )
    found = exchequer("price", "noisy-count", "--dataset", "reviews")
    for said in ("binding cap: Rényi", "asked: 0.5", "left: 0.25", "--set tokens_per_batch=64"):
        assert said in found.stdout


def test_a_wait_that_ends_first(exchequer: Run, server: StandIn) -> None:
    server.answers += [(200, job("running"))] * 3
    found = exchequer("job", "7", "--wait", "--timeout", "0", "--json")
    assert found.exit_code == 4
    assert json.loads(found.stdout)["state"] == "running"
    error = json.loads(found.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("still-waiting", 4)
    assert "exchequer job show 7 --wait" in error["next"]


def test_followed_without_a_terminal_it_is_lines(exchequer: Run, server: StandIn) -> None:
    states = [("queued", 0), ("running", 10), ("running", 11), ("running", 64), ("succeeded", 128)]
    server.answers += [(200, job(state, progress={"done": n, "total": 128})) for state, n in states]
    found = exchequer("job", "7", "--wait")
    assert found.stderr.splitlines() == [
        "queued",
        "running: 10 of 128 tokens",
        "running: 64 of 128 tokens",
        "succeeded: 128 of 128 tokens",
    ]


def test_who_approves_is_told_once(exchequer: Run, server: StandIn) -> None:
    states = ("awaiting_approval", "awaiting_approval", "succeeded")
    server.answers += [(200, job(state)) for state in states]
    found = exchequer("job", "7", "--wait")
    assert found.stderr.count("a steward runs `exchequer job approve 7 --reason TEXT`") == 1


def test_result_as_json_and_with_other_bytes(
    exchequer: Run, server: StandIn, tmp_path: Path
) -> None:
    text = b'{"text": "a"}\n'
    right = "ce3b81b1a8b5ad6b7b9e6d0ffb1eb0d9e6e8d6f0f9e6e7"  # not its hash
    server.answers += [(200, job("succeeded", output_sha256=None)), (200, text)]
    assert json.loads(exchequer("result", "7", "--json").stdout) == [{"text": "a"}]
    server.answers += [(200, job("succeeded", output_sha256=right)), (200, text)]
    found = exchequer("result", "7", "-o", tmp_path / "x.jsonl")
    assert found.exit_code == 1
    assert "do not use it" in found.stderr
    assert list(tmp_path.iterdir()) == [] or not (tmp_path / "x.jsonl").exists()


def test_a_correction_says_what_it_would_charge_and_names_the_job(
    exchequer: Run, server: StandIn
) -> None:
    names = (
        "id kind dataset state asked_by reason job answered_by answer entry expires_at left "
        "request offer effect"
    )
    told = dict.fromkeys(names.split()) | {"asked_by": "grace", "kind": "correction"}
    asks = "change the charge: Texts: for onboarding, 3 March, no. 12"
    event = {"type": "gaussian", "noise_multiplier": 2.0}
    told |= {"asks": asks, "asked": {"event": event, "cap": "0"}}
    server.answers += [(200, told)]
    found = exchequer("decision", "show", "7").stdout
    assert asks in found
    assert json.dumps(event) in found


# --- tables ---------------------------------------------------------------------------------------


def test_tables_fit_80_columns(exchequer: Run, server: StandIn) -> None:
    an_id = "0b5fb1a6-6cb2-4c34-9d0f-3a7ad1c8b1f0"
    long = job(
        "awaiting_approval",
        id=an_id,
        dataset="a-dataset-of-notes-2027",
        analyst="somebody@example.org",
    )
    long |= {"approval_expires": "2027-01-01T00:00:00+00:00"}
    decision = {
        "id": an_id,
        "kind": "approval",
        "dataset": "a-dataset-of-notes-2027",
        "asks": "run private-prediction",
        "asked_by": "somebody@example.org",
        "expires_at": "2027-01-01T00:00:00+00:00",
        "left": None,
        "request": long,
        "offer": None,
    }
    raised = decision | {
        "kind": "allowance",
        "asks": "allow epsilon 12, delta 0.000001",
        "request": None,
    }
    artifact = {
        "sha256": "ab" * 32,
        "name": "counts",
        "kind": "noisy-counts",
        "size": 10,
        "job": an_id,
    }
    artifact |= {"dataset": "a-dataset-of-notes-2027", "mechanism": "noisy-count"}
    mechanism = {
        "id": "private-prediction",
        "runnable": True,
        "summary": "texts, token by token " * 5,
    }
    answers: list[tuple[tuple[str, ...], list[Any]]] = [
        (("jobs",), [{"jobs": [long]}]),
        (("decision", "list"), [{"decisions": [decision, raised]}]),
        (("artifact", "list"), [{"artifacts": [artifact]}]),
        (("mechanism", "list"), [{"mechanisms": [mechanism]}]),
        (("profile", "list"), []),
    ]
    profiles.keep(
        profiles.Profile(
            "https://exchequer.example.org:8443", "somebody", "t", "2027-01-01T00:00:00"
        )
    )
    for words, documents in answers:
        server.answers += [(200, {**document, "next": None}) for document in documents]
        found = exchequer(*words, env={"COLUMNS": "80"})
        assert found.exit_code == 0
        for line in found.stdout.splitlines():
            assert len(line.rstrip()) <= 80, (words, line)
        if words == ("decision", "list"):  # no word of it is cut
            assert f"{an_id[:8]}  " in found.stdout
            assert " approval " in found.stdout
    server.answers += [(200, {"jobs": [long]})]
    assert an_id[:8] in exchequer("jobs", env={"COLUMNS": "80"}).stdout


# --- imports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["web.client", "web.cli"])
def test_an_import_brings_nothing_heavy(module: str) -> None:
    heavy = (
        "torch sqlalchemy flask pyarrow celery transformers scipy numpy pandas matplotlib IPython"
    )
    code = (
        f"import sys, {module}; print([name for name in {heavy.split()!r} if name in sys.modules])"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert shown.strip() == "[]"


def test_the_help_loads_no_price_and_no_server() -> None:
    code = (
        "import sys\nfrom web.cli.commands import app\ntry: app(['--help'])\nexcept SystemExit: "
        "pass\n"
    )
    code += (
        "print([m for m in ('scipy', 'numpy', 'accountant.core.mechanisms') if m in sys.modules])"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert shown.splitlines()[-1] == "[]"


def test_to_pandas_without_pandas_says_what_to_do() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import web.client as exchequer\n"
        "from web.client.jobs import Job\n"
        "job = object.__new__(Job)\n"
        "try: job.to_pandas()\n"
        "except exchequer.NoPandas as error: print(error)"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert "pip install pandas" in shown


def test_pandas_is_named_in_one_function_only() -> None:
    for path in (*ROOT.glob("web/client/*.py"), *ROOT.glob("web/cli/*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "pandas" not in ast.unparse(node), path


def test_typed_errors_are_reachable_by_one_name() -> None:
    import web.client

    assert web.client.NotFound is NotFound
    assert (ROOT / "web" / "py.typed").exists()


def test_an_entry_that_changes_other_allowances_only_is_listed():
    """An ALLOW of ex-post caps or secrets states no ε."""
    from web.cli.ledger import entry_table

    body = {"reason": "caps for a pilot", "ex_post": {"limit": "3", "settlement": "planned"}}
    entry = {
        "seq": 2,
        "kind": "ALLOW",
        "at": "2026-01-31T10:20:30Z",
        "actor": "sam",
        "job": None,
        "body": body,
    }
    named = "Texts: for onboarding, 3 March, no. 12"
    commit = entry | {"kind": "COMMIT", "job_name": named, "body": {"outcome": "succeeded"}}
    assert list(entry_table([entry, commit]).columns[-1].cells) == [
        "sam: other allowances: caps for a pilot",
        f"sam: {named}: succeeded",
    ]


def test_twelve_commands_stand_at_the_top_and_each_help_fits_a_screen(exchequer: Run) -> None:
    top = exchequer()
    assert (top.exit_code, top.stderr, top.stdout) == (0, "", exchequer("--help").stdout)
    listed = re.findall(r"^  ([a-z]+)  +[A-Z].*\.$", top.stdout, re.M)
    assert listed == list(TREE)[:12]
    rest = top.stdout.partition("More: ")[2].strip(".\n").replace("\n", " ").split(", ")
    assert rest == list(TREE)[12:]
    for noun, about in TREE.items():
        if callable(about):
            continue
        shown = exchequer(noun)
        assert (shown.exit_code, shown.stderr) == (2, "")
        for help_ in (top.stdout, shown.stdout):
            lines = help_.splitlines()
            assert len(lines) <= 25, noun
            assert max(map(len, lines)) <= 80, noun
            assert "..." not in help_.replace("[ARGS]...", ""), "a sentence is cut"


def test_the_short_forms_that_scripts_rely_on_are_hidden_and_do_the_same(
    exchequer: Run, server: StandIn
) -> None:
    """Section 9 of the design."""
    forms = {
        "up": "stack up",
        "down": "stack down",
        "status": "stack status",
        "allow": "dataset allow",
        "submit": "job submit",
        "jobs": "job list",
        "approve": "job approve",
        "refuse": "job refuse",
        "result": "job result",
        "push": "job push",
        "registry export": "ledger registry",
    }
    short = {path: command for path, command in COMMANDS.items() if path.split()[0] not in TREE}
    assert short.keys() == forms.keys()
    for path, form in forms.items():
        names = [
            [param.name for param in command.params] for command in (short[path], COMMANDS[form])
        ]
        assert names[0] == names[1], path
        assert short[path].help == COMMANDS[form].help
        assert get_command(app).commands[path.split()[0]].hidden
    for words in (("job", "7"), ("job", "show", "7"), ("job", "0b5fb1a6", "--json")):
        server.answers.append((200, job("queued")))
        assert exchequer(*words).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jbo",), "Did you mean `exchequer job`?"),
        (("job", "shwo", "7"), "Did you mean `exchequer job show`?"),
        (("cancel", "7"), "Did you mean `exchequer job cancel`?"),
        (("job", "show"), "Missing argument 'ID'.\nType: exchequer job show ID\n"),
        (("allow", "notes"), "Type: exchequer allow DATASET --reason REASON\n"),
        (("job", "list", "--colour"), "`exchequer job list --help` says more."),
        (("zzz",), "exchequer has no command 'zzz'.\n`exchequer --help` says more."),
    ],
)
def test_a_slip_in_a_command_is_told_with_what_to_type(
    exchequer: Run, words: tuple[str, ...], said: str
) -> None:
    found = exchequer(*words)
    assert (found.exit_code, found.stdout) == (2, "")
    assert said in found.stderr


def test_the_version_names_commit_and_python(exchequer: Run) -> None:
    pattern = (
        r"exchequer \d+\.\d+\.\d+( \(commit [0-9a-f]{12}(-dirty)?\))?, Python 3\.\d+\.\d+\S*\n"
    )
    assert re.fullmatch(pattern, exchequer("--version").stdout)
