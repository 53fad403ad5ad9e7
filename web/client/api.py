"""One method for each route of /api/v1, with JSON documents as they come; the command line is built on it.

    with Api("http://127.0.0.1:8750", token) as api:
        job = api.submit({"dataset": "reviews", ...}, key="monday-1")

`web.client.Client` gives the same as typed objects.
"""

import difflib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import httpx

from accountant.core.errors import ExchequerError
from web.client.errors import (
    ApiProblem,
    InvalidRequest,
    Json,
    NotFound,
    RateLimited,
    ServiceUnavailable,
    Unreachable,
)
from web.client.transport import Transport, Writable, part

PAGE = 200  # rows of a page: the most that the service answers with


class Api(Transport):
    """The routes. Every method raises the errors of web.client.errors."""

    # --- people -----------------------------------------------------------------------------------

    def sign_in(self, name: str, password: str) -> Json:
        """A token for `name`: {token, expires_at, name, roles}."""
        return self._json("POST", "/session", json={"name": name, "password": password})

    def sign_out(self) -> None:
        """End this token."""
        self._send("DELETE", "/session")

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
        return self._json("GET", f"/datasets/{part(name)}")

    def add_dataset(self, declaration: Mapping[str, Any]) -> Json:
        """Register a dataset; a worker then checks its data (state: checking, ready, invalid)."""
        return self._json("POST", "/datasets", json=dict(declaration))

    def correct_dataset(self, name: str, **changes: Any) -> Json:
        """Declare a dataset whose data was refused again: another uri, text_template, label_column, ..."""
        return self._json("POST", f"/datasets/{part(name)}/data", json=changes)

    def add_version(self, name: str, uri: str, **layout: Any) -> Json:
        """Add data to a dataset, on the same account; `layout`: text_template, unit_column, label_column."""
        return self._json("POST", f"/datasets/{part(name)}/versions", json={"uri": uri, **layout})

    def set_policy(self, name: str, policy: Mapping[str, Any]) -> Json:
        """Replace a dataset's policy."""
        return self._json("PUT", f"/datasets/{part(name)}/policy", json=dict(policy))

    def allow(self, name: str, epsilon: str | None, delta: str | None, reason: str, **others: Any) -> Json:
        """Set a dataset's allowance. Amounts are decimal texts: no digit is lost on the way.

        `others`: shares, order, ex_post, ex_post_settlement, secret.
        """
        body = {"epsilon": epsilon, "delta": delta, "reason": reason, **others}
        return self._json("POST", f"/datasets/{part(name)}/allowance", json=body)

    def quote(
        self,
        dataset: str,
        mechanism: str,
        parameters: Mapping[str, Any],
        *,
        fit: str | None = None,
        epsilon: float | None = None,
        project: str | None = None,
    ) -> Json:
        """The price of a request on a dataset and what admission would say now; changes nothing."""
        body: Json = {"mechanism": mechanism, "parameters": dict(parameters)}
        body |= _given({"fit": fit, "epsilon": epsilon, "project": project})
        return self._json("POST", f"/datasets/{part(dataset)}/quote", json=body, repeat=True)

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
        """Submit {dataset, mechanism, model, parameters, purpose, project}; the same `key` is the same job.

        Without a key one is made, so that repeating the request can't charge twice. Where no answer came at
        all, the error's `key` is the one to try again with: it finds the job, if it was made.
        """
        chosen = key or str(uuid.uuid4())
        headers = {"Idempotency-Key": chosen}
        try:
            return self._json("POST", "/jobs", json=dict(request), headers=headers, repeat=True)
        except (Unreachable, ServiceUnavailable, RateLimited) as error:
            error.key = chosen
            raise

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
        return self._list("/jobs", "jobs", params=_given(named))

    def all_jobs(self, *, dataset: str | None = None, state: str | None = None) -> Iterator[Json]:
        """Every job that you may see, newest first, a page at a time."""
        before: str | None = None
        while page := self.jobs(dataset=dataset, state=state, limit=PAGE, before=before):
            yield from page
            if len(page) < PAGE:
                return
            before = page[-1]["created_at"]

    def job(self, job_id: str) -> Json:
        """One job."""
        return self._json("GET", f"/jobs/{part(job_id)}")

    def approve(self, job_id: str, reason: str) -> Json:
        """Say yes, as a steward."""
        return self._json("POST", f"/jobs/{part(job_id)}/approve", json={"reason": reason})

    def refuse(self, job_id: str, reason: str) -> Json:
        """Say no, as a steward."""
        return self._json("POST", f"/jobs/{part(job_id)}/refuse", json={"reason": reason})

    def correct(self, job_id: str, reason: str, **others: Any) -> Json:
        """Propose a correction of a settled job's charge. `others`: event, nothing, ex_post."""
        return self._json("POST", f"/jobs/{part(job_id)}/correct", json={"reason": reason, **others})

    def proposals(self, state: str = "open") -> list[Json]:
        """What waits for a second steward, or proposals of another state."""
        return self._list("/proposals", "proposals", params={"state": state})

    def proposal(self, proposal_id: str) -> Json:
        """One proposal."""
        return self._json("GET", f"/proposals/{part(proposal_id)}")

    def confirm(self, proposal_id: str, reason: str) -> Json:
        """Confirm another steward's proposal."""
        return self._json("POST", f"/proposals/{part(proposal_id)}/confirm", json={"reason": reason})

    def withdraw(self, proposal_id: str, reason: str) -> Json:
        """Close a proposal without effect."""
        return self._json("POST", f"/proposals/{part(proposal_id)}/withdraw", json={"reason": reason})

    def cancel(self, job_id: str) -> Json:
        """Ask a job to stop."""
        return self._json("POST", f"/jobs/{part(job_id)}/cancel")

    def save_result(self, job_id: str, file: Writable) -> None:
        """Write the published texts of a job (JSON Lines) to `file`."""
        self._save(f"/jobs/{part(job_id)}/result", {}, file)

    def artifacts(
        self, *, job: str | None = None, dataset: str | None = None, limit: int | None = None
    ) -> list[Json]:
        """What jobs released besides texts, as far as you may see it, newest first."""
        named = {"job": job, "dataset": dataset, "limit": limit}
        return self._list("/artifacts", "artifacts", params=_given(named))

    def save_artifact(self, sha256: str, file: Writable) -> None:
        """Write the bytes of an artifact to `file`; compare their SHA-256 before you use them."""
        self._save(f"/artifacts/{part(sha256)}", {}, file)

    # --- ledger -----------------------------------------------------------------------------------

    def ledger(self, dataset: str, *, before: int | None = None, limit: int | None = None) -> list[Json]:
        """Entries, newest first (stewards and auditors)."""
        named = {"before": before, "limit": limit}
        return self._list(f"/datasets/{part(dataset)}/ledger", "entries", params=_given(named))

    def whole_ledger(self, dataset: str) -> Iterator[Json]:
        """Every entry, newest first, a page at a time (stewards and auditors)."""
        before: int | None = None
        while page := self.ledger(dataset, before=before, limit=PAGE):
            yield from page
            before = page[-1]["seq"]
            if before == 1:
                return

    def ex_post(self, dataset: str) -> Json:
        """What ex-post jobs really cost, {jobs, note} (stewards and auditors)."""
        return self._json("GET", f"/datasets/{part(dataset)}/ex-post")

    def save_ledger(self, dataset: str, form: str, file: Writable, *, public: bool = False) -> None:
        """Write a dataset's ledger, `jsonl`, `csv` or `parquet`, to `file`; `public`: for publication."""
        query = {"format": form, **({"public": "true"} if public else {})}
        self._save(f"/datasets/{part(dataset)}/ledger/export", query, file)

    def check_ledger(self, dataset: str) -> list[str]:
        """What disagrees among cached balances, entries and jobs (stewards and auditors)."""
        return list(self._json("GET", f"/datasets/{part(dataset)}/ledger/check")["problems"])

    def make_checkpoint(self, dataset: str) -> Json:
        """A signed checkpoint of this moment."""
        return self._json("POST", f"/datasets/{part(dataset)}/checkpoints", repeat=True)

    def checkpoints(self, dataset: str, *, limit: int | None = None) -> list[Json]:
        """Checkpoints that were handed out, newest first."""
        query = _given({"limit": limit})
        return self._list(f"/datasets/{part(dataset)}/checkpoints", "checkpoints", params=query)

    def keys(self) -> list[Json]:
        """The public keys that sign checkpoints, oldest first; no token is needed."""
        return self._list("/keys", "keys")

    # --- names that nothing has ---------------------------------------------------------------------

    def _send(
        self, method: str, path: str, *, repeat: bool | None = None, stream: bool = False, **options: Any
    ) -> httpx.Response:
        try:
            return super()._send(method, path, repeat=repeat, stream=stream, **options)
        except (NotFound, InvalidRequest) as error:
            error.near = tuple(self._near(error, path, options.get("json") or {}))
            raise

    def _near(self, error: ApiProblem, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Names close to those that a refused request uses and nothing has."""
        asked = [
            (f"{p.field}s", body.get(p.field)) for p in error.problems if p.field in ("dataset", "model")
        ]
        segments = path.split("/")
        if error.status == 404 and segments[1] == "datasets" and segments[2:]:
            asked.append(("datasets", unquote(segments[2])))
        for kind, name in asked:
            try:
                listed = super()._send("GET", f"/{kind}").json()[kind]
                known = {str(each["name"]).casefold(): str(each["name"]) for each in listed}
            except (ExchequerError, ValueError, LookupError, TypeError):
                continue  # the first error says what matters
            if isinstance(name, str) and name not in known.values():
                yield from (known[each] for each in difflib.get_close_matches(name.casefold(), known))


def _given(named: Mapping[str, Any]) -> Json:
    """What was given: nothing is sent for the rest."""
    return {name: value for name, value in named.items() if value is not None}
