"""A small Python client of /api/v1; the command line is built on it.

    with Client("http://127.0.0.1:8750", token) as client:
        job = client.submit({"dataset": "reviews", ...}, key="monday-1")

Calls that are safe to repeat are repeated while the server is away (reads, changes that set a value, and
a submission, whose idempotency key makes it one job). Errors:

    ExchequerError
    ├── Unreachable    no answer from the server, after the retries
    └── ApiProblem     the server's answer: status, code, text and what was wrong with each field
"""

import ipaddress
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self
from urllib.parse import quote, urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from accountant.core.errors import ExchequerError, FieldProblem

Json = dict[str, Any]

ATTEMPTS = 5
_LONGEST_PAUSE_SECONDS = 2.0
_AWAY = (502, 503)


class Unreachable(ExchequerError):
    """No answer from the server."""

    code = "unreachable"

    def __init__(self, url: str, reason: str):
        self.url, self.reason = url, reason
        super().__init__(f"no answer from {url}: {reason}")


class ApiProblem(ExchequerError):
    """What the server answered instead; `problems` names the fields, where fields were wrong."""

    def __init__(self, status: int, code: str, detail: str, problems: tuple[FieldProblem, ...] = ()):
        self.status, self.code, self.detail, self.problems = status, code, detail, problems
        super().__init__("; ".join(map(str, problems)) or detail)

    @classmethod
    def of(cls, response: httpx.Response) -> "ApiProblem":
        """The problem that a response states, or says by its status alone."""
        try:
            body = response.json()
        except ValueError:  # a proxy's page, or an old server
            body = None
        body = body if isinstance(body, dict) else {}
        problems = tuple(
            FieldProblem(*(str(each.get(name) or "") for name in ("field", "problem", "allowed")))
            for each in body.get("problems") or ()
            if isinstance(each, dict)
        )
        detail = body.get("detail") or body.get("title") or f"the server answered {response.status_code}"
        return cls(response.status_code, str(body.get("code") or "error"), str(detail), problems)


class Writable(Protocol):
    """What a download is written to: a binary file, for one."""

    def write(self, block: bytes, /) -> object: ...


class Client:
    """Talks to one server as one person. Close it, or use it in a `with` statement."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout_seconds: float = 60.0, attempts: int = ATTEMPTS
    ):
        self.url = url.rstrip("/")
        self.attempts = attempts
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            self._http = httpx.Client(
                base_url=f"{self.url}/api/v1",
                headers=headers,
                timeout=httpx.Timeout(timeout_seconds, connect=5.0),
                trust_env=not _is_loopback(self.url),  # no proxy stands between us and this machine
            )
        except httpx.InvalidURL as error:
            raise Unreachable(self.url, f"this is no address ({error})") from None
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise Unreachable(self.url, "an address begins with http:// or https://")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    # --- people -----------------------------------------------------------------------------------

    def sign_in(self, name: str, password: str) -> Json:
        """A token for `name`: {token, expires_at, name, roles}."""
        return self._json("POST", "/session", json={"name": name, "password": password})

    def me(self) -> Json:
        """Whose token this is."""
        return self._json("GET", "/me")

    def users(self) -> list[Json]:
        """All accounts (administrators)."""
        return self._list("/users", "users")

    def add_user(self, name: str, password: str, roles: list[str]) -> Json:
        """A new account (administrators)."""
        return self._json("POST", "/users", json={"name": name, "password": password, "roles": roles})

    # --- datasets and models ----------------------------------------------------------------------

    def datasets(self) -> list[Json]:
        """The catalogue."""
        return self._list("/datasets", "datasets")

    def dataset(self, name: str) -> Json:
        """One dataset with its account."""
        return self._json("GET", f"/datasets/{_part(name)}")

    def add_dataset(self, declaration: Mapping[str, Any]) -> Json:
        """Register a dataset; a worker then checks its data (state: checking, ready, invalid)."""
        return self._json("POST", "/datasets", json=dict(declaration))

    def correct_dataset(self, name: str, **changes: Any) -> Json:
        """Declare a dataset whose data was refused again: another uri, text_template, label_column, ..."""
        return self._json("POST", f"/datasets/{_part(name)}/data", json=changes)

    def add_version(self, name: str, uri: str, **layout: Any) -> Json:
        """Add data to a dataset, on the same account; `layout`: text_template, unit_column, label_column."""
        return self._json("POST", f"/datasets/{_part(name)}/versions", json={"uri": uri, **layout})

    def set_policy(self, name: str, policy: Mapping[str, Any]) -> Json:
        """Replace a dataset's policy."""
        return self._json("PUT", f"/datasets/{_part(name)}/policy", json=dict(policy))

    def allow(self, name: str, epsilon: str | None, delta: str | None, reason: str, **others: Any) -> Json:
        """Set a dataset's allowance. Amounts are decimal texts: no digit is lost on the way.

        `others`: shares, order, ex_post, ex_post_settlement, secret.
        """
        body = {"epsilon": epsilon, "delta": delta, "reason": reason, **others}
        return self._json("POST", f"/datasets/{_part(name)}/allowance", json=body)

    def quote(
        self,
        dataset: str,
        mechanism: str,
        parameters: Mapping[str, Any],
        *,
        fit: str | None = None,
        epsilon: float | None = None,
    ) -> Json:
        """The price of a request on a dataset and what admission would say now; changes nothing."""
        body: Json = {"mechanism": mechanism, "parameters": dict(parameters)}
        body |= {name: value for name, value in (("fit", fit), ("epsilon", epsilon)) if value is not None}
        return self._json("POST", f"/datasets/{_part(dataset)}/quote", json=body, repeat=True)

    def models(self) -> list[Json]:
        """Registered models."""
        return self._list("/models", "models")

    def add_model(self, name: str, path: str, trained_on: str, kind: str = "language") -> Json:
        """Register a model, `language` or `embedding`; a worker then looks at its files."""
        body = {"name": name, "path": path, "trained_on": trained_on, "kind": kind}
        return self._json("POST", "/models", json=body)

    def corpora(self) -> list[Json]:
        """Registered public corpora."""
        return self._list("/corpora", "corpora")

    def add_corpus(self, declaration: Mapping[str, Any]) -> Json:
        """Register a public or consented corpus; a worker then reads it through."""
        return self._json("POST", "/corpora", json=dict(declaration))

    def mechanisms(self) -> list[Json]:
        """What can be asked for."""
        return self._list("/mechanisms", "mechanisms")

    # --- jobs -------------------------------------------------------------------------------------

    def submit(self, request: Mapping[str, Any], *, key: str | None = None) -> Json:
        """Submit {dataset, mechanism, model, parameters, purpose}; the same `key` is the same job."""
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return self._json("POST", "/jobs", json=dict(request), headers=headers, repeat=True)

    def jobs(
        self,
        *,
        dataset: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[Json]:
        """Jobs that you may see, newest first."""
        named = {"dataset": dataset, "state": state, "limit": limit, "before": before}
        query = {name: value for name, value in named.items() if value is not None}
        return self._list("/jobs", "jobs", params=query)

    def job(self, job_id: str) -> Json:
        """One job."""
        return self._json("GET", f"/jobs/{_part(job_id)}")

    def approve(self, job_id: str, reason: str) -> Json:
        """Say yes, as a steward."""
        return self._json("POST", f"/jobs/{_part(job_id)}/approve", json={"reason": reason})

    def refuse(self, job_id: str, reason: str) -> Json:
        """Say no, as a steward."""
        return self._json("POST", f"/jobs/{_part(job_id)}/refuse", json={"reason": reason})

    def correct(self, job_id: str, reason: str, **others: Any) -> Json:
        """Propose a correction of a settled job's charge. `others`: event, nothing, ex_post."""
        return self._json("POST", f"/jobs/{_part(job_id)}/correct", json={"reason": reason, **others})

    def proposals(self, state: str = "open") -> list[Json]:
        """What waits for a second steward, or proposals of another state."""
        return self._list("/proposals", "proposals", params={"state": state})

    def confirm(self, proposal_id: str, reason: str) -> Json:
        """Confirm another steward's proposal."""
        return self._json("POST", f"/proposals/{_part(proposal_id)}/confirm", json={"reason": reason})

    def withdraw(self, proposal_id: str, reason: str) -> Json:
        """Close a proposal without effect."""
        return self._json("POST", f"/proposals/{_part(proposal_id)}/withdraw", json={"reason": reason})

    def cancel(self, job_id: str) -> Json:
        """Ask a job to stop."""
        return self._json("POST", f"/jobs/{_part(job_id)}/cancel")

    def save_result(self, job_id: str, file: BinaryIO) -> None:
        """Write the published texts of a job (JSON Lines) to `file`."""
        self._save(f"/jobs/{_part(job_id)}/result", {}, file)

    def artifacts(
        self, *, job: str | None = None, dataset: str | None = None, limit: int | None = None
    ) -> list[Json]:
        """What jobs released besides texts, as far as you may see it, newest first."""
        named = {"job": job, "dataset": dataset, "limit": limit}
        query = {name: value for name, value in named.items() if value is not None}
        return self._list("/artifacts", "artifacts", params=query)

    def save_artifact(self, sha256: str, file: Writable) -> None:
        """Write the bytes of an artifact to `file`; compare their SHA-256 before you use them."""
        self._save(f"/artifacts/{_part(sha256)}", {}, file)

    # --- ledger -----------------------------------------------------------------------------------

    def ledger(self, dataset: str, *, before: int | None = None, limit: int | None = None) -> list[Json]:
        """Entries, newest first (stewards and auditors)."""
        named = {"before": before, "limit": limit}
        query = {name: value for name, value in named.items() if value is not None}
        return self._list(f"/datasets/{_part(dataset)}/ledger", "entries", params=query)

    def save_ledger(self, dataset: str, form: str, file: BinaryIO, *, public: bool = False) -> None:
        """Write a dataset's ledger, `jsonl`, `csv` or `parquet`, to `file`; `public`: for publication."""
        query = {"format": form, **({"public": "true"} if public else {})}
        self._save(f"/datasets/{_part(dataset)}/ledger/export", query, file)

    def check_ledger(self, dataset: str) -> list[str]:
        """What disagrees among cached balances, entries and jobs (stewards and auditors)."""
        return list(self._json("GET", f"/datasets/{_part(dataset)}/ledger/check")["problems"])

    def make_checkpoint(self, dataset: str) -> Json:
        """A signed checkpoint of this moment."""
        return self._json("POST", f"/datasets/{_part(dataset)}/checkpoints", repeat=True)

    def checkpoints(self, dataset: str, *, limit: int | None = None) -> list[Json]:
        """Checkpoints that were handed out, newest first."""
        query = {} if limit is None else {"limit": limit}
        return self._list(f"/datasets/{_part(dataset)}/checkpoints", "checkpoints", params=query)

    def keys(self) -> list[Json]:
        """The public keys that sign checkpoints, oldest first; no token is needed."""
        return self._list("/keys", "keys")

    # --- transport --------------------------------------------------------------------------------

    def _list(self, path: str, name: str, **options: Any) -> list[Json]:
        """A list, bare or as the member `name` of an object."""
        found = self._send("GET", path, **options).json()
        return list(found[name] if isinstance(found, dict) else found)

    def _json(self, method: str, path: str, *, repeat: bool | None = None, **options: Any) -> Json:
        response = self._send(method, path, repeat=repeat, **options)
        return dict(response.json()) if response.content else {}

    def _save(self, path: str, query: Mapping[str, str], file: Writable) -> None:
        with self._translated():
            response = self._send("GET", path, stream=True, params=query)
            try:
                for block in response.iter_bytes():
                    file.write(block)
            finally:
                response.close()

    def _send(
        self, method: str, path: str, *, repeat: bool | None = None, stream: bool = False, **options: Any
    ) -> httpx.Response:
        """One request, repeated while the server is away where that can't act twice."""
        repeatable = method in ("GET", "PUT") if repeat is None else repeat

        def attempt() -> httpx.Response:
            request = self._http.build_request(method, path, **options)
            response = self._http.send(request, stream=stream)
            if response.status_code in _AWAY:
                response.read()
                raise _Away(response)
            return response

        def again(error: BaseException) -> bool:
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                return True  # nothing was sent, so nothing can act twice
            return repeatable and isinstance(error, httpx.TransportError | _Away)

        retrying = Retrying(
            stop=stop_after_attempt(self.attempts),
            wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_PAUSE_SECONDS),
            retry=retry_if_exception(again),
            retry_error_callback=_raise_last,
        )
        with self._translated():
            response: httpx.Response = retrying(attempt)
        if response.is_success:
            return response
        response.read()
        raise ApiProblem.of(response)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the transport as ours."""
        try:
            yield
        except _Away as error:
            raise ApiProblem.of(error.response) from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(self.url, str(error) or type(error).__name__) from None


class _Away(Exception):
    """The server, or a proxy before it, is not ready."""

    def __init__(self, response: httpx.Response):
        self.response = response


def _raise_last(state: RetryCallState) -> None:
    assert state.outcome is not None
    state.outcome.result()


def _part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
