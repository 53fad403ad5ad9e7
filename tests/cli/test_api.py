"""The client against a real socket that fails first."""

import io
import json

import pytest
from stand_ins import StandIn

from web.client import Api, ApiProblem, Unreachable

REQUEST = {"dataset": "reviews", "mechanism": "private-prediction", "model": "small", "parameters": {}}


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
    server.answers += [(200, [{"name": "a"}]), (200, {"datasets": [{"name": "a"}]})]
    with Api(server.url) as client:
        assert client.datasets() == client.datasets() == [{"name": "a"}]
