"""Jobs and what they released."""

import uuid
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from web.client.errors import Json, RateLimited, ServiceUnavailable, Unreachable
from web.client.transport import PAGE, Transport, Writable, given, part


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

    def save_result(self, job_id: str, file: Writable) -> None:
        """Write the published texts of a job (JSON Lines) to `file`."""
        self._save(f"/jobs/{part(job_id)}/result", {}, file)

    def save_output(self, job_id: str, form: str, file: Writable, *, card: bool = False) -> None:
        """The same as `jsonl`, `csv` or `parquet`; with `card`, in a zip with its data card."""
        query = {"format": form, **({"card": "true"} if card else {})}
        self._save(f"/jobs/{part(job_id)}/output", query, file)

    def card(self, job_id: str) -> Json:
        """Return the data card of a published output: what it is, what holds of it, and where the
        ledger says so.
        """
        return self._json("GET", f"/jobs/{part(job_id)}/card")

    def save_card(self, job_id: str, form: str, file: Writable) -> None:
        """The same as a file, `json` or `md`."""
        self._save(f"/jobs/{part(job_id)}/card", {"format": form}, file)

    def artifacts(
        self, *, job: str | None = None, dataset: str | None = None, limit: int | None = None
    ) -> list[Json]:
        """Return artifacts, the releases besides texts, that you may see, newest first: all, or
        `limit`.
        """
        wanted = {"job": job, "dataset": dataset, "limit": limit and min(limit, PAGE)}
        return list(islice(self._pages("/artifacts", "artifacts", wanted), limit))

    def save_artifact(self, sha256: str, file: Writable) -> None:
        """Write the bytes of an artifact to `file`; compare their SHA-256 before you use them."""
        self._save(f"/artifacts/{part(sha256)}", {}, file)
