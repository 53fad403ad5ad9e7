"""Sealed tokens of the provider: a copy of the database alone is worth nothing at the provider."""

from uuid import UUID

from cryptography.exceptions import InvalidTag

from accountant import sealing
from web.context import settings


def seal(user_id: UUID, token: str) -> bytes:
    """Return a token of a person, encrypted under the web's key."""
    return sealing.seal(_key(), user_id.bytes, token.encode())


def unseal(user_id: UUID, sealed: bytes) -> str | None:
    """Return the token, or None if it was sealed under another key or for another person."""
    try:
        return sealing.unseal(_key(), user_id.bytes, sealed).decode()
    except InvalidTag:
        return None


def _key() -> bytes:
    return sealing.key_for("tokens of the provider", settings().secret("session"))
