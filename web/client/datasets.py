"""A dataset as an object: its price list, its budget, its ledger."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from accountant.core.privacy.units import percent_up
from accountant.schema.ledgers import Entry
from accountant.schema.quotes import Proposal
from web.client.api import Api
from web.client.charges import Charge, warn_closing
from web.client.charts import FILTERS, Chart, budget_chart
from web.client.errors import Json
from web.client.facts import Budget, DatasetFacts, Quote, facts_html, lines_html, read
from web.client.files import draft
from web.client.jobs import Job


class Dataset:
    """One dataset. `facts` is how it stood when the server was last asked; `refresh` asks again."""

    def __init__(self, api: Api, document: Mapping[str, Any]):
        self._api = api
        self._take(document)

    def _take(self, document: Mapping[str, Any]) -> Self:
        self.document: Json = dict(document)
        self.facts = read(DatasetFacts, document)
        return self

    @property
    def name(self) -> str:
        """Its name."""
        return self.facts.name

    def refresh(self) -> Self:
        """Ask the server how it stands now."""
        return self._take(self._api.dataset(self.name))

    # --- asking
    # ---------------------------------------------------------------------------------------

    def price(
        self,
        mechanism: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        project: str | None = None,
    ) -> Quote:
        """Return a request's price here, and the decision now. Free, and changes nothing."""
        return read(Quote, self._api.quote(self.name, mechanism, parameters or {}, project=project))

    def propose(
        self,
        goal: str = "texts",
        *,
        share: float | None = None,
        model: str | None = None,
        project: str | None = None,
    ) -> Proposal:
        """Return what to ask for here to reach a goal (texts, phrases, summaries, counts).

        share: the part of what is left that it may spend. `mechanism` is None where nothing would
        be enough; otherwise `submit(found.mechanism, found.parameters, model=found.model)` asks.
        """
        found = self._api.proposal(self.name, goal, share=share, model=model, project=project)
        return read(Proposal, found)

    def fit(
        self,
        mechanism: str,
        field: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        epsilon: float | None = None,
        project: str | None = None,
    ) -> Quote:
        """Return the price with the value of `field` that spends the most of what is left (and of
        ε, if given).

        `quote.parameters` can be submitted as it is.
        """
        quote = self._api.quote(
            self.name, mechanism, parameters or {}, fit=field, epsilon=epsilon, project=project
        )
        return read(Quote, quote)

    def submit(
        self,
        mechanism: str | Quote,
        parameters: Mapping[str, Any] | None = None,
        *,
        model: str | None = None,
        purpose: str = "",
        project: str | None = None,
        key: str | None = None,
    ) -> Job:
        """Submit a job, or what was quoted. Raises Refused where that is decided at once.

        Warns first of a job, not yet quoted, that closes a filter for good.

        key: the same key and request are the same job, however often this runs (a notebook's cell,
        say); without one, each call is a job of its own, and its retries never a second one.
        """
        quoted = isinstance(mechanism, Quote) and not parameters
        if isinstance(mechanism, Quote):
            parameters = {**mechanism.parameters, **(parameters or {})}
            mechanism = mechanism.mechanism
        request: Json = {
            "dataset": self.name,
            "mechanism": mechanism,
            "model": model,
            "purpose": purpose,
        }
        request |= {"parameters": dict(parameters or {})}
        request |= {} if project is None else {"project": project}
        if not quoted:
            warn_closing(self._api, request)
        return Job(self._api, self._api.submit(request, key=key))._checked()

    def charge(self, event: Any, **stated: Any) -> Charge:
        """Return a charge of what another program releases about it, for a `with` block.

        event: dp_sgd(...), a dp-accounting event, Opacus' history, (ε, δ), {"rho": ρ}. stated:
        tool, unit, relation and purpose; records_per_unit, project, runner, lease_seconds, timeout.
        """
        return Charge(self._api, self.name, event, **stated)

    def jobs(self, **wanted: str | None) -> Iterator[Job]:
        """Return its jobs that you may see, newest first, read a page at a time.

        wanted: state, mechanism, analyst, since, until (a day, or a time with its offset).
        """
        return (Job(self._api, job) for job in self._api.all_jobs(dataset=self.name, **wanted))

    # --- the budget
    # -----------------------------------------------------------------------------------

    def budget(self) -> Budget:
        """Return the allowance with what is spent, reserved and left now."""
        facts = self.refresh().facts
        return Budget(
            dataset=facts.name,
            account=facts.account,
            ex_post=facts.ex_post,
            secret=facts.secret,
            caps=facts.caps,
            statements=facts.statements,
            remaining=facts.remaining,
        )

    def budget_chart(self) -> Chart:
        """Return the budget as a picture for a notebook; `save(path)` writes the SVG."""
        return budget_chart(self.budget())

    def spending(self) -> Json:
        """Return the balance over time, and its use by month, analyst and mechanism."""
        return self._api.spending(self.name)

    # --- the steward's and the auditor's
    # --------------------------------------------------------------

    def allow(
        self, epsilon: str | None, delta: str | None, reason: str, **others: Any
    ) -> Json | None:
        """Set the allowance, in all, as decimal texts.

        Returns the decision that a second steward answers, if two people are needed.
        """
        decision: Json | None = self._api.allow(self.name, epsilon, delta, reason, **others).get(
            "decision"
        )
        self.refresh()
        return decision

    def set_policy(self, **changes: Any) -> dict[str, Any]:
        """Change what is named of the policy; the rest stays. Returns the policy that stands then.

        That is the old one where `two_people` stands and this is weaker: another steward confirms
        the whole. Raises ApiProblem with the code `changed` where somebody else changed it in
        between.
        """
        policy, seen = self._api.tagged_policy(self.name)
        self._api.set_policy(self.name, {**policy, **changes}, seen=seen)
        return dict(self.refresh().document["policy"])

    def ledger(self) -> Iterator[Entry]:
        """Return its entries, newest first, read a page at a time (stewards and auditors)."""
        return (read(Entry, entry) for entry in self._api.whole_ledger(self.name))

    def export_ledger(
        self, path: str | Path, *, format: str = "jsonl", public: bool = False
    ) -> Path:
        """Save the ledger, `jsonl` or `csv`; `exchequer verify` checks `jsonl` offline."""
        target = Path(path)
        with draft(target) as file:
            self._api.save_ledger(self.name, format, file, public=public)
        return target

    # --- showing
    # --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Dataset {self.name!r}: {self.facts.state}, {_allowance(self.facts)}>"

    def _repr_html_(self) -> str:
        facts = self.facts
        account = facts.account
        left = () if account is None else account.filters
        table = facts_html(
            facts.name,
            (
                ("description", facts.description or None),
                ("state", facts.state),
                ("privacy unit", facts.unit),
                ("neighbours", facts.neighbours),
                ("public size", facts.public_size),
                ("labels", ", ".join(facts.labels) or None),
                ("allowance", _allowance(facts)),
                *(
                    (
                        f"{FILTERS.get(filter_.kind, filter_.kind)}, used",
                        percent_up(filter_.used_share),
                    )
                    for filter_ in left
                ),
            ),
        )
        return table + lines_html(statement.text for statement in facts.statements)


def _allowance(facts: DatasetFacts) -> str:
    account = facts.account
    return "no allowance yet" if account is None else f"ε {account.epsilon} at δ {account.delta}"
