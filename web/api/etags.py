"""Conditional requests: every JSON answer to GET names its bytes, and changes can say what they
change.

The ETag is strong: from the SHA-256 of the body. An asker who sends it back as If-None-Match hears
304 while nothing has changed; a change that sends If-Match is refused with 412 where somebody else
was faster. Proxies that compress mark the tag: nginx makes it weak, Apache and Caddy add the
coding. The content is the same, so a tag that comes back so marked is the tag that went out.
"""

import hashlib
import re
from collections.abc import Callable

from flask import Response, request
from werkzeug.exceptions import PreconditionFailed
from werkzeug.http import parse_etags

#: What mod_deflate, mod_brotli, Caddy and Jetty add to a tag.
_CODING = re.compile(r"--?(gzip|br|zstd|deflate)(?=[\",]|$)")


def etag(body: bytes) -> str:
    """Return the strong ETag of a body, without its quotes."""
    return hashlib.sha256(body).hexdigest()[:40]


def add_etag(response: Response) -> Response:
    """Add the ETag of an answer to GET, or answer 304 if the asker has its bytes."""
    if request.method not in ("GET", "HEAD") or response.status_code != 200:
        return response
    # What one person may see another may not: no cache gives it on, and none keeps it unasked.
    response.headers["Cache-Control"] = "private, no-cache"
    response.vary.add("Authorization")
    if response.get_etag()[0] is None and not response.is_streamed:
        response.set_etag(etag(response.get_data()))
    if response.get_etag()[0] is not None:
        seen = _CODING.sub("", request.headers.get("If-None-Match", ""))
        response.make_conditional(request.environ | {"HTTP_IF_NONE_MATCH": seen})
    return response


def matcher() -> Callable[[bytes], None] | None:
    """Return a check of the present body against the request's If-Match; None: the request has
    none.

    The check raises PreconditionFailed (412). It must run under the lock under which the change is
    made.
    """
    wanted = parse_etags(_CODING.sub("", request.headers.get("If-Match", "")))
    if not wanted:
        return None

    def check(body: bytes) -> None:
        if not wanted.contains_weak(etag(body)):
            raise PreconditionFailed(
                "somebody has changed it since you read it: read it again, and decide on what it "
                "is now"
            )

    return check
