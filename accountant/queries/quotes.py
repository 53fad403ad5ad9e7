"""The price of a job on a dataset as it stands, and the largest that fits."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from sqlalchemy import Engine

from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.core.ledger.accounts import NOTHING, Accounts, demand, with_largest
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.caps import NO_USAGE, beyond_caps, limits
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.base import quote
from accountant.core.mechanisms.fitting import Fitted, fit
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import releases
from accountant.core.privacy.pld_bounds import quoted
from accountant.core.privacy.price import Price, Terms
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.durations import duration
from accountant.queries.rows import dataset_row, seen_by
from accountant.queries.standing import Shape, Standing, refusal_shown
from accountant.schema.quotes import Fit, OnDataset, Output, Quote
from accountant.tables.accounts_row import read_books
from accountant.transactions import cap_usage
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import price_of, terms_of


def quote_on(
    engine: Engine,
    name: str,
    mechanism_id: str,
    raw: Mapping[str, Any],
    fit_field: str | None = None,
    epsilon: float | None = None,
    viewer: Actor | None = None,
    project: str | None = None,
    share: float | None = None,
    model: str | None = None,
) -> Quote:
    """Return the price of a request on a dataset, and what admission would say of it now (to
    `viewer`, if given).

    With `fit_field` the value of that field that spends as much as the dataset's filters and the
    caps of `viewer` and `project` have left (and of `epsilon` alone, where given) is found first.
    Raises NotFound and InvalidRequest. With `share` (above 0, to 1) the decision, the largest
    request and the fit are as if only so much of what is left were there; what the job does to the
    accounts is told of the whole. With `model` the quote says how long such jobs took here. Priced
    once, fits and refusals aside, which search over prices.
    """
    with reading(engine) as connection:
        row = dataset_row(connection, name)
        policy = Policy.model_validate(row.policy)
        capped = viewer is not None and bool(limits(policy))
        used = (
            cap_usage.used(connection, row.id, viewer.id, project)
            if viewer and capped
            else NO_USAGE
        )
    whole = usable = Standing(read_books(row).accounts, used, policy)
    terms = terms_of(row, whole.accounts)
    mechanism = mechanisms.get(mechanism_id)
    overseer = viewer is None or bool(seen_by(viewer, row).roles & OVERSEERS)
    if share is not None:
        usable = whole.shown(overseer).part(Fraction(share))
    fit_told: dict[str, Any] = {}
    if fit_field is None:
        parameters = mechanism.parse(raw, terms)
    else:

        def within_caps(price: Price) -> bool:
            alone = None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0]
            return beyond_caps(usable.used, policy, alone) is None

        fitting = usable.shown(overseer).accounts
        found = fitted(
            mechanism,
            raw,
            terms,
            fit_field,
            epsilon,
            fitting,
            within_caps=within_caps if capped else None,
            share=share,
        )
        parameters = found.parameters
        fit_told = {"fit": Fit(field=fit_field, value=found.value)}
    price = price_of(mechanism, parameters, terms)
    stated = quote(mechanism, parameters, terms, price, quoted)
    alone = 0.0 if stated["dp"] is None else stated["dp"]["epsilon"]
    job = Shape(demand(price), alone)
    decision = usable.decide(job, approved=False)
    refusal = None
    if isinstance(decision, Refused):
        if decision.cap not in ("policy", "allowance", "overdrawn"):  # no size would help there
            shape = (mechanism, raw, terms)
            decision = with_largest(decision, *shape, usable.accounts, policy, usable.used)
        refusal = refusal_shown(decision.to_json(), whole.accounts.ex_post.settlement, overseer)
    told = whole.effect(job, terms=terms, realized_shown=overseer, refusal=refusal).document()
    dataset = {**told, "name": name, "decision": type(decision).__name__, "refusal": refusal or {}}
    if job.asked != NOTHING:
        dataset["results_every_seconds"] = policy.results_every_seconds
    made = mechanism.yields(parameters, terms)
    output = None if made is None else Output(**asdict(made), sentence=made.sentence())
    with reading(engine) as connection:
        lasts = duration(connection, mechanism, parameters, model)
    return Quote(**stated, **fit_told, output=output, duration=lasts, dataset=OnDataset(**dataset))


def fitted(
    mechanism: Any,
    raw: Mapping[str, Any],
    terms: Terms,
    field: str,
    epsilon: float | None,
    accounts: Accounts,
    within_caps: Callable[[Price], bool] | None = None,
    share: float | None = None,
) -> Fitted:
    """Return the value of `field`, and parameters with it, spending the most that fits `epsilon`
    alone and here.

    `within_caps`: whether the caps of who asks have room for a price, where the policy sets any.
    `share`: the part of what is left that `accounts` are, for the error where nothing fits.
    """

    def affordable(price: Price) -> bool:
        asked = demand(price)
        # Before the first allowance there is no filter to fit, and a quote is still wanted.
        if (accounts.dp is not None or not releases(asked.dp)) and not accounts.fits(asked):
            return False
        if within_caps is not None and not within_caps(price):
            return False
        return (
            epsilon is None
            or price.dp is None
            or epsilon_alone(price.dp, terms.delta)[0] <= epsilon
        )

    found = fit(mechanism, raw, terms, field, affordable)
    if found is None and share is not None and share < 1:
        raise invalid(
            field,
            f"no value fits {share:.0%} of what is left",
            "a larger part, or other parameters",
        )
    if found is None:
        raise invalid(field, "no value in its range fits", "a larger epsilon, or other parameters")
    return found
