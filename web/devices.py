"""The cookie of a browser in which somebody has signed in by password (OWASP: device cookies).

It proves nothing but that: whose it is and which browser it is, signed with the key of sessions.
Failures of a browser with it are counted for themselves, so that no stranger's failures keep its
owner out.
"""

import hashlib
import secrets

from flask import current_app, request
from itsdangerous import BadSignature, URLSafeTimedSerializer
from werkzeug.wrappers import Response as BaseResponse

SECONDS = 180 * 24 * 3600


def of(name: str) -> str | None:
    """Return the device of this request if its cookie is of somebody of this name, else None."""
    try:
        whose, device = _signer().loads(request.cookies.get(_cookie(), ""), max_age=SECONDS)
    except (BadSignature, ValueError, TypeError):
        return None
    return device if whose == _trace(name) and isinstance(device, str) else None


def remember(response: BaseResponse, name: str) -> BaseResponse:
    """Give the browser the cookie of somebody who has just signed in there by password."""
    device = of(name) or secrets.token_hex(16)
    response.set_cookie(
        _cookie(),
        _signer().dumps([_trace(name), device]),
        max_age=SECONDS,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure,
        path=request.script_root or "/",
    )
    return response


def _cookie() -> str:
    return f"{current_app.config['SESSION_COOKIE_NAME']}_device"


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(str(current_app.secret_key), salt="device")


def _trace(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
