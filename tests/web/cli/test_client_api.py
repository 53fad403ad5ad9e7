"""The client against a real socket that fails first."""

import io
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.web.cli.stand_ins import StandIn
from web.client import (
    Api,
    ApiProblem,
    Client,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    RateLimited,
    ServiceUnavailable,
    Unreachable,
    Unreadable,
    progress,
)

REQUEST = {
    "dataset": "reviews",
    "mechanism": "private-prediction",
    "model": "small",
    "parameters": {},
}


@pytest.mark.parametrize(
    "failure", ["drop", (503, {"title": "starting"}), (502, b"<html>bad gateway</html>")]
)
def test_reads_are_repeated(server: StandIn, failure: object) -> None:
    server.answers += [failure, failure, (200, {"name": "ada", "roles": []})]
    with Api(server.url, "secret") as client:
        assert client.me()["name"] == "ada"
    assert len(server.requests) == 3
    assert all(each[2]["Authorization"] == "Bearer secret" for each in server.requests)


def test_a_submission_is_repeated_under_one_key(server: StandIn) -> None:
    server.answers += ["drop", (503, {}), (201, {"id": "7"})]
    with Api(server.url, "secret") as client:
        assert client.submit(REQUEST) == {"id": "7"}
    keys = {each[2]["Idempotency-Key"] for each in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1
    assert len(keys.pop()) >= 16


def test_two_submissions_have_two_keys(server: StandIn) -> None:
    server.answers += [(201, {"id": "7"}), (201, {"id": "8"})]
    with Api(server.url, "secret") as client:
        client.submit(REQUEST)
        client.submit(REQUEST)
    assert len({each[2]["Idempotency-Key"] for each in server.requests}) == 2


@pytest.mark.parametrize("failure", ["drop", (503, {"title": "starting"})])
def test_acts_without_a_key_are_not_repeated(server: StandIn, failure: object) -> None:
    """An approval that may have been heard is not shouted again: the person looks first."""
    server.answers += [failure, (200, {})]
    with Api(server.url, "secret") as client, pytest.raises((Unreachable, ApiProblem)):
        client.approve("7", "fits")
    assert len(server.requests) == 1


def test_other_errors_are_not_repeated(server: StandIn) -> None:
    server.answers += [(500, b"oops"), (200, {})]
    with Api(server.url) as client, pytest.raises(ApiProblem) as caught:
        client.me()
    assert caught.value.status == 500
    assert len(server.requests) == 1


def test_nobody_listens() -> None:
    with Api("http://127.0.0.1:9", attempts=2) as client, pytest.raises(Unreachable) as caught:
        client.me()
    assert "127.0.0.1:9" in str(caught.value)


def test_giving_up_tells_the_last_answer(server: StandIn) -> None:
    server.answers += [(503, {"detail": "the database is away"})] * 2
    with Api(server.url, attempts=2) as client, pytest.raises(ApiProblem) as caught:
        client.datasets()
    assert caught.value.status == 503
    assert "database is away" in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:80", "", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(Unreachable):
        Api(url)


def test_problems_name_fields(server: StandIn) -> None:
    problem = {"field": "parameters.clip", "problem": "-1", "allowed": "above 0"}
    server.answers.append((422, {"title": "Invalid", "code": "invalid", "problems": [problem]}))
    with Api(server.url) as client, pytest.raises(ApiProblem) as caught:
        client.submit(REQUEST)
    (found,) = caught.value.problems
    assert (found.field, found.problem, found.allowed) == ("parameters.clip", "-1", "above 0")
    assert caught.value.code == "invalid"


def test_names_can_not_leave_their_place_in_the_path(server: StandIn) -> None:
    server.answers.append((404, {"detail": "no such dataset"}))
    with Api(server.url) as client, pytest.raises(ApiProblem):
        client.dataset("../users?x=1#")
    assert server.requests[0][1] == "/api/v1/datasets/..%2Fusers%3Fx%3D1%23"


def test_results_are_streamed_to_a_file(server: StandIn) -> None:
    lines = json.dumps({"text": "hello", "label": None, "complete": True}).encode() + b"\n"
    server.answers += ["drop", (200, lines * 1000)]
    file = io.BytesIO()
    with Api(server.url) as client:
        client.save_result("7", file)
    assert file.getvalue() == lines * 1000


def test_lists_come_bare_or_wrapped(server: StandIn) -> None:
    server.answers += [(200, [{"id": "a"}]), (200, {"keys": [{"id": "a"}]})]
    with Api(server.url) as client:
        assert client.keys() == client.keys() == [{"id": "a"}]


def test_pages_follow_what_an_answer_says_comes_next(server: StandIn) -> None:
    server.answers += [
        (200, {"jobs": [{"id": n}], "next": following}) for n, following in ((1, "abc"), (2, None))
    ]
    with Api(server.url) as client:
        assert [each["id"] for each in client.all_jobs(dataset="reviews")] == [1, 2]
    assert "cursor" not in server.requests[0][1]
    assert "cursor=abc" in server.requests[1][1]
    assert all("dataset=reviews" in each[1] for each in server.requests)


def test_lists_are_whole_or_as_long_as_asked(server: StandIn) -> None:
    pages = [(200, {"artifacts": [{"id": n}], "next": more}) for n, more in ((1, "abc"), (2, None))]
    server.answers += [*pages, pages[0]]
    server.answers += [
        (200, {"jobs": [{"job": n}], "next": more, "note": "they leak"})
        for n, more in ((1, "abc"), (2, None))
    ]
    with Api(server.url) as client:
        assert [each["id"] for each in client.artifacts()] == [1, 2]
        assert [each["id"] for each in client.artifacts(limit=1)] == [1]
        assert client.ex_post("reviews") == {"jobs": [{"job": 1}, {"job": 2}], "note": "they leak"}
    assert len(server.requests) == 5


def test_an_upload_is_sent_as_it_lies(server: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"text\n" + b"hello\n" * 100_000)
    server.answers.append((201, {"address": "upload:1"}))
    with Api(server.url) as client, file.open("rb") as content:
        client.upload(content, file.stat().st_size)
    assert server.requests[0][3] == file.read_bytes()


# --- patience -------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses asked for, recorded instead of slept."""
    waited: list[float] = []
    monkeypatch.setattr("web.client.transport._sleep", waited.append)
    return waited


def test_retry_after_is_honoured(server: StandIn, pauses: list[float]) -> None:
    server.answers += [
        (429, {}, {"Retry-After": "7"}),
        (503, {}, {"Retry-After": "11"}),
        (200, {"name": "a"}),
    ]
    with Api(server.url, "secret") as client:
        client.me()
    assert pauses == [7.0, 11.0]


def test_a_date_to_retry_at_is_honoured(server: StandIn, pauses: list[float]) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    server.answers += [(503, {}, {"Retry-After": soon}), (200, {"name": "a"})]
    with Api(server.url) as client:
        client.me()
    assert 30 < pauses[0] <= 40


def test_a_long_wait_is_left_to_the_person(server: StandIn, pauses: list[float]) -> None:
    server.answers += [(429, {"detail": "too many requests"}, {"Retry-After": "3600"}), (200, {})]
    with Api(server.url) as client, pytest.raises(RateLimited) as caught:
        client.me()
    assert caught.value.retry_after == 3600
    assert pauses == []


@pytest.mark.parametrize("status", [429, 503])
def test_an_act_is_not_repeated_however_politely_it_was_put_off(
    server: StandIn, pauses: list[float], status: int
) -> None:
    for act in ("approve", "refuse"):
        server.answers = [(status, {}, {"Retry-After": "1"}), (200, {})]
        with Api(server.url) as client, pytest.raises(ApiProblem):
            getattr(client, act)("7", "fits")
        server.answers = [(status, {}, {"Retry-After": "1"}), (200, {})]
        with Api(server.url) as client, pytest.raises(ApiProblem):
            client.set_policy("reviews", {})  # somebody else's change may have come in between
    assert pauses == []
    assert len(server.requests) == 4


def test_a_submission_without_an_answer_says_its_key(server: StandIn, pauses: list[float]) -> None:
    server.answers += ["drop"] * 2
    with Api(server.url, attempts=2) as client, pytest.raises(Unreachable) as caught:
        client.submit(REQUEST)
    sent = {each[2]["Idempotency-Key"] for each in server.requests}
    assert sent == {caught.value.key}


def test_no_redirect_takes_the_token_elsewhere(server: StandIn) -> None:
    server.answers.append((302, {}, {"Location": "http://127.0.0.1:9/api/v1/me"}))
    with Api(server.url, "secret") as client, pytest.raises(ApiProblem) as caught:
        client.me()
    assert caught.value.status == 302
    assert len(server.requests) == 1


def test_no_proxy_stands_before_this_machine(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.answers.append((200, {"name": "ada"}))
    with Api(server.url, attempts=1) as client:
        assert client.me() == {"name": "ada"}


KINDS = [
    (401, NotSignedIn),
    (403, Forbidden),
    (404, NotFound),
    (409, Conflict),
    (422, InvalidRequest),
    (429, RateLimited),
    (503, ServiceUnavailable),
    (504, ServiceUnavailable),
    (500, ApiProblem),
]


@pytest.mark.parametrize(("status", "kind"), KINDS)
def test_answers_are_typed_errors(
    server: StandIn, pauses: list[float], status: int, kind: type[ApiProblem]
) -> None:
    server.answers.append((status, {"detail": "no", "code": "x"}))
    with Api(server.url, attempts=1) as client, pytest.raises(kind) as caught:
        client.me()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code) == (status, "x")


def test_another_program_at_the_address_is_told(server: StandIn) -> None:
    server.answers.append((200, b"<html>a printer</html>"))
    with Api(server.url) as client, pytest.raises(Unreadable, match="is this an Exchequer server"):
        client.me()


def test_a_server_of_another_version_is_told(server: StandIn) -> None:
    server.answers.append((200, {"name": "reviews", "state": "ready"}))
    with Client(server.url) as client, pytest.raises(Unreadable, match="install the version"):
        client.dataset("reviews")


def test_a_wait_outlives_a_server_that_restarts(
    server: StandIn, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.client.progress.time.sleep", pauses.append)
    document = {"id": "7", "state": "running", "progress": {"done": 1, "total": 2}}
    server.answers += [
        (200, document),
        (503, {}),
        (503, {}),
        (200, document | {"state": "succeeded"}),
    ]
    with Api(server.url, attempts=1) as client:
        found = progress.watch(lambda: client.job("7"), progress.ended, progress.silent)
    assert found["state"] == "succeeded"
    server.answers += [(503, {})]
    with Api(server.url, attempts=1) as client, pytest.raises(ServiceUnavailable):
        # it was never seen
        progress.watch(lambda: client.job("7"), progress.ended, progress.silent)
