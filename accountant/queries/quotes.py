"""The price of a job on a dataset as it stands, and the largest that fits."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from statistics import median
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row, func, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.core.ledger import charges
from accountant.core.ledger.accounts import NOTHING, demand, with_largest
from accountant.core.ledger.admission import Refused, Waits
from accountant.core.ledger.caps import NO_USAGE, beyond_caps, limits
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms import outlooks, rehearsal
from accountant.core.mechanisms.base import Mechanism, Yield, quote
from accountant.core.mechanisms.fitting import Fitted, fit
from accountant.core.mechanisms.outlooks import outlook
from accountant.core.mechanisms.seconds import Work, predicted, work
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import releases
from accountant.core.privacy.pld_bounds import quoted
from accountant.core.privacy.price import Price, Terms
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.dataset_rows import dataset_row, language_model_row, seen_by
from accountant.queries.standing import Shape, Standing, refusal_shown
from accountant.schema.quotes import Duration, Fit, OnDataset, Outlook, Output, Quote
from accountant.tables.accounts_row import read_books
from accountant.transactions import cap_usage
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import check_data, price_of, terms_of


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
        vouched = charges.level(mechanism_id, raw)
        whole = usable = standing_for(connection, row, viewer, project, vouched)
    check_data(mechanism_id, row.data_is_here)
    policy, terms = whole.policy, terms_of(row, whole.accounts)
    mechanism = mechanisms.get(mechanism_id)
    overseer = is_overseer(viewer, row)
    if share is not None:
        usable = whole.shown(overseer).part(Fraction(share))
    fit_told: dict[str, Any] = {}
    if fit_field is None:
        parameters = mechanism.parse(raw, terms)
    else:
        affordable = affordable_by(usable.shown(overseer), terms, epsilon)
        best = fitted(mechanism, raw, terms, fit_field, affordable, share)
        parameters = best.parameters
        fit_told = {"fit": Fit(field=fit_field, value=best.value)}
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
    document = whole.effect(job, terms=terms, realized_shown=overseer, refusal=refusal).document()
    dataset = {
        **document,
        "name": name,
        "unit": row.unit_column or "record",
        "decision": type(decision).__name__,
        "waits": decision.why if isinstance(decision, Waits) else None,
        "refusal": refusal or {},
    }
    if job.asked != NOTHING:
        dataset["results_every_seconds"] = policy.results_every_seconds
    output = output_of(mechanism.yields(parameters, terms))
    with reading(engine) as connection:
        lasts = duration(connection, mechanism, parameters, terms, model)
        found = language_model_row(connection, model) if mechanism.uses_model else None
    facts = None if found is None else found.facts
    worth = outlook_of(outlook(mechanism, parameters, terms, facts))
    return Quote(
        **stated,
        **fit_told,
        output=output,
        outlook=worth,
        duration=lasts,
        dataset=OnDataset(**dataset),
    )


def facts_of(connection: Connection, names: set[str | None]) -> dict[str, Mapping[str, Any]]:
    """Return the public facts of the models named, as far as a worker has found them."""
    if not any(names):
        return {}
    models = tables.models
    query = select(models.c.name, models.c.facts).where(models.c.name.in_(filter(None, names)))
    return {row.name: row.facts or {} for row in connection.execute(query)}


def output_of(yields: Yield | None) -> Output | None:
    """Return what a job would write, as an answer says it."""
    return None if yields is None else Output(**asdict(yields), sentence=yields.sentence())


def outlook_of(found: outlooks.Outlook | None) -> Outlook | None:
    """Return the verdict on a request, as an answer says it."""
    if found is None:
        return None
    return Outlook(
        verdict=found.verdict, floor=found.floor, noise=found.noise, sentence=found.sentence()
    )


def standing_for(
    connection: Connection,
    row: Row[Any],
    viewer: Actor | None,
    project: str | None,
    vouched: str = charges.MEASURED,
) -> Standing:
    """Return how a dataset stands for whoever asks: with the use of caps by them, by the project,
    and by charges that are vouched for alike.
    """
    policy = Policy.model_validate(row.policy)
    used = NO_USAGE
    if viewer is not None and limits(policy):
        holders = cap_usage.holders_of(viewer.id, project, vouched)
        used = cap_usage.used(connection, row.id, holders)
        shared = cap_usage.shared(connection, row.id, policy, datetime.now(UTC))
        used = used.sharing(shared, cap_usage.sharer(policy, viewer.name, project))
    return Standing(read_books(row).accounts, used, policy)


def is_overseer(viewer: Actor | None, row: Row[Any]) -> bool:
    """Return True if realized costs may be told: nobody asks, or one of the dataset's overseers."""
    return viewer is None or bool(seen_by(viewer, row).roles & OVERSEERS)


def affordable_by(
    standing: Standing, terms: Terms, epsilon: float | None = None
) -> Callable[[Price], bool]:
    """Return the test whether a price fits a standing's accounts and caps, and `epsilon` alone."""
    accounts, capped = standing.accounts, bool(limits(standing.policy))

    def affordable(price: Price) -> bool:
        needed = demand(price)
        # Before the first allowance there is no filter to fit, and a quote is still wanted.
        if (accounts.dp is not None or not releases(needed.dp)) and not accounts.fits(needed):
            return False
        if epsilon is None and not capped:
            return True
        alone = None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0]
        if capped and beyond_caps(standing.used, standing.policy, alone) is not None:
            return False
        return epsilon is None or alone is None or alone <= epsilon

    return affordable


def fitted(
    mechanism: Any,
    raw: Mapping[str, Any],
    terms: Terms,
    field: str,
    affordable: Callable[[Price], bool],
    share: float | None = None,
) -> Fitted:
    """Return the value of `field`, and parameters with it, spending the most that is affordable.

    `share`: the part of what is left that may be spent, for the error where nothing fits.
    """
    best = fit(mechanism, raw, terms, field, affordable)
    if best is None and share is not None and share < 1:
        raise invalid(
            field,
            f"no value fits {share:.0%} of what is left",
            "a larger part, or other parameters",
        )
    if best is None:
        raise invalid(field, "no value in its range fits", "a larger epsilon, or other parameters")
    return best


# --- How long jobs took here: what the same mechanism and model took on public things
# No run of a job that reads records counts: how long one took depends on its data.

#: The newest jobs that are counted.
NEWEST_JOBS = 20


def duration(
    connection: Connection,
    mechanism: Mechanism[Any],
    parameters: Any,
    terms: Terms,
    model: str | None,
) -> Duration | None:
    """Return how long a request takes by its size and by what such jobs took here, or None if none
    has run.

    A request that reads records is told by its rehearsals. Any other is told by jobs like it. Where
    sizes don't tell, or too few have run, it is the median.
    """
    reuses = getattr(parameters, "from_job", None) is not None
    reads_records = not (mechanism.public or mechanism.reads_output or reuses)
    jobs, models, corpora = tables.jobs, tables.models, tables.corpora
    writer = getattr(parameters, "writer", None)
    took = func.extract("epoch", jobs.c.finished_at - jobs.c.started_at)
    corpus = jobs.c.parameters[rehearsal.CORPUS].astext
    newest = (
        select(
            took.label("seconds"),
            jobs.c.parameters,
            jobs.c.terms,
            corpora.c.facts["texts"].as_integer().label("texts"),
        )
        .outerjoin(models, models.c.id == jobs.c.model_id)
        .outerjoin(corpora, corpora.c.name == corpus)
        .where(
            jobs.c.mechanism == (rehearsal.PREFIX if reads_records else "") + mechanism.id,
            models.c.name.is_not_distinct_from(model if mechanism.uses_model else None),
            jobs.c.parameters["writer"].astext.is_not_distinct_from(writer),
            jobs.c.state == "succeeded",
            ~jobs.c.reads_records,
        )
        .order_by(jobs.c.created_at.desc())
        .limit(NEWEST_JOBS)
    )
    ran = connection.execute(newest).all()
    if not ran:
        return None
    kind = "rehearsal" if reads_records else "job"
    like = f"of this mechanism{' with this model' if mechanism.uses_model else ''} here"
    wanted = work(parameters, terms, terms.public_size) if reads_records else None
    if wanted is not None:
        sized = [(done, float(row.seconds)) for row in ran if (done := _work(mechanism, row))]
        seconds = predicted(sized, wanted)
        if seconds is not None:  # of at least three, and not of those without a size
            told = (
                f"about {in_words(seconds)}, by its size and the last {len(sized)} {kind}s {like}"
            )
            return Duration(seconds=seconds, jobs=len(sized), sized=True, sentence=told)
    seconds, of = (
        float(median(row.seconds for row in ran)),
        f"the median of the last {len(ran)} {kind}s",
    )
    told = (
        f"{in_words(seconds)} in {f'the last {kind}' if len(ran) == 1 else of} {like}, of any size"
    )
    return Duration(seconds=seconds, jobs=len(ran), sized=False, sentence=told)


def _work(mechanism: Mechanism[Any], run: Row[Any]) -> Work | None:
    """Return the work of a rehearsal that ran; None if its corpus is unknown, or fields of it are:
    an older release kept others.
    """
    if run.texts is None:
        return None
    terms = Terms.from_json(run.terms)
    try:
        parameters = mechanism.parameters.model_validate(rehearsal.rehearsed(run.parameters))
    except ValidationError:
        return None
    most = run.parameters.get(rehearsal.TEXTS) or terms.public_size or run.texts
    held_out = rehearsal.held_out(run.texts)
    texts = min(run.texts - held_out, most)
    return work(rehearsal.filled(parameters, terms, texts), terms, texts, held_out)


def in_words(seconds: float) -> str:
    """Return a duration with one or two digits: "8 seconds", "4 minutes", "2.5 hours"."""
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= 1.5 * size or size == 1:
            count = seconds / size
            shown = f"{max(1, round(count)):,}" if count >= 10 or size == 1 else f"{count:.2g}"
            return f"{shown} {name}" + ("" if shown == "1" else "s")
    raise AssertionError
