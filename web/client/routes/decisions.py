"""Routes for decisions: what a second person is asked, and their answer."""

from collections.abc import Mapping
from typing import Any

from web.client.errors import Json
from web.client.transport import Transport, part


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
        """Propose a correction of a settled job's charge. `others`: event, nothing, ex_post."""
        return self._json(
            "POST", f"/jobs/{part(job_id)}/correct", json={"reason": reason, **others}
        )

    def price_offer(self, job_id: str, parameters: Mapping[str, Any]) -> Json:
        """Return the cost and effect of a request with these changed parameters now (stewards)."""
        body = {"parameters": dict(parameters)}
        return self._json("POST", f"/jobs/{part(job_id)}/offer/quote", json=body, repeat=True)

    def offer(self, job_id: str, parameters: Mapping[str, Any], reason: str) -> Json:
        """Refuse a request and offer a smaller one in its place, which its analyst answers."""
        body = {"parameters": dict(parameters), "reason": reason}
        return self._json("POST", f"/jobs/{part(job_id)}/offer", json=body)
