"""Standing of people from the provider: their sessions and tokens work while it goes on confirming
them.

half of oidc_check_minutes after the last confirmation ──▶ the refresh token asks the provider again
it confirms ──▶ roles are those of now       it refuses ──▶ sessions end, tokens rest until a new
                                             sign-in
no answer, or no refresh token ──▶ both rest after oidc_check_minutes
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from authlib.integrations.base_client import OAuthError
from flask import current_app, g, has_request_context

from accountant.identities import external_accounts, people, sign_ins
from web import oidc
from web.context import engine, origin, settings
from web.sealing import seal, unseal

#: A provider that does not answer is left alone for so long.
_AWAY_SECONDS = 15.0
#: A provider's answer that another process waits for is waited for here too.
_WAIT_SECONDS = oidc.SECONDS + 2
#: What ends a person's standing (RFC 6749, section 5.2; OpenID Connect Core 1.0, section 3.1.2.6).
_REFUSALS = (
    "invalid_grant",
    "access_denied",
    "login_required",
    "interaction_required",
    "consent_required",
)


def limit() -> timedelta:
    """Return for how long the provider's word on a person is good."""
    return timedelta(minutes=settings().oidc_check_minutes)


def current(read: Callable[[], Any | None]) -> Any | None:
    """Return the user that `read` finds, or None if their provider has not confirmed them of late.

    Asks the provider if need be, and reads again: roles may have changed, and a session may have
    ended.
    """
    user = read()
    if user is None or user.provider is None:
        return user
    if user.provider_age is not None and user.provider_age < limit() / 2:
        return user
    return read() if _holds(user) else None


def _holds(user: Any) -> bool:
    still = user.provider_age is not None and user.provider_age < limit()
    if not _may_ask(user):
        return still
    account = external_accounts.ask(engine(), user.id)
    if account is None:
        return still or _told(user)
    answer = _ask(user, account)
    return still if answer is None else answer


def _may_ask(user: Any) -> bool:
    """Return True if the provider of a user can be asked within this request."""
    extension = current_app.extensions["exchequer"]
    away = time.monotonic() < extension.get("provider_away", 0.0)
    hasty = has_request_context() and g.get("asks_no_provider", False)
    same = user.provider.rstrip("/") == str(settings().oidc_issuer).rstrip("/")
    return "provider" in extension and same and not away and not hasty


def _told(user: Any) -> bool:
    """Wait for the answer that another process gets. Returns False if none comes."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        state = external_accounts.state(engine(), user.id)
        if state is None or (state.age is not None and state.age < limit() / 2):
            return state is not None
        if not state.asked:
            return False
        time.sleep(0.1)
    return False


def _ask(user: Any, account: Any) -> bool | None:
    """Return whether the provider confirms a person; None where it does not say."""
    refresh_token = unseal(user.id, account.refresh_token)
    if refresh_token is None:  # the key of this service was changed: a new sign-in brings another
        external_accounts.answered(engine(), user.id)
        return None
    try:
        claims, renewed = oidc.renew(refresh_token, account.subject)
    except oidc.TROUBLE as error:
        return _unconfirmed(user, error)
    if renewed != refresh_token:  # first of all: the old one may be used up
        external_accounts.keep_token(engine(), user.id, seal(user.id, renewed))
    if claims is not None:
        roles = oidc.roles_of(claims, settings())
        if roles or not oidc.leaves_groups_out(claims, settings().oidc_roles_claim):
            people.map_roles(engine(), user, account.issuer, roles)
    external_accounts.confirm(engine(), user.id)
    return True


def _unconfirmed(user: Any, error: Exception) -> bool | None:
    # Quoted: some of it is the provider's text, and must not look like a line of its own.
    current_app.logger.warning(
        "the provider, about %s: %s: %r", user.name, type(error).__name__, str(error)[:300]
    )
    if isinstance(error, OAuthError) and error.error in _REFUSALS:
        external_accounts.disown(engine(), user.id)
        sign_ins.log(engine(), user.name, user.id, origin("provider"), "provider refused")
        return False
    external_accounts.answered(engine(), user.id)
    current_app.extensions["exchequer"]["provider_away"] = time.monotonic() + _AWAY_SECONDS
    return None
