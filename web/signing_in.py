"""People who sign in to a command straight on the database, while no page answers."""

from datetime import UTC, datetime
from typing import Any

from accountant.core.errors import NotPermitted
from accountant.identities import credentials, passkeys
from accountant.identities.actor import Actor
from web.passwords import nobodys_hash, verify_password

_SCOPE = "budget:approve"


def actor(engine: Any, name: str, secret: str) -> Actor:
    """Return the person with this password or API token. Raises NotPermitted.

    A password that opens nothing without a passkey does not sign in here: a token does.
    """
    name = name.strip().lower()
    by_token = credentials.user_of_token(engine, secret)
    if by_token is not None:
        if by_token.name != name or _SCOPE not in by_token.scopes:
            raise NotPermitted(f"this token is not of {name!r}, or lacks the scope {_SCOPE}")
        return credentials.actor_of(by_token)
    user = credentials.find_user(engine, name=name)
    stored = None if user is None else user.password_hash
    matches = verify_password(stored or nobodys_hash(), secret)
    if user is None or stored is None or not matches:
        raise NotPermitted("the name, or the password or token, is wrong")
    if user.password_expires is not None and user.password_expires <= datetime.now(UTC):
        raise NotPermitted("this password has expired")
    if passkeys.of(engine, user.id):
        raise NotPermitted(f"{name} signs in with a passkey: give an API token instead")
    return credentials.actor_of(user)
