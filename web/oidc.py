"""Signing in at an OpenID Connect provider: authorization code with PKCE, state and nonce, through Authlib.

The provider says who somebody is (issuer and subject, nothing else: no name and no e-mail address links to
an account that is there) and which roles they have, anew at each sign-in.
"""

import hashlib
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import UUID

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.flask_client import OAuth
from flask import Flask, current_app, url_for
from joserfc.errors import JoseError
from werkzeug.wrappers import Response as BaseResponse

from accountant.identities import credentials, people, sign_ins
from accountant.settings import Settings
from web.auth import origin
from web.context import engine, settings

SECONDS = 10.0
LEEWAY = 60  # seconds that two clocks may be apart
#: What is signed: a provider that says nothing about it uses RS256 (OpenID Connect Discovery 1.0, section 3).
_ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
_TROUBLE = (requests.RequestException, AuthlibBaseError, RuntimeError, ValueError)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Refused(Exception):
    """A sign-in at the provider that came to nothing; the text is for the person who tried."""


def init_app(app: Flask) -> None:
    """Get to know the provider, where the settings name one. Raises RuntimeError for half a setting."""
    configured: Settings = app.extensions["exchequer"]["settings"]
    if configured.oidc_issuer is None:
        return
    issuer = configured.oidc_issuer.rstrip("/")
    _check(configured, issuer)
    client = OAuth(app)
    client.register(
        "provider",
        client_id=configured.oidc_client_id,
        client_secret=_secret(configured),
        server_metadata_url=f"{issuer}/.well-known/openid-configuration",
        client_kwargs={
            "scope": configured.oidc_scope,
            "code_challenge_method": "S256",
            "default_timeout": SECONDS,
        },
    )
    app.extensions["exchequer"]["provider"] = client.provider


def _check(configured: Settings, issuer: str) -> None:
    """Raise RuntimeError for invalid settings, at start rather than at the first sign-in."""
    address = urlsplit(issuer)
    if address.scheme != "https" and address.hostname not in _LOOPBACK:
        raise RuntimeError("EXCHEQUER_OIDC_ISSUER is not an https:// address")
    if not configured.oidc_client_id:
        raise RuntimeError("EXCHEQUER_OIDC_ISSUER is set, and EXCHEQUER_OIDC_CLIENT_ID is not")
    unknown = set(configured.oidc_roles.values()) - set(credentials.ROLES)
    if unknown or not configured.oidc_roles:
        allowed = ", ".join(credentials.ROLES)
        raise RuntimeError(
            f"EXCHEQUER_OIDC_ROLES maps to {sorted(unknown) or 'nothing'}; roles are {allowed}"
        )


def _secret(configured: Settings) -> str | None:
    if configured.oidc_client_secret_file is not None:
        return configured.oidc_client_secret_file.read_text().strip()
    secret = configured.oidc_client_secret
    return None if secret is None else secret.get_secret_value()


def name() -> str | None:
    """Return the provider's name on the sign-in page; None: there is no provider."""
    return settings().oidc_name if "provider" in current_app.extensions["exchequer"] else None


def begin() -> BaseResponse:
    """Send the browser to the provider. Raises Refused where it does not answer."""
    try:
        return _client().authorize_redirect(_return_address())
    except _TROUBLE as error:
        raise _unreachable(error) from None


def begin_again() -> BaseResponse:
    """Send the browser to the provider for a new sign-in, whoever is signed in there. Raises as `begin`."""
    asked = {"prompt": "login", "max_age": "0"}  # either is enough where a provider keeps to the standard
    if wanted := settings().oidc_acr:
        asked["acr_values"] = wanted
    try:
        return _client().authorize_redirect(_return_address(), **asked)
    except _TROUBLE as error:
        raise _unreachable(error) from None


def finish() -> tuple[Any, datetime | None]:
    """The user whom the provider sent back, and when they showed it who they are, if it says so.

    Raises Refused, and logs why.
    """
    claims = _claims()
    shown = None if _lacking(claims) else _shown(claims)
    return user_of(claims), shown


def finish_again(user_id: UUID, since: float) -> datetime:
    """When a user showed the provider again who they are: after `since` (seconds of the epoch).

    Raises Refused where somebody else came back, or the provider does not say what it was asked to.
    """
    claims = _claims()
    found = people.find_external(engine(), str(claims["iss"]), str(claims["sub"]))
    if found is None or found.id != user_id:
        raise Refused(f"{settings().oidc_name} sent somebody else back. Nothing was confirmed.")
    user_of(claims)  # roles are those of now, and the account is open
    shown = _shown(claims)
    lacking = _lacking(claims)
    if shown is not None and shown.timestamp() < since - LEEWAY:
        lacking = "that you signed in just now: auth_time is older"
    if lacking or shown is None:
        current_app.logger.warning("sign-in at the provider again: it did not say %s", lacking)
        raise Refused(f"{settings().oidc_name} did not say {lacking}. Nothing was confirmed.")
    return shown


def _shown(claims: Mapping[str, Any]) -> datetime | None:
    """When somebody typed or touched something at the provider (OpenID Connect Core 1.0, section 2)."""
    stated = claims.get("auth_time")
    if not isinstance(stated, int) or not 0 < stated < time.time() + LEEWAY:
        return None
    return datetime.fromtimestamp(stated, UTC)


def _lacking(claims: Mapping[str, Any]) -> str:
    """What the provider left out of what sensitive acts need; nothing: it is all there."""
    wanted = settings().oidc_acr
    if _shown(claims) is None:
        return "when you signed in there (auth_time)"
    if wanted is not None and claims.get("acr") not in wanted.split():
        return f"that you signed in as this service asks for (acr {wanted})"
    return ""


def _client() -> Any:
    return current_app.extensions["exchequer"]["provider"]


def _return_address() -> str:
    public = settings().public_url
    if public is None:
        return url_for("sign_in.provider_return", _external=True)
    return urljoin(public, url_for("sign_in.provider_return"))


def _claims() -> Mapping[str, Any]:
    """Return the id token's claims; checks state, code, PKCE, signature, issuer, audience, nonce, times."""
    client, issuer = _client(), str(settings().oidc_issuer)
    try:
        metadata = client.load_server_metadata()
        stated = str(metadata.get("issuer", ""))
        if stated.rstrip("/") != issuer.rstrip("/"):
            raise ValueError("the provider's discovery document is another issuer's")
        # A key that anybody knows signs nothing: never HS256 with a public key's text, never "none".
        offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        metadata["id_token_signing_alg_values_supported"] = [each for each in offered if each in _ALGORITHMS]
        token = client.authorize_access_token(
            claims_options={
                "iss": {"essential": True, "values": [stated]},
                "aud": {"essential": True, "values": [settings().oidc_client_id]},
            },
            leeway=LEEWAY,
        )
        claims: Mapping[str, Any] | None = token.get("userinfo")
        if claims is None:
            raise ValueError("no id token came, or no nonce went")
    except (
        AuthlibBaseError,
        JoseError,
        requests.RequestException,
        RuntimeError,
        ValueError,
        KeyError,
    ) as error:
        sign_ins.log_return(engine(), origin("provider"))
        raise _unreachable(error) from None
    return claims


def _unreachable(error: Exception) -> Refused:
    # Quoted: some of it comes from the address, and must not look like a line of its own.
    current_app.logger.warning("sign-in at the provider: %s: %r", type(error).__name__, str(error)[:300])
    return Refused(
        f"Signing in with {settings().oidc_name} did not work. Try again; if it goes on, tell an "
        "administrator: the log of this service says why."
    )


# --- who it is ----------------------------------------------------------------------------------


def user_of(claims: Mapping[str, Any]) -> Any:
    """The account of a person at the provider, made at the first sign-in, with the roles stated now."""
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    roles = roles_of(claims, settings())
    user = people.find_external(engine(), issuer, subject)
    if user is None and roles:
        user = people.add_external(engine(), issuer, subject, _names(claims, issuer, subject), roles)
        user = user or people.find_external(engine(), issuer, subject)
    known = "" if user is None else user.name
    user_id = None if user is None else user.id
    if not roles and leaves_groups_out(claims, settings().oidc_roles_claim):
        sign_ins.log(engine(), known, user_id, origin("provider"), "too many groups")
        raise _too_many_groups(known)
    if user is not None and not user.active:
        sign_ins.log(engine(), known, user_id, origin("provider"), "account closed")
        raise Refused("This account is closed. An administrator can open it again.")
    if user is not None:
        people.map_roles(engine(), user, issuer, roles)
    if user is None or not roles:
        sign_ins.log(engine(), known, user_id, origin("provider"), "no role")
        raise Refused(
            f"{settings().oidc_name} knows you but gives you no role here. Ask whoever manages its groups."
        )
    sign_ins.log(engine(), known, user_id, origin("provider"), "signed in")
    return credentials.find_user(engine(), user_id=user.id)


def leaves_groups_out(claims: Mapping[str, Any], claim: str) -> bool:
    """Whether the provider names another place for a claim, as Entra does for groups beyond 200.

    OpenID Connect Core 1.0, section 5.6.2; `hasgroups` is Entra's in answers that pass through the browser.
    """
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and claim.partition(".")[0] in elsewhere:
        return True
    return claim == "groups" and "groups" not in claims and claims.get("hasgroups") in (True, "true", "True")


def _too_many_groups(name: str) -> Refused:
    """Tell the administrator in the log, and return what the person is told."""
    claim = settings().oidc_roles_claim
    current_app.logger.warning(
        "sign-in at the provider: %r is in more groups than an id token holds (Entra: 200), so it came "
        "without the claim %r. No role was changed. At the provider, put only the groups that are assigned "
        "to this application into its tokens, or use application roles and EXCHEQUER_OIDC_ROLES_CLAIM=roles",
        name or "somebody new",
        claim,
    )
    return Refused(
        f"{settings().oidc_name} left your groups out, as you are in more of them than it sends (Entra: more "
        "than 200). Your roles here stay as they are, and you are not signed in. Ask an administrator: the "
        "log of this service says what to change at the provider."
    )


def roles_of(claims: Mapping[str, Any], configured: Settings) -> list[str]:
    """The roles that a claim's values are mapped to; a claim within a claim is named with a dot."""
    value: Any = claims.get(configured.oidc_roles_claim)
    if value is None:
        value = claims
        for part in configured.oidc_roles_claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    stated = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    mapped = configured.oidc_roles
    return sorted({mapped[each] for each in stated if isinstance(each, str) and each in mapped})


def _names(claims: Mapping[str, Any], issuer: str, subject: str) -> Iterator[str]:
    """Names for a new account: as the provider calls the person, else with a trace of who they are."""
    wished = claims.get("preferred_username")
    plain = unicodedata.normalize("NFKD", wished if isinstance(wished, str) else "").lower()
    plain = re.sub(r"[^a-z0-9._-]+", "-", plain.partition("@")[0]).strip("._-")[:50]
    trace = hashlib.sha256(f"{issuer}\n{subject}".encode()).hexdigest()[:8]
    if plain:
        yield plain
    yield f"{plain or 'person'}-{trace}"
