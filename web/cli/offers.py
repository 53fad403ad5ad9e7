"""`offers`, `offer`: a smaller job that a steward offers in place of one that awaits approval."""

import json
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from accountant.core.privacy.units import up
from web.cli.answers import Answer, Group
from web.cli.inbox import Awaiting
from web.cli.jobs import outcome
from web.cli.output import facts, table
from web.cli.price import parameters
from web.cli.profile import connect

OfferId = Annotated[str, typer.Argument(metavar="OFFER")]
Changes = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="A parameter that differs; repeat it.")
]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the offer.")]

offer = Group(help="Smaller jobs in place of pending ones.", no_args_is_help=True)


def list_offers(
    state: Annotated[str | None, typer.Option(metavar="open|accepted|declined|...")] = None,
    job: Annotated[str | None, typer.Option(help="In place of this job.")] = None,
) -> Answer:
    """List open offers, or those of a state or a job."""
    with connect() as client:
        found = client.offers(state=state, job=job)
    yield found
    if not found:
        yield "no such offer"
        return
    rows = [(each["id"], each["dataset"], each["state"], _differs(each)) for each in found]
    yield table(["offer", "dataset", "state", "differs in"], rows, whole="offer")
    yield "as its analyst: exchequer offer accept (or decline) OFFER"


def _differs(one: dict[str, Any]) -> str:
    """The parameters that are offered instead of those asked for."""
    changes = (f"{each['field']} = {json.dumps(each['offered'])}" for each in one["changes"])
    return ", ".join(changes) or "nothing"


@offer.command("show")
def show(offer_id: OfferId) -> Answer:
    """Show one offer, with what accepting it would do now."""
    with connect() as client:
        found = client.offer(offer_id)
    yield found
    rows = [
        (name.replace("_", " "), found[name]) for name in found if isinstance(found[name], str | int | float)
    ]
    yield facts([*rows, ("differs in", _differs(found))])


@offer.command("price")
def price_offer(job_id: Awaiting, settings: Changes) -> Answer:
    """Say what a request with these changes would cost, before it is offered."""
    with connect() as client:
        found = client.price_offer(job_id, parameters(settings))
    yield found
    if found["epsilon_alone"] is not None:
        yield f"ε {up(found['epsilon_alone'], 6):.6g} at δ {up(found['delta'], 6):g}, alone"
    for line in found.get("breakdown") or ():
        yield f"  {line}"


@offer.command("make")
def make(job_id: Awaiting, settings: Changes, reason: Reason) -> Answer:
    """Refuse a request and offer a smaller one in its place; its analyst accepts or declines."""
    changes = parameters(settings)
    if not changes:
        raise invalid("--set", "nothing differs", "KEY=VALUE, such as tokens_per_batch=64")
    with connect() as client:
        found = client.make_offer(job_id, changes, reason)
    yield found
    yield f"offered; its analyst runs: exchequer offer accept {found['id']}"


@offer.command("accept")
def accept(offer_id: OfferId) -> Answer:
    """Consent, as the analyst: the offered job is made, priced anew, and runs where it fits."""
    with connect() as client:
        job = client.accept_offer(offer_id)
    yield f"job {job['id']}"
    yield from outcome(job)


@offer.command("decline")
def decline(offer_id: OfferId, reason: Annotated[str, typer.Option()] = "") -> Answer:
    """Say no, as the analyst; nothing is charged."""
    with connect() as client:
        found = client.decline_offer(offer_id, reason)
    yield found
    yield f"the offer is {found['state']}"


@offer.command("withdraw")
def withdraw(offer_id: OfferId, reason: Reason) -> Answer:
    """Take an offer back, as a steward."""
    with connect() as client:
        found = client.withdraw_offer(offer_id, reason)
    yield found
    yield f"the offer is {found['state']}"
