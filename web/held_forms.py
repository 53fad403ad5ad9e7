"""A form that came after its session had ended: the page of the sign-in carries it, sealed, and
its own person sends it again.

The page may be read by whoever sits before the browser next, so the form is encrypted, and opens
for the account alone whose session sent it. Somebody else may also have typed it in that person's
browser, so all of it is shown before it is sent. Nothing is kept on the server or put into an
address. Through a sign-in at a provider, which is on other pages, a cookie carries it.
"""

import json
import re
import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Any

from cryptography.exceptions import InvalidTag
from flask import Response, current_app, render_template, request, session, url_for
from flask_login import current_user

from accountant.sealing import key_for, seal, unseal
from web.context import here

#: The person whose session it was, in the signed cookie, which outlives the session.
PERSON = "person"
FIELD = "held"
MOST_BYTES = 2**18
MOST_SECONDS = 3600
#: Browsers keep 4,096 bytes of a cookie, its name and its attributes among them.
MOST_COOKIE = 3_800
#: Fields that are typed anew, or made for one page.
_NEVER = re.compile("password|passkey|csrf_token|^held$")


def sealed() -> str:
    """Return the form that came, sealed; empty if there is none, or nobody's session sent it."""
    person = session.get(PERSON)
    if person is None or request.method != "POST" or not request.form:
        return ""
    fields = {name: texts for name, texts in request.form.lists() if not _NEVER.search(name)}
    held = {"path": here(), "fields": fields, "at": int(time.time()), "files": bool(request.files)}
    plain = json.dumps(held).encode()
    if len(plain) > MOST_BYTES:
        return ""
    return urlsafe_b64encode(seal(_key(), str(person).encode(), zlib.compress(plain))).decode()


def through_provider(answer: Response, held: str) -> Response:
    """Let a cookie carry a sealed form to the page that a provider sends its person back to."""
    answer.set_cookie(
        _cookie(),
        held,
        max_age=MOST_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure,
        path=url_for("sign_in.provider_return"),
    )
    return answer


def _cookie() -> str:
    return f"{current_app.config['SESSION_COOKIE_NAME']}_{FIELD}"


def _key() -> bytes:
    return key_for("held forms", current_app.config["SECRET_KEY"])


def page() -> Response | None:
    """Return the page that sends the held form again, for the one who sent it; None without one."""
    held = _opened(request.form.get(FIELD) or request.cookies.get(_cookie(), ""))
    if held is None:
        return None
    words = "You are signed in again, and what you had typed is kept. Read it: nothing is sent yet."
    if held["files"]:
        words += " A file has to be chosen again."
    answer = Response(
        render_template(
            "passkey.html",
            title="Go on where you were",
            words=words,
            action=held["path"],
            back=url_for("datasets.catalogue"),
            values=held["fields"],
            asked=None,
            again=True,
        )
    )
    answer.delete_cookie(_cookie(), path=url_for("sign_in.provider_return"))
    return answer


def _opened(text: str) -> dict[str, Any] | None:
    try:
        person = str(current_user.actor.id).encode()
        packed = unseal(_key(), person, urlsafe_b64decode(text))
    except (NotBase64, InvalidTag, ValueError):
        return None
    held: dict[str, Any] = json.loads(zlib.decompress(packed))
    return held if time.time() - held["at"] < MOST_SECONDS else None
