"""What a proxy before the service answers by itself is told in words, by the command line and to
programs.
"""

import pytest

from web.client.client import Client
from web.client.errors import ApiProblem

PAGE = b"<html><head><title>%d</title></head><body><center>nginx</center></body></html>"
#: Status, server, more headers; what is said, and the exit code.
ANSWERS = (
    (
        413,
        "nginx/1.22.1",
        {},
        ("nginx/1.22.1", "413", "body of this size", "client_max_body_size"),
        1,
    ),
    (413, "", {}, ("a proxy before the service answered 413",), 1),
    (502, "nginx", {}, ("(nginx) answered 502", "no answer from the service"), 3),
    (502, "Apache/2.4.62", {}, ("(Apache/2.4.62) answered 502", "restarting"), 3),
    (503, "Varnish", {}, ("(Varnish) answered 503", "switched off or overloaded"), 3),
    (503, "awselb/2.0", {"Retry-After": "90"}, ("answered 503", "overloaded"), 3),
    (
        504,
        "cloudflare",
        {},
        ("(cloudflare) answered 504", "waited too long", "Look before you repeat"),
        3,
    ),
    (504, "Caddy", {}, ("answered 504", "proxy_read_timeout"), 3),
    (
        301,
        "nginx",
        {"Location": "https://budget.example.org/api/v1/me"},
        ("https://budget.example.org", "login URL"),
        1,
    ),
    (
        302,
        "oauth2-proxy",
        {"Location": "https://login.example.org/start"},
        ("login.example.org", "programs"),
        1,
    ),
    (403, "ModSecurity", {}, ("answered 403 without a word of the service",), 1),
    (500, "nginx", {}, ("answered 500 without a word",), 1),
)


BODIES = (PAGE % 1, b"", b'"a text"', b"\xff\x00")


@pytest.mark.parametrize(
    ("answer", "body"), [*zip(ANSWERS, BODIES * 3, strict=True), *((ANSWERS[3], b) for b in BODIES)]
)
def test_it_says_who_answered_and_what_to_do(exchequer, server, answer, body):
    status, name, headers, said, code = answer
    server.answers += [(status, body, {"Server": name} | headers)] * 5
    told = exchequer(
        "profile",
        "show",
        env={"EXCHEQUER_URL": server.url, "EXCHEQUER_TOKEN": "exq_x"},
        terminal_width=400,
    )
    assert told.exit_code == code, told.output
    output = " ".join(told.stderr.split())
    for words in said:
        assert words in output, output
    for never in ("<html>", "is not ready: the server answered", "\x1b", "Traceback"):
        assert never not in output
    server.answers[:] = [(status, body, {"Server": name} | headers)] * 5
    with Client(server.url, "exq_x", attempts=1) as client, pytest.raises(ApiProblem) as caught:
        client.whoami()
    assert (caught.value.status, caught.value.code) == (status, "from-elsewhere")
    assert said[-1] in str(caught.value)


def test_the_service_s_own_words_stay(exchequer, server):
    problem = {
        "title": "Too large",
        "status": 413,
        "detail": "more than 1 MiB",
        "code": "too-large",
        "problems": [],
    }
    server.answers.append((413, problem))
    told = exchequer(
        "profile", "show", env={"EXCHEQUER_URL": server.url, "EXCHEQUER_TOKEN": "exq_x"}
    )
    assert "more than 1 MiB" in told.stderr
    assert "proxy" not in told.stderr
