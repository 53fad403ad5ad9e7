"""Requests and answers: what is repeated, how long, and how an answer becomes a value or an error.

A request is repeated while the server is away or busy, and only where that can't act twice: a read,
or one that carries an idempotency key. Where no connection was made nothing was sent, and anything
may be sent again. `Retry-After` is honoured; a server that asks for more than a minute is not
waited for.
"""

import ipaddress
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

import httpx2
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from web.client.errors import ApiProblem, Json, Unreachable, Unreadable, retry_after

ATTEMPTS = 5
_LONGEST_PAUSE_SECONDS = 2.0
_LONGEST_REQUESTED_PAUSE_SECONDS = 60.0
_AWAY = (429, 502, 503, 504)
_backoff = wait_random_exponential(multiplier=0.2, max=_LONGEST_PAUSE_SECONDS)


PAGE = 200  # rows of a page: the most that the service answers with


class Writable(Protocol):
    """The target of a download, such as a binary file."""

    def write(self, block: bytes, /) -> object: ...


class Transport:
    """Talks to one server as one person. Close it, or use it in a `with` statement.

    Proxies of the environment (HTTPS_PROXY, NO_PROXY) serve, except to this machine; redirects are
    not followed, so a token never travels to another server.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        attempts: int = ATTEMPTS,
    ):
        self.url = url.rstrip("/")
        self.attempts = attempts
        headers = {"Accept": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        try:
            self._http = httpx2.Client(
                base_url=f"{self.url}/api/v1",
                headers=headers,
                timeout=httpx2.Timeout(timeout_seconds, connect=min(5.0, timeout_seconds)),
                trust_env=not is_loopback(self.url),  # no proxy stands between us and this machine
            )
        except httpx2.InvalidURL as error:
            raise Unreachable(self.url, f"this is no address ({error})") from None
        except UnicodeEncodeError:
            raise Unreachable(self.url, "the token holds characters that no token has") from None
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise Unreachable(self.url, "an address begins with http:// or https://")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"  # never the token

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    # --- requests
    # -----------------------------------------------------------------------------------

    def _list(self, path: str, name: str, **options: Any) -> list[Json]:
        """Return a list, bare or as the member `name` of an object."""
        answer = document(self._send("GET", path, **options))
        return list(answer[name] if isinstance(answer, dict) else answer)

    def _pages(self, path: str, name: str, query: Mapping[str, Any]) -> Iterator[Json]:
        """Return every row of a listing, read a page at a time."""
        return (row for answer in self._answers(path, query) for row in answer[name])

    def _answers(self, path: str, query: Mapping[str, Any]) -> Iterator[Json]:
        """Yield every page of a listing, whole."""
        parameters = {"limit": PAGE, **given(query)}
        while True:
            answer = document(self._send("GET", path, params=parameters))
            yield answer
            if answer["next"] is None:
                return
            parameters["cursor"] = answer["next"]

    def _json(self, method: str, path: str, *, repeat: bool | None = None, **options: Any) -> Json:
        response = self._send(method, path, repeat=repeat, **options)
        return dict(document(response)) if response.content else {}

    def _save(self, path: str, query: Mapping[str, str], file: Writable) -> None:
        with self._translated():
            response = self._send("GET", path, stream=True, params=query, headers={"Accept": "*/*"})
            try:
                for block in response.iter_bytes():
                    file.write(block)
            finally:
                response.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        repeat: bool | None = None,
        stream: bool = False,
        **options: Any,
    ) -> httpx2.Response:
        """Return one request, repeated where that can't act twice."""
        repeatable = method == "GET" if repeat is None else repeat

        def attempt() -> httpx2.Response:
            request = self._http.build_request(method, path, **options)
            response = self._http.send(request, stream=stream)
            if response.status_code in _AWAY:
                response.read()
                raise _Away(response)
            return response

        def again(error: BaseException) -> bool:
            if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                return True  # nothing was sent, so nothing can act twice
            if isinstance(error, _Away) and error.pause > _LONGEST_REQUESTED_PAUSE_SECONDS:
                return False
            return repeatable and isinstance(error, httpx2.TransportError | _Away)

        retrying = Retrying(
            stop=stop_after_attempt(self.attempts),
            wait=_pause,
            retry=retry_if_exception(again),
            retry_error_callback=_raise_last,
            sleep=_sleep,
        )
        with self._translated():
            response: httpx2.Response = retrying(attempt)
        if response.is_success:
            return response
        response.read()
        raise ApiProblem.of(response)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Return errors of the transport as ours."""
        try:
            yield
        except _Away as error:
            raise ApiProblem.of(error.response) from None
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise Unreachable(self.url, str(error) or type(error).__name__) from None


class _Away(Exception):
    """The server, or a proxy before it, is busy or not ready."""

    def __init__(self, response: httpx2.Response):
        self.response = response
        self.pause = retry_after(response.headers) or 0.0


_sleep = time.sleep


def _pause(state: RetryCallState) -> float:
    """Return seconds before the next attempt: the larger of our backoff and Retry-After."""
    error = None if state.outcome is None else state.outcome.exception()
    return max(_backoff(state), error.pause if isinstance(error, _Away) else 0.0)


def _raise_last(state: RetryCallState) -> None:
    assert state.outcome is not None
    state.outcome.result()


def document(response: httpx2.Response) -> Any:
    """Return the JSON of an answer. Raises Unreadable."""
    try:
        return response.json()
    except ValueError:
        raise Unreadable(
            f"{response.request.url.host} answered something that is no JSON: is this an Exchequer "
            "server?"
        ) from None


def part(name: str) -> str:
    """Return a name as one part of a path."""
    return quote(name, safe="")


def is_loopback(url: str) -> bool:
    """Return True if the address is this machine's."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def given(named: Mapping[str, Any]) -> Json:
    """Return the values that are not None; nothing is sent for the rest."""
    return {name: value for name, value in named.items() if value is not None}
