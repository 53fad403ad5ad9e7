"""Authenticated encryption (AES-256-GCM): what is sealed opens under its key, and in its place."""

import secrets

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES = 12


def key_for(purpose: str, secret: bytes) -> bytes:
    """Return the key that a secret gives for one purpose."""
    return HKDF(SHA256(), 32, salt=None, info=purpose.encode()).derive(secret)


def seal(key: bytes, place: bytes, content: bytes) -> bytes:
    """Return content sealed for a place, with its random nonce before it."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, content, place)


def unseal(key: bytes, place: bytes, sealed: bytes) -> bytes:
    """Return what was sealed for a place. Raises InvalidTag, or ValueError where it is cut off."""
    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
