"""`decision`, and `job approve | refuse | offer | correct`: what takes a second person."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from accountant.core.privacy.units import up
from web.cli import completion
from web.cli.answers import Answer
from web.cli.jobs import alone_text, outcome
from web.cli.options import JobId
from web.cli.output import facts, table
from web.cli.policy import PROPOSED, stated
from web.cli.price import parameters, read_json
from web.cli.session import connect

DecisionId = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.decisions)]
Awaiting = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.awaiting)]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]


def list_decisions(
    state: Annotated[
        str | None, typer.Option(metavar="open|accepted|refused|withdrawn|expired", help="[open]")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="approval|offer|allowance|correction|policy|access|overdraft|push"),
    ] = None,
    job: Annotated[str | None, typer.Option(help="About this job.")] = None,
) -> Answer:
    """List what waits for a second person."""
    with connect() as client:
        decisions = client.decisions(state=state, kind=kind, job=job)
    yield decisions
    if not decisions:
        yield "nothing waits for a decision" if state in (None, "open") else f"no {state} decisions"
        return
    rows = [
        (
            pending["id"][:8],
            (pending["request"] or {}).get("name", pending["asks"]),
            pending["kind"],
            pending["dataset"],
            _price(pending),
            pending["asked_by"],
        )
        for pending in decisions
    ]
    yield table(["id", "name", "kind", "dataset", "ε", "by"], rows, right="ε", whole="id kind")
    yield "see one: exchequer decision show ID; then: exchequer decision answer ID"


def _price(decision: dict[str, Any]) -> str:
    job = decision["request"] or decision["offer"]
    return alone_text(job) if job else ""


def _who(decision: dict[str, Any]) -> str:
    ends, left = decision["expires_at"], decision["left"]
    until = (
        "" if ends is None else f", {datetime.fromisoformat(ends).astimezone(UTC):%d %b %H:%M} UTC"
    )
    asked_back = ", asked back" if (decision["request"] or {}).get("asked_back") else ""
    return f"{decision['asked_by']}{until}{asked_back}{f' (left: {left})' if left else ''}"


def show_decision(decision_id: DecisionId) -> Answer:
    """Show one decision, and what a yes would do."""
    with connect() as client:
        decision = client.decision(decision_id)
    yield decision
    names = (
        "id",
        "kind",
        "dataset",
        "state",
        "asked_by",
        "reason",
        "job",
        "answered_by",
        "answer",
        "entry",
    )
    shown = {**decision, "asked_by": _who(decision)}
    rows = [(name.replace("_", " "), shown[name]) for name in names if shown[name] is not None]
    request = decision["asked"]
    changed = request.get("policy", {}).items()
    for name, value in changed:
        if value != request["replaces"].get(name):
            rows.append((f"policy: {name.replace('_', ' ')}", stated(name, value)))
    rows.append(("would", decision["asks"]))
    if "event" in request:
        rows.append(("new charge", json.dumps(request["event"])))
    if decision["effect"] and decision["effect"]["closes"]:
        rows.append(("closes", decision["effect"]["closes"]))
    yield facts(rows)


def answer(
    decision: DecisionId,
    yes: Annotated[bool, typer.Option("--yes/--no", help="Your answer.")],
    reason: Annotated[str, typer.Option(help="Why; an offer needs none.")] = "",
) -> Answer:
    """Say yes or no to a decision. A yes takes effect at once."""
    with connect() as client:
        answer = client.answer(decision, yes, reason)
        job_id = answer["made_job"] or (answer["id"] if answer["kind"] == "approval" else None)
        job = None if job_id is None else client.job(job_id)
    if job is not None and yes:
        yield from outcome(job)
        return
    yield answer
    if answer["made_decision"] is not None:
        command = f"exchequer decision answer {answer['made_decision']} --yes"
        yield f"another steward answers the policy: {command}"
    elif answer["entry"] is not None:
        yield f"entry {answer['entry']} of {answer['dataset']} is written"
    else:
        yield f"the {answer['kind']} is {answer['state']}"


def approve(job_id: Awaiting, reason: Reason) -> Answer:
    """Approve a job. It is refused if it no longer fits."""
    yield from answer(job_id, True, reason)


def refuse(job_id: Awaiting, reason: Reason) -> Answer:
    """Refuse a job that waits for approval."""
    yield from answer(job_id, False, reason)


def offer(
    job_id: Awaiting,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="A field to change, such as clip=4."),
    ],
    reason: Annotated[str, typer.Option(help="Why; without it the offer is only priced.")] = "",
) -> Answer:
    """Offer a smaller job instead, or see what it would cost."""
    changes = parameters(settings)
    if not changes:
        raise invalid("--set", "nothing differs", "KEY=VALUE, such as tokens_per_batch=64")
    with connect() as client:
        if reason:
            offer = client.offer(job_id, changes, reason)
            yield offer
            yield f"offered; its analyst runs: exchequer decision answer {offer['id']} --yes"
            return
        offer = client.price_offer(job_id, changes)
    yield offer
    if offer["epsilon_alone"] is not None:
        yield f"ε {up(offer['epsilon_alone'], 6):.6g} at δ {up(offer['delta'], 6):g}, alone"
    for line in offer.get("breakdown") or ():
        yield f"  {line}"


def correct(
    job: JobId,
    reason: Annotated[str, typer.Option(help="Why; it stands in the ledger.")],
    event: Annotated[
        str | None, typer.Option(help="What it really released, as JSON. [all that was reserved]")
    ] = None,
    ex_post: Annotated[str | None, typer.Option(help="Another ex-post cap.")] = None,
) -> Answer:
    """Ask to change what an ended job was charged. A second steward answers."""
    body: dict[str, Any] = {"ex_post": ex_post}
    body["event"] = None if event is None else read_json("--event", event)
    with connect() as client:
        stated = {name: value for name, value in body.items() if value is not None}
        decision = client.correct(job, reason, **stated)["decision"]
    yield decision
    yield PROPOSED.format(id=decision["id"])
