"""Routes for decisions: proposals that need two people, the inbox, offers."""

from collections.abc import Mapping
from typing import Any

from web.client.errors import Json
from web.client.transport import Transport, part


class DecidingRoutes(Transport):
    """Routes for pending decisions."""

    def correct(self, job_id: str, reason: str, **others: Any) -> Json:
        """Propose a correction of a settled job's charge. `others`: event, nothing, ex_post."""
        return self._json("POST", f"/jobs/{part(job_id)}/correct", json={"reason": reason, **others})

    def proposals(self, state: str = "open") -> list[Json]:
        """Return proposals: those that wait for a second steward, or those of another state."""
        return list(self._pages("/proposals", "proposals", {"state": state}))

    def proposal(self, proposal_id: str) -> Json:
        """One proposal."""
        return self._json("GET", f"/proposals/{part(proposal_id)}")

    def confirm(self, proposal_id: str, reason: str) -> Json:
        """Confirm another steward's proposal."""
        return self._json("POST", f"/proposals/{part(proposal_id)}/confirm", json={"reason": reason})

    def withdraw(self, proposal_id: str, reason: str) -> Json:
        """Close a proposal without effect."""
        return self._json("POST", f"/proposals/{part(proposal_id)}/withdraw", json={"reason": reason})

    # --- the inbox, and offers ----------------------------------------------------------------------

    def inbox(self) -> Json:
        """Return everything that waits for a steward: `jobs` with their `effect`, `proposals`, `access`."""
        first, *others = self._answers("/inbox", {})
        jobs = [job for answer in (first, *others) for job in answer.get("jobs", ())]
        return {"jobs": jobs, "proposals": first.get("proposals", []), "access": first.get("access", [])}

    def offers(self, *, state: str | None = None, job: str | None = None) -> list[Json]:
        """Open offers, or those of a state or a job, newest first: to an analyst, their own."""
        return list(self._pages("/offers", "offers", {"state": state, "job": job}))

    def offer(self, offer_id: str) -> Json:
        """One offer, with what accepting it would do now."""
        return self._json("GET", f"/offers/{part(offer_id)}")

    def price_offer(self, job_id: str, parameters: Mapping[str, Any]) -> Json:
        """Return the cost and effect of a request with these changed parameters now (stewards)."""
        body = {"parameters": dict(parameters)}
        return self._json("POST", f"/jobs/{part(job_id)}/offer/quote", json=body, repeat=True)

    def make_offer(self, job_id: str, parameters: Mapping[str, Any], reason: str) -> Json:
        """Refuse a request and offer a smaller one in its place; its analyst accepts or declines."""
        body = {"parameters": dict(parameters), "reason": reason}
        return self._json("POST", f"/jobs/{part(job_id)}/offer", json=body)

    def accept_offer(self, offer_id: str) -> Json:
        """Consent, as the analyst: the offered job is made. Answers the job."""
        return self._json("POST", f"/offers/{part(offer_id)}/accept")

    def decline_offer(self, offer_id: str, reason: str = "") -> Json:
        """Say no, as the analyst; nothing is charged."""
        return self._json("POST", f"/offers/{part(offer_id)}/decline", json={"reason": reason})

    def withdraw_offer(self, offer_id: str, reason: str) -> Json:
        """Take an offer back, as a steward."""
        return self._json("POST", f"/offers/{part(offer_id)}/withdraw", json={"reason": reason})
