"""Random requests to every route, right and wrong: never a 500, always an answer that the
description allows.

Three hundred cases in all (before a release a thousand), shared out over the routes: half follow
the description, half break it. Bodies that are no JSON, wrong types, unknown and overlong fields,
SQL, invalid UTF-8 in addresses and other people's objects are among them. Half of them are asked by
somebody who has every role, the others by people of one role each, and by nobody.
"""

import math
from itertools import cycle

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from accountant.identities import credentials

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
#: Values that stand where a generated one would: what a route meets beside random text.
NASTY = [
    "'; DROP TABLE entries; --",
    "a" * 5_000,
    "-1",
    "%ff%fe",
    "\u202e",
    "null",
    "1e999",
    "{}",
    "",
]


@pytest.fixture(scope="module")
def askers(app, engine, password_hash):
    """Headers of the requests' senders, in turn: half of all requests get past the check of
    roles.
    """

    def of(name: str, roles: list[str]) -> dict[str, str]:
        user_id = credentials.add_user(engine, f"fuzz-{name}", password_hash, roles)
        return {"Authorization": f"Bearer {credentials.add_token(engine, user_id, 'fuzz', None)}"}

    everything = of("everything", list(credentials.ROLES))
    others = [of(role, [role]) for role in credentials.ROLES] + [{}]
    return cycle([each for other in others for each in (everything, other)])


@pytest.fixture
def known(site) -> dict[str, str]:
    """Names of things that exist, so that addresses lead somewhere now and then."""
    job = str(site.bench.submit(3))
    return {"name": site.bench.dataset, "job": job}


def operations(app):
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app)
    return [each.ok() for each in schema.get_all_operations()]


def modes(operation) -> list[GenerationMode]:
    """A request that can't be wrong is only made right."""
    refusable = [
        each for each in operation.headers if each.name not in ("If-Match", "If-None-Match")
    ]
    takes = operation.body or operation.query or operation.path_parameters or refusable
    return (
        [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if takes else [GenerationMode.POSITIVE]
    )


@pytest.mark.parametrize("cases", [60, pytest.param(1000, marks=pytest.mark.release)])
def test_no_request_makes_a_500_or_an_answer_beyond_the_description(app, askers, known, cases):
    app.config["PROPAGATE_EXCEPTIONS"] = False
    # it ends theirs
    every = sorted(operations(app), key=lambda each: each.label == "DELETE /api/v1/session")
    counted = {each.label: 0 for each in every}
    hashes = ("/session", "/users", "/me/password", "/reset-password")
    hashing = {each.label for each in every if each.path.endswith(hashes)}
    for operation in every:
        # argon2 takes its time, by design; and where there are few different requests, fewer are
        # made.
        share = (
            cases // 40
            if operation.label in hashing
            else math.ceil(1.05 * cases / (len(every) - len(hashing)))
        )
        for mode in modes(operation):
            _fuzz(operation, mode, share // len(modes(operation)) + 1, askers, known, counted)
    assert all(counted.values()), counted
    assert sum(counted.values()) >= cases


def _fuzz(operation, mode: GenerationMode, cases: int, askers, known, counted) -> None:
    nasty = cycle([None] * 5 + NASTY)
    real = cycle([True, False])

    @settings(
        max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case) -> None:
        value = next(nasty)
        for name in case.path_parameters or {}:
            if value is not None:
                case.path_parameters[name] = value or "x"
            elif next(real) and name in known:
                case.path_parameters[name] = known[name]
        counted[operation.label] += 1
        response = case.call(headers=next(askers))
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            problem = response.json()
            assert problem["detail"]
            assert "Traceback" not in problem["detail"]

    run()
