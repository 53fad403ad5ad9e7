"""The ledger, checkpoints, and who did what."""

from collections.abc import Iterator
from typing import Any

from web.client.errors import Json
from web.client.transport import Transport, Writable, given, part


class LedgerRoutes(Transport):
    """Routes for stewards and auditors."""

    def ledger(
        self, dataset: str, *, before: int | None = None, limit: int | None = None
    ) -> list[Json]:
        """Return entries, newest first (stewards and auditors)."""
        named = {"before": before, "limit": limit}
        return self._list(f"/datasets/{part(dataset)}/ledger", "entries", params=given(named))

    def whole_ledger(self, dataset: str) -> Iterator[Json]:
        """Return every entry, newest first, read a page at a time (stewards and auditors)."""
        path = f"/datasets/{part(dataset)}/ledger"
        return self._pages(path, "entries", {})

    def entry(self, dataset: str, seq: int) -> Json:
        """Return one entry as it is hashed, priced anew, with the balances after it."""
        return self._json("GET", f"/datasets/{part(dataset)}/ledger/{seq}")

    def entries(self, **wanted: Any) -> Iterator[Json]:
        """Return entries over all datasets, newest first.

        `wanted`: dataset, kind, actor, mechanism, job, since, until.
        """
        return self._pages("/ledger", "entries", wanted)

    def refusals(self, **wanted: Any) -> Iterator[Json]:
        """Return refused requests, newest first. `wanted`: dataset, cap, analyst, mechanism."""
        return self._pages("/refusals", "refusals", wanted)

    def activity(self, **wanted: Any) -> Iterator[Json]:
        """Yield acts, newest first. `wanted`: what, actor, dataset, since, until."""
        return self._pages("/activity", "activity", wanted)

    def report(self, dataset: str, *, public: bool = False) -> Json:
        """Return everything that the printed report of a dataset says."""
        query = {"public": "true"} if public else {}
        return self._json("GET", f"/datasets/{part(dataset)}/report", params=query)

    def ex_post(self, dataset: str) -> Json:
        """Return the realized costs of ex-post jobs, {jobs, note} (stewards and auditors)."""
        answers = list(self._answers(f"/datasets/{part(dataset)}/ex-post", {}))
        return {
            "jobs": [row for answer in answers for row in answer["jobs"]],
            "note": answers[0]["note"],
        }

    def save_ledger(self, dataset: str, form: str, file: Writable, *, public: bool = False) -> None:
        """Write a dataset's ledger, `jsonl` or `csv`, to `file`; `public`: for publication."""
        query = {"format": form, **({"public": "true"} if public else {})}
        self._save(f"/datasets/{part(dataset)}/ledger/export", query, file)

    def check_ledger(self, dataset: str) -> list[str]:
        """Return disagreements among cached balances, entries and jobs (stewards and auditors)."""
        return list(self._json("GET", f"/datasets/{part(dataset)}/ledger/check")["problems"])

    def make_checkpoint(self, dataset: str) -> Json:
        """Return a signed checkpoint of this moment."""
        return self._json("POST", f"/datasets/{part(dataset)}/checkpoints", repeat=True)

    def checkpoints(self, dataset: str, *, limit: int | None = None) -> list[Json]:
        """Return checkpoints that were handed out, newest first."""
        query = given({"limit": limit})
        return self._list(f"/datasets/{part(dataset)}/checkpoints", "checkpoints", params=query)

    def all_checkpoints(self, *, dataset: str | None = None) -> Iterator[Json]:
        """Return all datasets' checkpoints, newest first; `problem` is None where one holds."""
        return self._pages("/checkpoints", "checkpoints", {"dataset": dataset})

    def keys(self) -> list[Json]:
        """Return the public keys that sign checkpoints, oldest first; no token is needed."""
        return self._list("/keys", "keys")
