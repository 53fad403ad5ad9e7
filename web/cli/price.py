"""`exchequer price`: what a job would cost, without a server or on a dataset."""

import json
import math
from collections.abc import Iterator
from typing import Annotated, Any, TextIO

import typer
from rich.table import Table

from accountant.core.errors import FieldProblem, InvalidRequest, invalid
from accountant.core.names import FILTER_NAMES
from accountant.core.privacy.units import percent_up, up
from web.cli import completion
from web.cli.answers import Answer
from web.cli.output import facts, require_finite, table
from web.cli.session import connect
from web.client.errors import cap_text

Quote = dict[str, Any]


def price(
    mechanism: Annotated[
        str | None,
        typer.Argument(help="Such as private-prediction.", autocompletion=completion.mechanisms),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter; repeat it.")
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option(metavar="add-remove|replace-one", help="Neighbouring relation. [add-remove]"),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ at which ε is quoted. [1e-6]")] = None,
    fit: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Find the value of FIELD that spends the most of ε."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The ε that --fit may spend.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Ask the server, on this dataset's terms.", autocompletion=completion.datasets
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="With --dataset: whose cap counts, too.")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="With --dataset: of what is left only this part, 0 to 1."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --dataset: the model that would run it; says how long it takes."),
    ] = None,
    public_size: Annotated[
        int | None, typer.Option(help="The size that all may know, a round figure.")
    ] = None,
    max_records_per_unit: Annotated[
        int | None, typer.Option(help="Records kept of one unit. [1]")
    ] = None,
    labels: Annotated[str | None, typer.Option(metavar="A,B,...", help="Declared labels.")] = None,
    event: Annotated[
        typer.FileText | None,
        typer.Option(
            metavar="FILE",
            encoding="utf-8",
            help="Price an event of another tool instead, from a file of JSON.",
        ),
    ] = None,
    as_dp_event: Annotated[
        bool, typer.Option("--as-dp-event", help="Write the event as dp-accounting's, as JSON.")
    ] = False,
    secret: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="For secpe: what the data states about secrets."),
    ] = None,
) -> Answer:
    """See what a job costs. You need no server, but for --dataset."""
    raw = parameters(settings or [])
    _check_fit(raw, fit, epsilon, dataset)
    terms = {
        "neighbours": neighbours,
        "delta": delta,
        "public_size": public_size,
        "max_records_per_unit": max_records_per_unit,
        "labels": None if labels is None else split(labels),
        "secret": None if secret is None else read_json("--secret", secret),
    }
    stated = {name: value for name, value in terms.items() if value is not None}
    if (mechanism is None) == (event is None):
        raise invalid(
            "MECHANISM", "a mechanism or an event is priced", "MECHANISM, or --event FILE"
        )
    if event is not None:
        beside = {"--set": raw, "--fit": fit, "--dataset": dataset, "--project": project}
        for option, value in beside.items():
            if value:
                raise invalid(option, "an event is priced by itself", f"no {option} beside --event")
        quote = price_event(event, stated)
    elif dataset is None:
        for option, given_with in (("--project", project), ("--share", share), ("--model", model)):
            if given_with is not None:
                raise invalid(option, "it is of a dataset", "--dataset NAME beside it")
        quote = price_alone(str(mechanism), raw, stated, fit, epsilon)
    else:
        _refuse_terms(stated)
        quote = price_on(dataset, str(mechanism), raw, fit, epsilon, project, share, model)
    if as_dp_event:
        written = _as_dp_event(quote)
        yield written
        yield json.dumps(written, indent=2)
        return
    yield quote
    yield from shown(quote)


def parameters(settings: list[str]) -> dict[str, Any]:
    """Return the values of --set: JSON where they parse as JSON, else text."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise invalid("--set", f"{setting!r} is no setting", "KEY=VALUE, such as batch_size=64")
        if name in values:
            raise invalid(name, "it is set twice", "one --set for each parameter")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def read_json(option: str, text: str) -> dict[str, Any]:
    """Return a JSON object given to an option. Raises InvalidRequest naming it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise invalid(option, "it is no JSON object", '{"prior": 0.0001, "bound": 0.001, ...}')
    return value


def split(text: str) -> list[str]:
    """Return names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_fit(raw: Quote, fit: str | None, epsilon: float | None, dataset: str | None) -> None:
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        raise invalid("--epsilon", f"{epsilon} is out of range", "a finite number of at least 0")
    if epsilon is not None and fit is None:
        raise invalid(
            "--epsilon", "it says what --fit may spend, and --fit is missing", "--fit FIELD"
        )
    if fit is not None and epsilon is None and dataset is None:
        raise invalid(
            "--fit", "nothing says how much may be spent", "--epsilon E, or --dataset NAME"
        )
    if fit is not None and fit in raw:
        raise invalid(fit, "it is both set and fitted", "either --set or --fit")


def _refuse_terms(given: Quote) -> None:
    """A dataset has its own terms; quoting others for it would mislead."""
    options = [f"--{name.replace('_', '-')}" for name in given]
    if options:
        raise InvalidRequest(
            FieldProblem(option, "the dataset's own value is used", f"no {option} beside --dataset")
            for option in options
        )


def price_alone(
    mechanism_id: str,
    raw: Quote,
    given: Quote,
    fit: str | None = None,
    epsilon: float | None = None,
) -> Quote:
    """Return the quote of the contract (DESIGN section 9), from the pure core."""
    from accountant.core import mechanisms
    from accountant.core.mechanisms import base, fitting
    from accountant.core.privacy.composition import epsilon_alone
    from accountant.core.privacy.price import Price

    mechanism = mechanisms.get(mechanism_id)
    terms = _terms(given)
    if fit is None:
        return base.quote(mechanism, mechanism.parse(raw, terms), terms)
    limit = math.inf if epsilon is None else epsilon

    def affordable(price: Price) -> bool:
        if price.dp is None:
            raise invalid(
                "--fit", f"{mechanism_id} costs no ε by these parameters", "--fit with --dataset"
            )
        return epsilon_alone(price.dp, terms.delta)[0] <= limit

    best = fitting.fit(mechanism, raw, terms, fit, affordable)
    if best is None:
        raise invalid(fit, f"no value in its range costs at most ε {limit:g}", "a larger --epsilon")
    quote = base.quote(mechanism, best.parameters, terms)
    return quote | {"fit": {"field": fit, "value": best.value}}


def price_event(file: TextIO, given: Quote) -> Quote:
    """Return the quote of an event in a file, read under the relation given."""
    from accountant.core.mechanisms import base
    from accountant.core.privacy.foreign_events import read_event

    terms = _terms(given)
    try:
        value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise invalid("--event", f"it is no JSON: {error}", "a file of JSON, or -") from None
    event = read_event(value, terms.neighbours)
    return {
        "mechanism": None,
        "parameters": {},
        "neighbours": str(terms.neighbours),
        "dp": base.quoted(event, terms.delta),
        "ex_post": None,
        "secret": None,
        "breakdown": [],
    }


def _as_dp_event(quote: Quote) -> Quote:
    """Return a quote's event as dp-accounting's. Raises InvalidRequest if it has none."""
    from accountant.core.privacy.events import from_json
    from accountant.core.privacy.foreign_events import as_dp_event

    if quote["dp"] is None:
        raise invalid("--as-dp-event", "the job has no (ε, δ) price", "a job with an event")
    return as_dp_event(from_json(quote["dp"]["event"]))


def _terms(given: Quote) -> Any:
    """Return a price's terms without a dataset. Raises InvalidRequest naming each wrong one."""
    from accountant.core.privacy.price import Neighbours, Terms

    allowed = [str(neighbour) for neighbour in Neighbours]
    problems = []
    if given.get("neighbours", allowed[0]) not in allowed:
        problem = f"unknown relation {given['neighbours']!r}"
        problems.append(FieldProblem("--neighbours", problem, ", ".join(allowed)))
    delta = given.get("delta", 0.5)
    if not 0 < delta < 1:
        problems.append(
            FieldProblem("--delta", f"{delta} is out of range", "a number above 0 and below 1")
        )
    for name in ("public_size", "max_records_per_unit"):
        if given.get(name, 1) < 1:
            option = f"--{name.replace('_', '-')}"
            problems.append(
                FieldProblem(option, f"{given[name]} is out of range", "a whole number from 1")
            )
    if problems:
        raise InvalidRequest(problems)
    chosen = dict(given)
    if "neighbours" in given:
        chosen["neighbours"] = Neighbours(given["neighbours"])
    if "labels" in given:
        chosen["labels"] = tuple(given["labels"])
    if "secret" in given:
        from accountant.core.privacy.secrets import SecretTerms

        chosen["secret"] = SecretTerms.from_json(given["secret"])
    return Terms(**chosen)


def price_on(
    dataset: str,
    mechanism_id: str,
    raw: Quote,
    fit: str | None = None,
    epsilon: float | None = None,
    project: str | None = None,
    share: float | None = None,
    model: str | None = None,
) -> Quote:
    """Return the server's quote on a dataset."""
    require_finite(raw, "")
    with connect() as client:
        quote = client.quote(
            dataset,
            mechanism_id,
            raw,
            fit=fit,
            epsilon=epsilon,
            project=project,
            share=share,
            model=model,
        )
    if fit is not None and "fit" not in quote:
        quote["fit"] = {"field": fit, "value": quote["parameters"].get(fit)}
    return quote


# --- for people ---------------------------------------------------------------------------------


def shown(quote: Quote) -> Iterator[str | Table]:
    """Yield a quote for people."""
    parameters = {name: value for name, value in quote["parameters"].items() if value is not None}
    dp = quote["dp"]
    rows: list[tuple[str, object]] = [("neighbours", quote["neighbours"])]
    if quote["mechanism"] is not None:
        rows.insert(0, ("mechanism", quote["mechanism"]))
    if quote.get("output"):
        rows.append(("writes", quote["output"]["sentence"]))
    if quote.get("outlook"):
        rows.append(("worth", quote["outlook"]["sentence"]))
    if quote.get("duration"):
        rows.append(("takes", quote["duration"]["sentence"]))
    every = quote.get("dataset", {}).get("results_every_seconds")
    if every:
        rows.append(("results appear", f"{every:,} seconds after it begins, or a multiple of that"))
    if "fit" in quote:
        rows.append(("fitted", f"{quote['fit']['field']} = {quote['fit']['value']:,}"))
    if dp is not None:
        at = f"ε {up(dp['epsilon'], 6):.6g} at δ {up(dp['delta'], 6):g} ({dp['accountant']})"
        rows.append(("price", at if dp.get("pure") is None else f"pure ε {up(dp['pure'], 6):.6g}"))
        if dp["to_key_holders"] is not None:
            known = f"ε {up(dp['to_key_holders'], 6):.6g} for whoever knows the batches"
            rows.append(("not secret", known))
    if quote["ex_post"] is not None:
        rows.append(("ex-post cap", f"ε {up(quote['ex_post']['cap'], 6):g}"))
    if quote["secret"] is not None:
        rows.append(("secret", json.dumps(quote["secret"])))
    yield facts(rows)
    yield from (f"  {line}" for line in quote["breakdown"])
    if parameters:
        yield table(
            ["parameter", "value"], [(name, _plain(value)) for name, value in parameters.items()]
        )
    if "dataset" in quote:
        yield from dataset_part(quote["dataset"])


def _plain(value: object) -> str:
    return value.replace("\n", "\\n") if isinstance(value, str) else json.dumps(value)


DECISIONS = {
    "Admitted": "it fits, and its price needs nobody's approval",
    "NeedsApproval": "it fits, and waits for a steward's approval",
    "Refused": "it would be refused",
    "Waits": "it fits, and waits for a release",
}


def dataset_part(on: Quote) -> Iterator[str | Table]:
    """Yield the words of a dataset's account about a quote."""
    yield f"on {on['name']}: {DECISIONS.get(on['decision'], on['decision'])}"
    if on.get("waits"):
        yield f"  {on['waits']}"
    if on.get("refusal"):
        yield from _refusal(on["refusal"])
    for when, left in (("now", on.get("remaining")), ("after it", on.get("remaining_after"))):
        if left:
            yield f"{when}: {left['sentence']}"
    if on.get("filters"):
        rows = [
            (FILTER_NAMES[filter_["kind"]], _share(filter_["before"]), _share(filter_["after"]))
            for filter_ in on["filters"]
        ]
        yield table(["filter", "used before", "used after"], rows, right="used before after")
        left = on["jobs_of_this_shape"]
        yield f"jobs of this shape left: {'not told' if left is None else left}"


def _refusal(refusal: Quote) -> Iterator[str]:
    """Yield a refusal: the cap, what was asked, what is left, and the largest that fits."""
    yield f"  {refusal['why']}"
    if refusal.get("asked") is not None:
        cap, asked, left = cap_text(refusal["cap"]), refusal["asked"], refusal["left"]
        yield f"  binding cap: {cap}; asked: {asked}; left: {left}"
    if refusal.get("largest") is not None:
        yield f"  the largest that fits: --set {refusal['size_field']}={refusal['largest']}"


def _share(value: float | None) -> str:
    return "closes" if value is None else percent_up(value)
