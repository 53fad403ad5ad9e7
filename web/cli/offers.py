"""`offers`, `offer`: a smaller job that a steward offers in place of one that awaits approval."""

import json
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from accountant.core.privacy.units import up
from web.cli.inbox import Awaiting
from web.cli.jobs import show_outcome
from web.cli.options import Json
from web.cli.output import facts, out, print_json, say, table
from web.cli.price import parameters
from web.cli.profile import connect

OfferId = Annotated[str, typer.Argument(metavar="OFFER")]
Changes = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="A parameter that differs; repeat it.")
]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the offer.")]

offer = typer.Typer(help="Smaller jobs in place of pending ones.", no_args_is_help=True)


def list_offers(
    state: Annotated[str | None, typer.Option(metavar="open|accepted|declined|...")] = None,
    job: Annotated[str | None, typer.Option(help="In place of this job.")] = None,
    as_json: Json = False,
) -> None:
    """List open offers, or those of a state or a job."""
    with connect() as client:
        found = client.offers(state=state, job=job)
    if as_json:
        print_json(found)
    elif not found:
        say("no such offer")
    else:
        rows = [(each["id"], each["dataset"], each["state"], _differs(each)) for each in found]
        out.print(table(["offer", "dataset", "state", "differs in"], rows, whole="offer"))
        say("as its analyst: exchequer offer accept (or decline) OFFER")


def _differs(one: dict[str, Any]) -> str:
    """The parameters that are offered instead of those asked for."""
    changes = (f"{each['field']} = {json.dumps(each['offered'])}" for each in one["changes"])
    return ", ".join(changes) or "nothing"


@offer.command("show")
def show(offer_id: OfferId, as_json: Json = False) -> None:
    """Show one offer, with what accepting it would do now."""
    with connect() as client:
        found = client.offer(offer_id)
    _show(found, as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        (name.replace("_", " "), found[name]) for name in found if isinstance(found[name], str | int | float)
    ]
    out.print(facts([*rows, ("differs in", _differs(found))]))


@offer.command("price")
def price_offer(job_id: Awaiting, settings: Changes, as_json: Json = False) -> None:
    """Say what a request with these changes would cost, before it is offered."""
    with connect() as client:
        found = client.price_offer(job_id, parameters(settings))
    if as_json:
        print_json(found)
        return
    if found["epsilon_alone"] is not None:
        say(f"ε {up(found['epsilon_alone'], 6):.6g} at δ {up(found['delta'], 6):g}, alone")
    for line in found.get("breakdown") or ():
        say(f"  {line}")


@offer.command("make")
def make(job_id: Awaiting, settings: Changes, reason: Reason, as_json: Json = False) -> None:
    """Refuse a request and offer a smaller one in its place; its analyst accepts or declines."""
    changes = parameters(settings)
    if not changes:
        raise invalid("--set", "nothing differs", "KEY=VALUE, such as tokens_per_batch=64")
    with connect() as client:
        found = client.make_offer(job_id, changes, reason)
    if as_json:
        print_json(found)
    else:
        say(f"offered; its analyst runs: exchequer offer accept {found['id']}")


@offer.command("accept")
def accept(offer_id: OfferId, as_json: Json = False) -> None:
    """Consent, as the analyst: the offered job is made, priced anew, and runs where it fits."""
    with connect() as client:
        job = client.accept_offer(offer_id)
    if not as_json:
        say(f"job {job['id']}")
    show_outcome(job, as_json)


@offer.command("decline")
def decline(offer_id: OfferId, reason: Annotated[str, typer.Option()] = "", as_json: Json = False) -> None:
    """Say no, as the analyst; nothing is charged."""
    with connect() as client:
        found = client.decline_offer(offer_id, reason)
    print_json(found) if as_json else say(f"the offer is {found['state']}")


@offer.command("withdraw")
def withdraw(offer_id: OfferId, reason: Reason, as_json: Json = False) -> None:
    """Take an offer back, as a steward."""
    with connect() as client:
        found = client.withdraw_offer(offer_id, reason)
    print_json(found) if as_json else say(f"the offer is {found['state']}")
