"""Signing in at an OpenID Connect provider: authorization code with PKCE, state and nonce, through
Authlib.

The provider says who somebody is (issuer and subject, nothing else: no name and no e-mail address
links to an account that is there) and which roles they have, anew at each sign-in and whenever it
is asked again.

    begin ──▶ the provider ──▶ finish: its answer, the code for an id token, claims that stand at
      userinfo
    standing.py asks again with the refresh token; provider_logout.py signs out
"""

import hashlib
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import UUID

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.flask_client import OAuth
from flask import Flask, current_app, request, session, url_for
from joserfc.errors import JoseError
from werkzeug.wrappers import Response as BaseResponse

from accountant.identities import credentials, external_accounts, people, sign_ins
from accountant.identities.sessions import Proof
from accountant.settings import Settings
from web.context import engine, origin, settings
from web.sealing import seal

SECONDS = 10.0
LEEWAY = 120  # seconds that two clocks may be apart
#: What is signed: a provider that says nothing about it uses RS256 (OpenID Connect Discovery 1.0,
#: section 3).
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
TROUBLE = (
    AuthlibBaseError,
    JoseError,
    requests.RequestException,
    RuntimeError,
    ValueError,
    KeyError,
)
_LEFT = "left"  # in the session: when the browser went to the provider
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Refused(Exception):
    """A sign-in at the provider that came to nothing; the text is for the person who tried."""


def init_app(app: Flask) -> None:
    """Set up the provider if the settings name one. Raises RuntimeError for half a setting."""
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
    return _sent({} if settings().oidc_prompt is None else {"prompt": settings().oidc_prompt})


def _sent(asked: Mapping[str, str | None]) -> BaseResponse:
    session[_LEFT] = time.time()
    try:
        return client().authorize_redirect(public_address("sign_in.provider_return"), **asked)
    except TROUBLE as error:
        raise _unreachable(error) from None


def begin_again() -> BaseResponse:
    """Send the browser to the provider for a new sign-in of anybody. Raises as `begin`."""
    # either is enough where a provider keeps to the standard
    parameters = {"prompt": "login", "max_age": "0"}
    if wanted := settings().oidc_acr:
        parameters["acr_values"] = wanted
    return _sent(parameters)


def finish() -> tuple[Any, Proof]:
    """Return the user whom the provider sent back, and its part in the session.

    Raises Refused, and logs why.
    """
    answer = _answer()
    claims = answer.claims
    user = user_of(claims)
    _stands(user, answer)
    shown = None if _lacking(claims) else _shown(claims)
    sid = claims.get("sid")
    return user, Proof(shown, sid if isinstance(sid, str) else None, seal(user.id, answer.id_token))


def _stands(user: Any, answer: "Answer") -> None:
    token = answer.refresh_token
    external_accounts.confirm(engine(), user.id, None if token is None else seal(user.id, token))


def finish_again(user_id: UUID, since: float) -> datetime:
    """When a user showed the provider again who they are: after `since` (seconds of the epoch).

    Raises Refused where somebody else came back, or the provider does not say what it was asked to.
    """
    answer = _answer()
    claims = answer.claims
    user = people.find_external(engine(), str(claims["iss"]), str(claims["sub"]))
    if user is None or user.id != user_id:
        raise Refused(f"{settings().oidc_name} sent somebody else back. Nothing was confirmed.")
    _stands(user_of(claims), answer)  # roles are those of now, and the account is open
    shown = _shown(claims)
    lacking = _lacking(claims)
    if shown is not None and shown.timestamp() < since - LEEWAY:
        lacking = "that you signed in just now: auth_time is older"
    if lacking or shown is None:
        current_app.logger.warning("sign-in at the provider again: it did not say %s", lacking)
        raise Refused(f"{settings().oidc_name} did not say {lacking}. Nothing was confirmed.")
    return shown


def _shown(claims: Mapping[str, Any]) -> datetime | None:
    """Return when somebody acted at the provider (OpenID Connect Core 1.0, section 2)."""
    stated = claims.get("auth_time")
    if not isinstance(stated, int) or not 0 < stated < time.time() + LEEWAY:
        return None
    return datetime.fromtimestamp(stated, UTC)


def _lacking(claims: Mapping[str, Any]) -> str:
    """Return what the provider left out of what sensitive acts need; nothing: it is all there."""
    wanted = settings().oidc_acr
    if _shown(claims) is None:
        return "when you signed in there (auth_time)"
    if wanted is not None and claims.get("acr") not in wanted.split():
        return f"that you signed in as this service asks for (acr {wanted})"
    return ""


def client() -> Any:
    """Return Authlib's client of the provider."""
    return current_app.extensions["exchequer"]["provider"]


def public_address(endpoint: str) -> str:
    """Return the address of a page as people's browsers see it."""
    public = settings().public_url
    return (
        url_for(endpoint, _external=True) if public is None else urljoin(public, url_for(endpoint))
    )


# --- the provider's answers -----------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The claims on a person, and the tokens that came with them."""

    claims: Mapping[str, Any]
    id_token: str
    refresh_token: str | None


def load_metadata() -> Mapping[str, Any]:
    """Return the provider's discovery document, with the algorithms that may sign.

    Raises ValueError for a document of another issuer.
    """
    metadata: dict[str, Any] = client().load_server_metadata()
    stated = str(metadata.get("issuer", ""))
    if stated.rstrip("/") != str(settings().oidc_issuer).rstrip("/"):
        raise ValueError("the provider's discovery document is another issuer's")
    # A key that anybody knows signs nothing: never HS256 with a public key's text, never "none".
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    metadata["id_token_signing_alg_values_supported"] = [
        algorithm for algorithm in offered if algorithm in _ALGORITHMS
    ]
    return metadata


def _answer() -> Answer:
    """Return what the provider answered; checks its issuer, state, code, PKCE, and the id token."""
    left = session.pop(_LEFT, 0.0)
    try:
        metadata = load_metadata()
        _check_sender(metadata)
        token = client().authorize_access_token(claims_options=_options(metadata), leeway=LEEWAY)
        claims: Mapping[str, Any] | None = token.get("userinfo")
        if claims is None:
            raise ValueError("no id token came, or no nonce went")
        if claims["iat"] < left - LEEWAY:
            raise ValueError("the id token is older than this sign-in (iat): do the clocks agree?")
        return Answer(_completed(claims, token), token["id_token"], token.get("refresh_token"))
    except TROUBLE as error:
        sign_ins.log_return(engine(), origin("provider"))
        raise _unreachable(error) from None


def _check_sender(metadata: Mapping[str, Any]) -> None:
    """Raise ValueError for another issuer's answer (RFC 9207: mix-ups leak codes)."""
    senders = request.args.getlist("iss")
    promised = metadata.get("authorization_response_iss_parameter_supported") is True
    if senders != [metadata["issuer"]] and (senders or promised):
        raise ValueError(f"the answer is not the provider's: iss is {senders}")


def _options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "iss": {"essential": True, "values": [metadata["issuer"]]},
        "aud": {"essential": True, "values": [settings().oidc_client_id]},
    }


def _completed(claims: Mapping[str, Any], token: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an id token's claims, with userinfo's if only that has the roles' claim."""
    if _roles_claim(claims, settings()) is not None or "access_token" not in token:
        return claims
    address = client().load_server_metadata().get("userinfo_endpoint")
    if address is None:
        return claims
    bearer = {name: value for name, value in token.items() if name != "refresh_token"}
    response = client().get(address, token=bearer)
    response.raise_for_status()
    more = response.json()
    if not isinstance(more, dict) or more.get("sub") != claims["sub"]:
        raise ValueError("userinfo is somebody else's")
    return {**more, **claims}


def renew(refresh_token: str, subject: str) -> tuple[Mapping[str, Any] | None, str]:
    """Ask the provider about a person again.

    Returns their claims, if it states any, and the refresh token to ask with next time.

    Raises OAuthError where the provider refuses, and others of TROUBLE where it does not answer
    rightly.
    """
    metadata = load_metadata()
    # as granted
    body = {"grant_type": "refresh_token", "refresh_token": refresh_token, "scope": None}
    token = client().fetch_access_token(**body)
    claims: Mapping[str, Any] | None = {"iss": metadata["issuer"], "sub": subject}
    if "id_token" in token:
        claims = client().parse_id_token(token, None, _options(metadata), leeway=LEEWAY)
        if claims["sub"] != subject:
            raise ValueError("the id token is somebody else's")
    elif "userinfo_endpoint" not in metadata:
        claims = None
    return None if claims is None else _completed(claims, token), token.get(
        "refresh_token"
    ) or refresh_token


def _unreachable(error: Exception) -> Refused:
    # Quoted: some of it comes from the address, and must not look like a line of its own.
    current_app.logger.warning(
        "sign-in at the provider: %s: %r", type(error).__name__, str(error)[:300]
    )
    return Refused(
        f"Signing in with {settings().oidc_name} did not work. Try again; if it goes on, tell an "
        "administrator: the log of this service says why."
    )


# --- who it is ----------------------------------------------------------------------------------


def user_of(claims: Mapping[str, Any]) -> Any:
    """Return the account of a provider's person, made at need, with the roles stated now."""
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    roles = roles_of(claims, settings())
    user = people.find_external(engine(), issuer, subject)
    if user is None and roles:
        user = people.add_external(
            engine(), issuer, subject, _names(claims, issuer, subject), roles
        )
        user = user or people.find_external(engine(), issuer, subject)
    name = "" if user is None else user.name
    user_id = None if user is None else user.id
    if not roles and leaves_groups_out(claims, settings().oidc_roles_claim):
        sign_ins.log(engine(), name, user_id, origin("provider"), "too many groups")
        raise _too_many_groups(name)
    if user is not None and not user.active:
        sign_ins.log(engine(), name, user_id, origin("provider"), "account closed")
        raise Refused("This account is closed. An administrator can open it again.")
    if user is not None:
        people.map_roles(engine(), user, issuer, roles)
    if user is None or not roles:
        sign_ins.log(engine(), name, user_id, origin("provider"), "no role")
        raise Refused(
            f"{settings().oidc_name} knows you but gives you no role here. Ask whoever manages its "
            "groups."
        )
    sign_ins.log(engine(), name, user_id, origin("provider"), "signed in")
    return credentials.find_user(engine(), user_id=user.id)


def leaves_groups_out(claims: Mapping[str, Any], claim: str) -> bool:
    """Return whether the provider names another place for a claim, as Entra does for groups beyond
    200.

    OpenID Connect Core 1.0, section 5.6.2; `hasgroups` is Entra's in answers that pass through the
    browser.
    """
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and claim.partition(".")[0] in elsewhere:
        return True
    return (
        claim == "groups"
        and "groups" not in claims
        and claims.get("hasgroups") in (True, "true", "True")
    )


def _too_many_groups(name: str) -> Refused:
    """Tell the administrator in the log, and return what the person is told."""
    claim = settings().oidc_roles_claim
    current_app.logger.warning(
        "sign-in at the provider: %r is in more groups than an id token holds (Entra: 200), so it "
        "came without the claim %r. No role was changed. At the provider, put only the groups that "
        "are assigned to this application into its tokens, or use application roles and "
        "EXCHEQUER_OIDC_ROLES_CLAIM=roles",
        name or "somebody new",
        claim,
    )
    return Refused(
        f"{settings().oidc_name} left your groups out, as you are in more of them than it sends "
        "(Entra: more than 200). Your roles here stay as they are, and you are not signed in. Ask "
        "an administrator: the log of this service says what to change at the provider."
    )


def roles_of(claims: Mapping[str, Any], configured: Settings) -> list[str]:
    """Return the roles that a claim's values map to; dots name claims within claims."""
    value = _roles_claim(claims, configured)
    stated = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    mapped = configured.oidc_roles
    return sorted({mapped[group] for group in stated if isinstance(group, str) and group in mapped})


def _roles_claim(claims: Mapping[str, Any], configured: Settings) -> Any:
    value: Any = claims.get(configured.oidc_roles_claim)
    if value is None:
        value = claims
        for part in configured.oidc_roles_claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _names(claims: Mapping[str, Any], issuer: str, subject: str) -> Iterator[str]:
    """Yield names for a new account: the provider's, then ones with a trace of the person."""
    wished = claims.get("preferred_username")
    plain = unicodedata.normalize("NFKD", wished if isinstance(wished, str) else "").lower()
    plain = re.sub(r"[^a-z0-9._-]+", "-", plain.partition("@")[0]).strip("._-")[:50]
    trace = hashlib.sha256(f"{issuer}\n{subject}".encode()).hexdigest()[:8]
    if plain:
        yield plain
    yield f"{plain or 'person'}-{trace}"
