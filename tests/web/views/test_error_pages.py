"""Error pages: each says what happened and what to do next, even where the database is away."""

import pytest
from flask import Flask
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    NoRoom,
    NotFound,
    NotPermitted,
    TooLarge,
    invalid,
)
from accountant.settings import Settings
from web.app import create_app


@pytest.fixture
def alone(tmp_path) -> Flask:
    """The application without a database, and pages that fail on purpose."""
    nowhere = f"postgresql+psycopg://nobody@/nothing?host={tmp_path}"
    app = create_app(Settings(home=tmp_path, DATABASE_URL=nowhere))
    wrong: dict[str, Exception] = {
        "403": NotPermitted("this needs the role steward"),
        "404": NotFound("job", "7"),
        "409": Conflict("somebody was faster"),
        "413": TooLarge("at most 1 MiB"),
        "422": invalid("epsilon", "is not a number", "a number above 0"),
        "500": RuntimeError("the secret of row 7"),
        "507": NoRoom("the disk is full"),
    }

    def fail(status: str) -> None:
        raise wrong[status]

    app.add_url_rule("/fails/<status>", view_func=fail)
    return app


@pytest.mark.parametrize("status", ["403", "404", "409", "413", "422", "500", "507"])
def test_it_says_what_happened_and_what_next(alone, status):
    answer = alone.test_client().get(f"/fails/{status}")
    assert answer.status_code == int(status)
    assert "<h2>What next</h2>" in answer.text
    assert f"status {status}" in answer.text
    assert "row 7" not in answer.text
    assert "<title>" in answer.text


def test_a_field_that_is_wrong_is_named(alone):
    assert isinstance(invalid("epsilon", "x", "y"), InvalidRequest)
    shown = alone.test_client().get("/fails/422").text
    assert "<strong>epsilon</strong>: is not a number (allowed: a number above 0)" in shown


def test_whoever_is_signed_in_gets_a_page_while_the_database_is_away(alone):
    """The page asks nobody who that is: the answer would be another error."""
    client = alone.test_client()
    with client.session_transaction() as session:
        session["_user_id"] = "a session's token"
    answer = client.get("/")
    assert answer.status_code == 503
    assert "Load this page again in a moment." in answer.text
    assert answer.headers["Retry-After"] == "2"


def test_a_page_that_is_not_there_and_one_that_is_not_for_oneself(site):
    pages = site.pages("analyst")
    assert "Look for it in a list." in pages.get("/nothing").text
    assert "an administrator can change them" in pages.get("/inbox").text


def test_an_error_of_the_database_repeats_no_value(engine):
    """It ends in a log with its statement; what people wrote, and what was kept of it, does not."""
    with engine.connect() as connection, pytest.raises(DBAPIError) as raised:
        connection.execute(
            text("SELECT 1 / (length(:v) - length(:v))"), {"v": "what somebody wrote"}
        )
    assert "what somebody wrote" not in str(raised.value)
