"""Idempotency keys: a request that makes something and is sent twice makes one thing.

    key = read_once(body)      # None without the header
    models.add_model(..., once=key)

The key belongs to the person. The same key with the same method, address and body answers with what
was made, as it is now; with another it is a 409. A request that was refused made nothing and leaves
its key free.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from flask import request
from pydantic import BaseModel

from accountant.core.errors import invalid
from accountant.core.ledger.hash_chain import canonical
from accountant.transactions.idempotency import Once
from web.auth import current_actor

_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def read_key() -> str | None:
    """Return the Idempotency-Key of the request. Raises InvalidRequest for one that is none."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise invalid("Idempotency-Key", "is no key", "1 to 200 visible ASCII characters")
    return key


def read_once(body: BaseModel | Mapping[str, Any]) -> Once | None:
    """Return the key of the request, with what it stands for."""
    key = read_key()
    if key is None:
        return None
    document = body.model_dump(mode="json") if isinstance(body, BaseModel) else dict(body)
    request_bytes = f"{request.method} {request.path}\n".encode() + canonical(document)
    return Once(current_actor().id, key, hashlib.sha256(request_bytes).hexdigest())
