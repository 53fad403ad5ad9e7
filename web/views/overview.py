"""All datasets for stewards and auditors: a table, the same as CSV, and a calendar of what expires.

Order and filters stand in the address.
"""

import csv
import io
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, abort, current_app, g, render_template, request, url_for
from flask_login import current_user
from itsdangerous import BadSignature, URLSafeSerializer
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.files.spreadsheets import harmless
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.queries import datasets
from accountant.queries.overview import PACE_DAYS, overview
from accountant.transactions.artifacts import OVERSEERS
from web import standing
from web.api.parsing import read_choice
from web.auth import current_actor, needs_role, unauthorized
from web.context import engine
from web.views.forms import attachment

pages = Blueprint("overview", __name__)
overseers = needs_role(*OVERSEERS)

#: What a table may be ordered by -> its heading, and whether the largest comes first.
ORDERS = {
    "name": ("dataset", False),
    "left": ("left", False),
    "pace": (f"used in {PACE_DAYS} days", True),
    "waiting": ("waiting", True),
    "last_release": ("last release", True),
    "expires": ("next expiry", False),
}
COLUMNS = ("name", "epsilon", "delta", *list(ORDERS)[1:], "warnings")
LINE_BYTES = 73


def _rows() -> list[dict[str, Any]]:
    """Return the rows that the address asks for, in its order; what is unknown comes last."""
    words = request.args.get("q", "").strip()[:200]
    order, only = read_choice("sort", tuple(ORDERS)) or "name", read_choice("only", ("warnings",))
    rows = overview(engine(), current_actor(), datasets.Wanted(words))
    rows = [row for row in rows if row["warnings"] or not only]
    known = [row for row in rows if row[order] is not None]
    known.sort(key=lambda row: row[order], reverse=ORDERS[order][1])
    return known + [row for row in rows if row[order] is None]


@pages.get("/overview")
@overseers
def table() -> str:
    """One line a dataset."""
    asked = {name: request.args[name] for name in ("q", "only", "sort") if request.args.get(name)}
    return render_template("overview.html", rows=_rows(), asked=asked, orders=ORDERS)


@pages.get("/overview.csv")
@overseers
def file() -> Response:
    """The same as CSV; no cell begins a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in _rows():
        cells = {**row, "warnings": "; ".join(row["warnings"])}
        values = (cells[column] for column in COLUMNS)
        writer.writerow(["" if value is None else harmless(str(value)) for value in values])
    return attachment("overview.csv", out.getvalue(), "text/csv")


def feed(token_id: str) -> str:
    """Return the address that opens the calendar, and no more, for as long as a token lasts."""
    return url_for("overview.calendar", feed=_signer().dumps(token_id), _external=True)


def _signer() -> URLSafeSerializer:
    return URLSafeSerializer(str(current_app.secret_key), salt="calendar")


def _reader(address: str) -> Actor:
    """Return whose token an address was made for; 401 if it no longer opens what one may read."""
    try:
        token_id = UUID(_signer().loads(address))
    except (BadSignature, ValueError, TypeError, AttributeError):
        abort(401)
    user = standing.current(lambda: credentials.user_of_token(engine(), token_id))
    if user is None or "read" not in user.scopes:
        abort(401)
    return credentials.actor_of(user)


@pages.get("/overview.ics")
def calendar() -> BaseResponse:
    """When the next request of each dataset expires, as iCalendar (RFC 5545); nobody is named.

    A calendar program has no session: it reads this by the address that `feed` makes of a token.
    """
    if "feed" in request.args:
        g.actor = _reader(request.args["feed"])
    elif not current_user.is_authenticated:
        return unauthorized()
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Exchequer//What expires//EN"]
    for row in _rows():
        if row["expires"] is None:
            continue
        name, expires = row["name"], datetime.fromisoformat(row["expires"])
        lines += [
            "BEGIN:VEVENT",
            f"UID:{name}@exchequer",
            f"DTSTAMP:{_moment(datetime.now(UTC))}",
            f"DTSTART:{_moment(expires)}",
            f"SUMMARY:{name}: a request expires",
            f"URL:{url_for('decisions.listing', _external=True)}",
            "END:VEVENT",
        ]
    folded = (re.sub(rf"(.{{{LINE_BYTES}}})(?=.)", "\\1\r\n ", line) for line in lines)
    text = "\r\n".join([*folded, "END:VCALENDAR", ""])
    return Response(text, mimetype="text/calendar")


def _moment(then: datetime) -> str:
    return then.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
