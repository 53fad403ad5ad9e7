"""Profiles: who is signed in where, and what leaves this machine for which server."""

import json
import stat

import pytest

from tests.web.cli.stand_ins import Run, StandIn
from web.client import NoSuchProfile, Profile, connect, profiles

SESSION = {
    "token": "t0ken",
    "name": "ada",
    "roles": ["analyst"],
    "expires_at": "2027-01-01T00:00:00+00:00",
}


@pytest.fixture(autouse=True)
def _at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXCHEQUER_URL")


def sent(server: StandIn) -> str | None:
    return server.requests[-1][2].get("Authorization")


def test_two_profiles_and_who_speaks(exchequer: Run, server: StandIn) -> None:
    password = {"EXCHEQUER_PASSWORD": "open sesame"}
    for name, token in (("work", "one"), ("home", "two")):
        server.answers.append((201, SESSION | {"token": token}))
        words = ("login", server.url, "--name", "ada", "--profile", name, "--json")
        found = exchequer(*words, env=password)
        assert found.exit_code == 0
        assert json.loads(found.stdout)["profile"] == name
        assert token not in found.output
    assert stat.S_IMODE(profiles.path().stat().st_mode) == 0o600
    assert stat.S_IMODE(profiles.path().parent.stat().st_mode) == 0o700
    for words, expected, environment in (
        (("profile", "show"), "two", {}),
        (("--profile", "work", "profile", "show"), "one", {}),
        (("profile", "show"), "one", {"EXCHEQUER_PROFILE": "work"}),
        (("--profile", "home", "profile", "show"), "two", {"EXCHEQUER_PROFILE": "work"}),
        (("profile", "show"), "three", {"EXCHEQUER_TOKEN": "three"}),
        (("--profile", "work", "profile", "show"), "one", {"EXCHEQUER_TOKEN": "three"}),
    ):
        server.answers.append((200, {"name": "ada", "roles": [], "scopes": []}))
        assert exchequer(*words, env=environment).exit_code == 0
        assert sent(server) == f"Bearer {expected}", words
    assert exchequer("profile", "use", "work").exit_code == 0
    rows = json.loads(exchequer("profile", "list", "--json").stdout)
    assert [(each["profile"], each["in_use"]) for each in rows] == [("work", True), ("home", False)]
    assert "token" not in rows[0]


def test_a_kept_token_goes_to_its_own_server_only(
    exchequer: Run, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.keep(Profile("https://elsewhere.example", "ada", "secret"))
    server.answers.append((200, {"datasets": [], "next": None}))
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    assert exchequer("dataset", "list").exit_code == 0
    assert sent(server) is None


def test_the_python_client_is_whom_login_left(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.keep(Profile(server.url, "ada", "one"), "work")
    profiles.keep(Profile(server.url, "bob", "two"), "home")
    for name, expected in ((None, "two"), ("work", "one")):
        server.answers.append((200, {"name": "ada", "roles": [], "scopes": []}))
        with connect(name) as client:
            client.whoami()
        assert sent(server) == f"Bearer {expected}"
    with pytest.raises(NoSuchProfile, match="home, work"):
        connect("wrok")


def test_logout_ends_a_token_and_forgets_it(exchequer: Run, server: StandIn) -> None:
    profiles.keep(Profile(server.url, "ada", "one"), "work")
    profiles.keep(Profile(server.url, "bob", "two"), "home")
    server.answers.append((200, {"id": "0"}))
    assert exchequer("profile", "logout", "--profile", "work").exit_code == 0
    assert server.requests[-1][:2] == ("DELETE", "/api/v1/session")
    assert sent(server) == "Bearer one"
    assert list(profiles.read().known) == ["home"]
    server.answers.append((500, {}))  # it is not ended, so it is not forgotten either
    assert exchequer("profile", "logout", "--everywhere").exit_code == 1
    assert list(profiles.read().known) == ["home"]
    server.answers.append((200, {"name": "bob"}))
    found = exchequer("profile", "logout", "--everywhere", "--json")
    assert json.loads(found.stdout) == {
        "profile": "home",
        "token_ended": True,
        "ended_everywhere": True,
    }
    assert server.requests[-1][:2] == ("POST", "/api/v1/me/sign-out-everywhere")
    assert sent(server) == "Bearer two"
    assert exchequer("profile", "logout").exit_code == 1


@pytest.mark.parametrize(("answer", "ended"), [(401, True), (503, False)])
def test_logout_says_whether_the_token_is_worth_nothing(
    exchequer: Run, server: StandIn, answer: int, ended: bool
) -> None:
    """A server that is away keeps nobody from forgetting; what it did not end is said to live
    on.
    """
    profiles.keep(Profile(server.url, "ada", "one", "2030-01-31T00:00:00+00:00"), "work")
    server.answers.append((answer, {}))
    found = exchequer("profile", "logout")
    assert found.exit_code == 0
    assert ("2030-01-31" in found.stdout) == (not ended)
    assert list(profiles.read().known) == []


def test_a_token_from_standard_input(exchequer: Run, server: StandIn) -> None:
    server.answers.append((200, {"name": "ci", "roles": ["analyst"]}))
    found = exchequer("login", server.url, "--token-stdin", "--json", input="exq_abc\n")
    assert json.loads(found.stdout)["name"] == "ci"
    assert profiles.chosen().token == "exq_abc"
    server.answers.append((401, {"detail": "no"}))
    found = exchequer("login", server.url, "--token-stdin", input="exq_bad\n")
    assert found.exit_code == 1
    assert "Make another" in found.stderr
    assert profiles.chosen().token == "exq_abc"
    assert exchequer("login", server.url, "--token-stdin", input="").exit_code == 2


def test_an_unknown_profile_says_which_there_are(exchequer: Run) -> None:
    profiles.keep(Profile("http://127.0.0.1:9", "ada", "one"), "work")
    found = exchequer("--profile", "wrok", "jobs")
    assert found.exit_code == 2
    assert "work" in found.stderr
    assert "exchequer profile list" in found.stderr


# --- this machine's own stack
# -------------------------------------------------------------------------

ME = {"name": "steward", "roles": ["steward"], "scopes": []}


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, server: StandIn) -> str:
    """The address of a stack that has just been started, and knows the token `ours`."""
    from web.cli import bootstrap

    monkeypatch.setattr(bootstrap, "issue_token", lambda configured, name: "new")
    return server.url


def test_a_stack_takes_over_no_profile_of_another_and_says_where_commands_go(
    stack: str, server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    from web.cli.stack import sign_in_here

    first = profiles.keep(Profile("http://127.0.0.1:1", "steward", "theirs"))
    sign_in_here(None, stack)
    assert profiles.named(first).token == "theirs"  # not even sent anywhere
    assert server.requests == []
    assert profiles.chosen() == Profile(stack, "steward", "new")
    assert (
        f"commands go to {stack} from here on; `exchequer profile use {first}`"
        in capsys.readouterr().err
    )
    server.answers.append((200, ME))
    sign_in_here(None, stack)
    assert capsys.readouterr().err == ""


def test_who_is_signed_in_to_a_stack_stays_so_and_a_dead_token_is_replaced(
    stack: str, server: StandIn
) -> None:
    from web.cli.stack import sign_in_here

    for name in ("boss", "ada"):
        profiles.keep(Profile(stack, name, "ours"), name)
    server.answers.append((200, ME))
    sign_in_here(None, stack)
    assert profiles.read().current == "ada"
    server.answers += [(401, {}), (401, {})]
    sign_in_here(None, stack)
    assert profiles.chosen() == Profile(stack, "steward", "new")
    assert sorted(profiles.read().known) == ["ada", "boss"]


@pytest.mark.parametrize(("status", "moves"), [(200, True), (401, False)])
def test_a_profile_moves_with_its_stack_and_another_stack_keeps_its_own(
    stack: str, server: StandIn, status: int, moves: bool
) -> None:
    """The former address may be somebody else's by now: nothing is sent there."""
    from web.cli.stack import _move_profiles

    profiles.keep(Profile("http://127.0.0.1:1", "steward", "ours"))
    server.answers.append((status, ME))
    _move_profiles("http://127.0.0.1:1", stack)
    assert [each.url for each in profiles.read().known.values()] == [
        stack if moves else "http://127.0.0.1:1"
    ]


def test_the_demo_keeps_a_profile_for_each_person_and_uses_none(
    stack: str, server: StandIn
) -> None:
    from web.cli.demo import _keep_profiles
    from web.cli.stack import sign_in_here

    _keep_profiles(stack, {"analyst": "a", "steward": "s"})
    assert profiles.named("demo-analyst") == Profile(stack, "analyst", "a")
    sign_in_here(None, stack)  # none of these speaks unless somebody names it
    assert server.requests == []
    assert profiles.chosen().token == "new"
    _keep_profiles(stack, {"analyst": "b"})
    assert profiles.chosen().token == "new"
    assert profiles.named("demo-analyst").token == "b"
