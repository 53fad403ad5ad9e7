"""Signing out at the provider: on the way out of this service, and when the provider says that
somebody left.

OpenID Connect RP-Initiated Logout 1.0, and Back-Channel Logout 1.0.
"""

import secrets
import time
from typing import Any

from flask import current_app
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from accountant.identities import external_accounts, sessions
from accountant.identities.external_accounts import Logout
from web import oidc
from web.context import engine, settings
from web.sealing import unseal

_EVENT = "http://schemas.openid.net/event/backchannel-logout"
#: How long after its making a logout token arrives, when both clocks agree (section 4 of the
#: standard).
_LIFETIME = 120
#: Servers take addresses of 8 KiB; an id token with hundreds of groups is longer.
_LONGEST_HINT = 6000
#: The provider's keys are fetched anew for an unknown one at most this often: anybody may send a
#: token.
_KEYS_EVERY_SECONDS = 60.0


def address(user: Any) -> tuple[str, str] | None:
    """Return where the provider ends a user's session there, and the state that it sends back.

    None if the session did not come from it, or it has no such page. Call this before the session
    ends.
    """
    if oidc.name() is None or user.session_id is None:
        return None
    sealed = sessions.id_token(engine(), user.session_id)
    if sealed is None:
        return None
    hint = unseal(user.actor.id, sealed) or ""
    try:
        if "end_session_endpoint" not in oidc.load_metadata():
            return None
        url = oidc.client().create_logout_url(
            oidc.public_address("sign_in.provider_left"),
            hint if len(hint) <= _LONGEST_HINT else None,
            state=secrets.token_urlsafe(20),
            client_id=settings().oidc_client_id,
        )
    except oidc.TROUBLE as error:
        current_app.logger.warning(
            "signing out at the provider: %s: %r", type(error).__name__, str(error)[:300]
        )
        return None
    return url["url"], url["state"]


# --- back-channel logout --------------------------------------------------------------------------


def take(token: str) -> None:
    """End the sessions that a logout token names. Raises one of oidc.TROUBLE for a false one."""
    logout = _read(token)
    if not external_accounts.log_out(engine(), logout):
        raise ValueError("the logout token was taken before (jti)")


def _read(token: str) -> Logout:
    """Return what a logout token states, checked as section 2.6 says."""
    metadata = oidc.load_metadata()
    registry = JWSRegistry(
        algorithms=metadata["id_token_signing_alg_values_supported"], strict_check_header=False
    )
    try:
        read = jwt.decode(token, _keys(), registry=registry)
    except InvalidKeyIdError:
        read = jwt.decode(token, _keys(anew=True), registry=registry)
    claims = read.claims
    required: Any = {name: {"essential": True} for name in ("iat", "jti", "events")}
    required["iss"] = {"essential": True, "value": metadata["issuer"]}
    required["aud"] = {"essential": True, "value": settings().oidc_client_id}
    jwt.JWTClaimsRegistry(leeway=oidc.LEEWAY, **required).validate(claims)
    events, subject, session = claims["events"], claims.get("sub"), claims.get("sid")
    if not isinstance(events, dict) or not isinstance(events.get(_EVENT), dict):
        raise ValueError("it is no logout token (events)")
    if "nonce" in claims:
        raise ValueError("a logout token has no nonce: this may be an id token")
    if claims["iat"] < time.time() - _LIFETIME - oidc.LEEWAY:
        raise ValueError("the logout token is too old (iat)")
    if not all(claim is None or isinstance(claim, str) for claim in (subject, session)):
        raise ValueError("sub and sid are texts")
    if not (subject or session):
        raise ValueError("the logout token names nobody (sub, sid)")
    return Logout(metadata["issuer"], claims["jti"], subject or None, session or None)


def _keys(anew: bool = False) -> KeySet:
    extension = current_app.extensions["exchequer"]
    if anew:
        if time.monotonic() < extension.get("keys_fetched", 0.0) + _KEYS_EVERY_SECONDS:
            raise ValueError("the logout token is signed by an unknown key")
        extension["keys_fetched"] = time.monotonic()
    return KeySet.import_key_set(oidc.client().fetch_jwk_set(force=anew))
