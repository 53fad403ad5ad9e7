"""`dataset allow | policy`: what jobs on a dataset may spend, and who may ask for what."""

from typing import Annotated, Any, get_origin

import typer

from accountant.core.ledger.policy import Policy
from web.cli.answers import Answer
from web.cli.data import allowance_text, used_text
from web.cli.options import DatasetName
from web.cli.output import facts
from web.cli.price import parameters, read_json, split
from web.cli.session import connect

PROPOSED = "proposed; another steward runs: exchequer decision answer {id} --yes --reason TEXT"


def allow(
    dataset: DatasetName,
    reason: Annotated[str, typer.Option(help="Why; it stands in the ledger.")],
    epsilon: Annotated[str | None, typer.Option(help="New total ε, in place of the old.")] = None,
    delta: Annotated[str | None, typer.Option(help="New total δ, in place of the old.")] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER=SHARE", help="Parts of the first δ, for all four."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(help="Rényi order of the first allowance. [chosen]"),
    ] = None,
    ex_post: Annotated[str | None, typer.Option(help="New total of all ex-post caps.")] = None,
    settlement: Annotated[
        str | None,
        typer.Option(metavar="planned|realized", help="How an ex-post job is charged."),
    ] = None,
    secret: Annotated[
        str | None, typer.Option(metavar="JSON", help="What you state about secrets.")
    ] = None,
) -> Answer:
    """Set what all jobs on a dataset may spend together."""
    from accountant.core.privacy.units import exact

    for name, amount in (("epsilon", epsilon), ("delta", delta), ("ex_post", ex_post)):
        if amount is not None:
            exact(amount, name)  # a slip is told before anything is sent
    options = {
        "shares": dict(pair.partition("=")[::2] for pair in share) if share else None,
        "order": order,
        "ex_post": ex_post,
        "ex_post_settlement": settlement,
        "secret": None if secret is None else read_json("--secret", secret),
    }
    with connect() as client:
        stated = {name: value for name, value in options.items() if value is not None}
        decision = client.allow(dataset, epsilon, delta, reason, **stated).get("decision")
        registered = client.dataset(dataset)
    yield registered if decision is None else decision
    if decision is not None:
        yield PROPOSED.format(id=decision["id"])
    elif registered["account"] is None:
        yield f"{dataset}: allowance changed; no (ε, δ) is allowed yet"
    else:
        allowed, used = allowance_text(registered), used_text(registered)
        yield f"{dataset}: allowance {allowed}, {used} of it used"


def policy(
    dataset: DatasetName,
    auto_approve_epsilon: Annotated[
        str | None, typer.Option("--auto-approve", help="ε up to which a job needs no approval.")
    ] = None,
    solo: Annotated[
        bool | None,
        typer.Option("--solo/--no-solo", help="A steward may approve a job of their own."),
    ] = None,
    departed_analysts: Annotated[
        bool | None,
        typer.Option(
            "--departed-analysts/--present-analysts",
            help="A steward may approve requests of people who left.",
        ),
    ] = None,
    share_artifacts: Annotated[
        bool | None,
        typer.Option(
            "--share-artifacts/--keep-artifacts", help="All who may ask see the artifacts of all."
        ),
    ] = None,
    mechanisms: Annotated[
        str | None, typer.Option(metavar="A,B,...", help='"" allows all.')
    ] = None,
    analysts: Annotated[str | None, typer.Option(metavar="A,B,...", help='"" allows all.')] = None,
    models: Annotated[str | None, typer.Option(metavar="A,B,...", help='"" allows all.')] = None,
    stewards: Annotated[
        str | None, typer.Option(metavar="A,B,...", help='Owners; "": all stewards.')
    ] = None,
    auditors: Annotated[
        str | None, typer.Option(metavar="A,B,...", help='Owners; "": all auditors.')
    ] = None,
    approval_days: Annotated[
        int | None, typer.Option(help="Days until a request ends; 0: never.")
    ] = None,
    analyst_epsilon: Annotated[
        str | None, typer.Option(help='Cap on one person\'s sum of stand-alone ε; "": none.')
    ] = None,
    project_epsilon: Annotated[
        str | None, typer.Option(help='The same for one project; "": none.')
    ] = None,
    stated_charges_epsilon: Annotated[
        str | None,
        typer.Option(
            "--stated-charges",
            help='Cap on the sum of ε that other programs state; "": none admitted.',
        ),
    ] = None,
    signed_charges_epsilon: Annotated[
        str | None,
        typer.Option(
            "--signed-charges", help='Cap on the sum of ε that runners sign; "": none admitted.'
        ),
    ] = None,
    runners: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help='Runners that sign, each "name key"; "": nobody.'),
    ] = None,
    shared_epsilon: Annotated[
        str | None, typer.Option(help='ε that all jobs share, freed over time; "": none.')
    ] = None,
    release_start: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="First month of the release.")
    ] = None,
    release_months: Annotated[
        int | None, typer.Option(help="Months of the release, in equal parts.")
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help='Shares of a month, each "name weight"; "": none.'),
    ] = None,
    share_by_project: Annotated[
        bool | None,
        typer.Option("--share-by-project/--share-by-analyst", help="Whose shares these are."),
    ] = None,
    wait_for_release: Annotated[
        bool | None,
        typer.Option(
            "--wait-for-release/--refuse-unreleased",
            help="A job that fits a later release waits for it.",
        ),
    ] = None,
    two_people: Annotated[
        bool | None,
        typer.Option(
            "--two-people/--one-person", help="To raise the allowance or to weaken the policy."
        ),
    ] = None,
    charge_each_attempt: Annotated[
        bool | None,
        typer.Option(
            "--charge-each-attempt/--charge-once",
            help="A job whose machine is lost after it began to read is charged and ends.",
        ),
    ] = None,
    time_limit_seconds: Annotated[
        int | None,
        typer.Option(
            "--time-limit", metavar="SECONDS", help="An attempt ends itself after this; 0: never."
        ),
    ] = None,
    results_every_seconds: Annotated[
        int | None,
        typer.Option(
            "--results-every",
            metavar="SECONDS",
            help="Jobs end at multiples of this after they began; 0: when done.",
        ),
    ] = None,
    secret_jobs: Annotated[
        bool | None,
        typer.Option(
            "--secret-jobs/--no-secret-jobs", help="Let jobs run that protect secrets alone."
        ),
    ] = None,
    signed: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help='Acts that are signed with a passkey; "": none.'),
    ] = None,
    signers: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help='Who may sign, each as "person origin key".'),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any field by its name; repeat it."),
    ] = None,
) -> Answer:
    """Show a dataset's policy, or change what you name."""
    options, fields = locals(), Policy.model_fields  # an argument is called as its field
    named: dict[str, Any] = {
        name: split(options[name]) if get_origin(field.annotation) is tuple else options[name]
        for name, field in fields.items()
        if options.get(name) is not None
    } | parameters(settings or [])
    optional = {name for name, field in fields.items() if field.default is None}
    changes = {
        name: None if name in optional and value in (0, "") else value
        for name, value in named.items()
    }
    with connect() as client:
        (current, seen), proposal = client.tagged_policy(dataset), None
        if changes:
            answer = client.set_policy(dataset, current | changes, seen=seen)
            proposal, current = answer.get("decision"), answer.get("policy", current)
    yield current if proposal is None else proposal
    if proposal is not None:
        yield PROPOSED.format(id=proposal["id"])
    else:
        yield facts(
            (name.replace("_", " "), stated(name, value)) for name, value in current.items()
        )


def stated(name: str, value: object) -> object:
    """Return a field of a policy in words; an empty list allows all, or asks for none."""
    nothing = "none" if name in ("signed", "signers", "runners", "shares") else "all"
    return ", ".join(map(str, value)) or nothing if isinstance(value, list) else value
