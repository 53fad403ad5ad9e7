"""moto's server, which creates one object at a time, as stores do: moto looks, and then writes.

Where the file that EXCHEQUER_TEST_AWAY names is there, it answers 503. Where that holds a path, it
has no room below that path, and the rest goes on.
"""

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto import server
from moto.s3.responses import S3Response

_lock, _put_object = threading.Lock(), S3Response.put_object
_FULL = b"<Error><Code>InsufficientStorage</Code></Error>"
_answer = server.DomainDispatcherApplication.__call__


def _put_alone(response: Any) -> Any:
    with _lock:
        return _put_object(response)


def _answer_or_refuse(
    app: Any, environ: dict[str, Any], start: Callable[..., Any]
) -> Iterable[bytes]:
    away = Path(os.environ["EXCHEQUER_TEST_AWAY"])
    full = away.read_text() if away.exists() else None
    if full == "":
        start("503 Service Unavailable", [("Content-Length", "0")])
        return []
    if (
        full
        and environ["REQUEST_METHOD"] in ("PUT", "POST")
        and environ["PATH_INFO"].startswith(full)
    ):
        start("507 Insufficient Storage", [("Content-Length", str(len(_FULL)))])
        return [_FULL]
    return _answer(app, environ, start)


if __name__ == "__main__":
    S3Response.put_object = _put_alone
    server.DomainDispatcherApplication.__call__ = _answer_or_refuse
    server.main()
