"""moto's server, which creates one object at a time, as stores do: moto looks, and then writes.

Where the file that EXCHEQUER_TEST_AWAY names is there, it answers 503.
"""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto import server
from moto.s3.responses import S3Response

_lock, _put_object = threading.Lock(), S3Response.put_object
_answer = server.DomainDispatcherApplication.__call__


def _put_alone(response: Any) -> Any:
    with _lock:
        return _put_object(response)


def _answer_or_503(app: Any, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    if os.path.exists(os.environ["EXCHEQUER_TEST_AWAY"]):
        start("503 Service Unavailable", [("Content-Length", "0")])
        return []
    return _answer(app, environ, start)


if __name__ == "__main__":
    S3Response.put_object = _put_alone
    server.DomainDispatcherApplication.__call__ = _answer_or_503
    server.main()
