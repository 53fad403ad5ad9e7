"""Routes for jobs, what they released, and what a second person decides."""

import uuid
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from web.client.errors import Json, RateLimited, ServiceUnavailable, Unreachable
from web.client.transport import PAGE, Transport, Writable, given, part

#: A charge without a word for so long ends, and all of it is charged.
LEASE_SECONDS = 3600


class JobRoutes(Transport):
    """Asking, waiting, results."""

    def submit(self, request: Mapping[str, Any], *, key: str | None = None) -> Json:
        """Submit {dataset, mechanism, model, parameters, purpose, project}; the same `key` is the
        same job.

        Without a key one is made, so that repeating the request can't charge twice. Where no answer
        came at all, the error's `key` is the one to try again with: it finds the job, if it was
        made.
        """
        chosen = key or str(uuid.uuid4())
        headers = {"Idempotency-Key": chosen}
        try:
            return self._json("POST", "/jobs", json=dict(request), headers=headers, repeat=True)
        except (Unreachable, ServiceUnavailable, RateLimited) as error:
            error.key = chosen
            raise

    def jobs(self, *, limit: int | None = None, **wanted: str | None) -> list[Json]:
        """Return a page of the jobs that you may see, newest first; `wanted` as of all_jobs."""
        return self._list("/jobs", "jobs", params=given({**wanted, "limit": limit}))

    def all_jobs(self, **wanted: str | None) -> Iterator[Json]:
        """Return every job that you may see, newest first, read a page at a time.

        `wanted`: dataset, state, mechanism, analyst, since, until.
        """
        return self._pages("/jobs", "jobs", wanted)

    def job(self, job_id: str) -> Json:
        """Return one job."""
        return self._json("GET", f"/jobs/{part(job_id)}")

    def comment(self, job_id: str, text: str, *, asks: bool = False) -> Json:
        """Say something about a job; with `asks`, as a steward, wait for its analyst's answer."""
        return self._json(
            "POST", f"/jobs/{part(job_id)}/comments", json={"text": text, "asks": asks}
        )

    def cancel(self, job_id: str) -> Json:
        """Ask a job to stop."""
        return self._json("POST", f"/jobs/{part(job_id)}/cancel")

    def begin(self, job_id: str, lease: str, lease_seconds: int = LEASE_SECONDS) -> Json:
        """Begin a charge that is queued; `lease` is 64 hex digits that the caller draws."""
        body = {"lease": lease, "lease_seconds": lease_seconds}
        return self._json("POST", f"/jobs/{part(job_id)}/begin", json=body, repeat=True)

    def alive(
        self, job_id: str, lease: str, lease_seconds: int = LEASE_SECONDS, step: int = 0
    ) -> Json:
        """Keep the lease of a charge alive, `step` releases in."""
        body = {"lease": lease, "lease_seconds": lease_seconds, "step": step}
        return self._json("POST", f"/jobs/{part(job_id)}/alive", json=body, repeat=True)

    def settle(
        self,
        job_id: str,
        lease: str,
        event: Any = None,
        output: str | None = None,
        signature: str | None = None,
    ) -> Json:
        """End a charge: what its runner signed is charged, or else all that was reserved."""
        body = {"lease": lease, "event": event, "output": output, "signature": signature}
        return self._json("POST", f"/jobs/{part(job_id)}/settle", json=body, repeat=True)

    def save_result(self, job_id: str, file: Writable) -> None:
        """Write the published texts of a job (JSON Lines) to `file`."""
        self._save(f"/jobs/{part(job_id)}/result", {}, file)

    def save_output(
        self, job_id: str, form: str, file: Writable, *, card: bool = False, **about: str | None
    ) -> None:
        """The same as `jsonl`, `csv` or `parquet`; with `card`, in a zip with its data card.

        Args:
            about: the `license` and `language` that the card states.
        """
        stated = {name: value for name, value in about.items() if value}
        query = {"format": form, **({"card": "true"} if card else {}), **stated}
        self._save(f"/jobs/{part(job_id)}/output", query, file)

    def card(self, job_id: str) -> Json:
        """Return the data card of a published output: what it is, and what holds of it."""
        return self._json("GET", f"/jobs/{part(job_id)}/card")

    def save_card(self, job_id: str, form: str, file: Writable) -> None:
        """The same as a file, `json` or `md`."""
        self._save(f"/jobs/{part(job_id)}/card", {"format": form}, file)

    def artifacts(
        self, *, job: str | None = None, dataset: str | None = None, limit: int | None = None
    ) -> list[Json]:
        """Return releases besides texts that you may see, newest first: all, or `limit`."""
        wanted = {"job": job, "dataset": dataset, "limit": limit and min(limit, PAGE)}
        return list(islice(self._pages("/artifacts", "artifacts", wanted), limit))

    def save_artifact(self, sha256: str, file: Writable) -> None:
        """Write the bytes of an artifact to `file`; compare their SHA-256 before you use them."""
        self._save(f"/artifacts/{part(sha256)}", {}, file)


# --- Routes for decisions: what a second person is asked, and their answer -----------------------


class DecidingRoutes(Transport):
    """Routes for pending decisions."""

    def decisions(
        self, *, state: str | None = None, kind: str | None = None, job: str | None = None
    ) -> list[Json]:
        """Return open decisions, or those of a state or about a job."""
        return list(
            self._pages("/decisions", "decisions", {"state": state, "kind": kind, "job": job})
        )

    def decision(self, decision_id: str) -> Json:
        """Return one decision, with what a yes would do now."""
        return self._json("GET", f"/decisions/{part(decision_id)}")

    def answer(self, decision_id: str, yes: bool, reason: str = "") -> Json:
        """Answer a decision. The id of a job that awaits approval is that of its decision."""
        body = {"yes": yes, "reason": reason}
        return self._json("POST", f"/decisions/{part(decision_id)}/answer", json=body)

    def approve(self, job_id: str, reason: str) -> Json:
        """Approve a job: answer yes."""
        return self.answer(job_id, True, reason)

    def refuse(self, job_id: str, reason: str) -> Json:
        """Refuse a job: answer no."""
        return self.answer(job_id, False, reason)

    def correct(self, job_id: str, reason: str, **others: Any) -> Json:
        """Propose a correction of a settled job's charge. `others`: event, ex_post."""
        return self._json(
            "POST", f"/jobs/{part(job_id)}/correct", json={"reason": reason, **others}
        )

    def declare(self, dataset: str, parameters: Mapping[str, Any], reason: str) -> Json:
        """Declare a charge that has happened and is more than is left; another steward answers."""
        body = {"parameters": dict(parameters), "reason": reason}
        return self._json("POST", f"/datasets/{part(dataset)}/overdraft", json=body)

    def propose_push(self, job_id: str, to: str, endpoint: str, reason: str, **about: Any) -> Json:
        """Ask to publish a result on a hub; a steward answers. `about`: license, language."""
        body = {"to": to, "endpoint": endpoint, "reason": reason, **given(about)}
        return self._json("POST", f"/jobs/{part(job_id)}/push", json=body)

    def save_push(self, decision_id: str, file: Writable) -> None:
        """Write the zip that a decision lets you publish to `file`."""
        self._save(f"/decisions/{part(decision_id)}/archive", {}, file)

    def record_push(self, decision_id: str, commit: str) -> Json:
        """Record that it was published, and as which commit."""
        path = f"/decisions/{part(decision_id)}/pushed"
        return self._json("POST", path, json={"commit": commit}, repeat=True)

    def price_offer(self, job_id: str, parameters: Mapping[str, Any]) -> Json:
        """Return the cost and effect of a request with these changed parameters now (stewards)."""
        body = {"parameters": dict(parameters)}
        return self._json("POST", f"/jobs/{part(job_id)}/offer/quote", json=body, repeat=True)

    def offer(self, job_id: str, parameters: Mapping[str, Any], reason: str) -> Json:
        """Refuse a request and offer a smaller one in its place, which its analyst answers."""
        body = {"parameters": dict(parameters), "reason": reason}
        return self._json("POST", f"/jobs/{part(job_id)}/offer", json=body)
