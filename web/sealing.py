"""Sealed tokens of the provider: a copy of the database alone is worth nothing at the provider."""

import secrets
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from web.context import settings

_NONCE_BYTES = 12


def seal(user_id: UUID, token: str) -> bytes:
    """Return a token of a person, encrypted under the web's key."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher().encrypt(nonce, token.encode(), user_id.bytes)


def unseal(user_id: UUID, sealed: bytes) -> str | None:
    """Return the token, or None if it was sealed under another key or for another person."""
    try:
        return (
            _cipher().decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], user_id.bytes).decode()
        )
    except InvalidTag:
        return None


def _cipher() -> AESGCM:
    return AESGCM(
        HKDF(SHA256(), 32, salt=None, info=b"tokens of the provider").derive(
            settings().secret("session")
        )
    )
