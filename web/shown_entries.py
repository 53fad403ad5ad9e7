"""What an answer shows stands in the log outside the database by then, whichever page or address it
was.

Between a COMMIT and the log's append anybody can read the new entry: a job that is queued, what is
left, a page of the ledger. So before an answer leaves that somebody was let in for, the log is made
to hold all that was committed when it was read. In one place, so that no page can be forgotten.
"""

from flask import Flask, Response, g

from accountant.core.errors import ExchequerError
from accountant.database import UNAVAILABLE
from accountant.transactions.ledger_log import ensure_all
from web import errors
from web.context import engine


def _after(response: Response) -> Response:
    """Return the answer, or 503 in its place where what it shows can't be put into the log."""
    if response.status_code == 503 or not _let_in():
        return response
    try:
        ensure_all(engine())  # a ledger that is behind its log stays visible: its page says so
    except (ExchequerError, *UNAVAILABLE) as error:
        response.close()  # a file that was about to be sent
        return errors.answer_of(error)
    return response


def _let_in() -> bool:
    """Return whether this request had a token or session: strangers see nothing of a ledger."""
    user = g.get("_login_user")  # where a page asked Flask-Login for it
    return g.get("actor") is not None or (user is not None and user.is_authenticated)


def init_app(app: Flask) -> None:
    """Look before each answer, before all else that is done to it: register it last."""
    app.after_request(_after)
