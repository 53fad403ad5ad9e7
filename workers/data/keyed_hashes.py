"""Hashes under a secret key, and the public choices that follow from them."""

import hashlib
import hmac


def pick(hashed: bytes, many: int) -> int:
    """Return an index below `many`, uniform in the first 64 bits of a hash."""
    return int.from_bytes(hashed[:8], "big") * many >> 64


def keyed_hash(key: bytes, *parts: str) -> bytes:
    """Return HMAC-SHA-256 over the parts with their lengths: no two lists collide."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        mac.update(len(data).to_bytes(8, "big") + data)
    return mac.digest()
