"""`proposals`, `confirm`, `withdraw`, `correct`: what takes two stewards."""

from typing import Annotated, Any

import typer

from web.cli import completion
from web.cli.answers import Answer
from web.cli.options import JobId
from web.cli.output import facts, table
from web.cli.policy import stated
from web.cli.price import read_json
from web.cli.profile import connect

ProposalId = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.proposals)]
Reason = Annotated[str, typer.Option(help="Why; it stands in the ledger.")]


def proposals(
    state: Annotated[str, typer.Option(metavar="open|confirmed|withdrawn|expired")] = "open",
) -> Answer:
    """List what waits for a second steward."""
    with connect() as client:
        found = client.proposals(state)
    yield found
    rows = [
        (each["id"], each["dataset"], what(each), f"{each['proposed_by']}: {each['reason']}")
        for each in found
    ]
    nothing = f"no {state} proposals"
    yield table(["id", "dataset", "what", "who and why"], rows, whole="id") if rows else nothing


def proposal(proposal: ProposalId) -> Answer:
    """Show one proposal."""
    with connect() as client:
        found = client.proposal(proposal)
    yield found
    names = ("id", "dataset", "state", "proposed_by", "reason", "entry")
    rows = [(name.replace("_", " "), found[name]) for name in names if found.get(name) is not None]
    yield facts([*rows, ("would", what(found))])


def what(proposal: dict[str, Any]) -> str:
    """One line that says what a proposal would do."""
    asked = proposal["asked"]
    if proposal["kind"] == "correction":
        charge = "charge nothing" if asked["event"] is None else f"charge a {asked['event']['type']}"
        return f"job {proposal['job'][:8]}: {charge}"
    if proposal["kind"] == "policy":
        weaker = ", ".join(proposal.get("weakens", ()))
        return f"policy that weakens {weaker}: " + ", ".join(_changed(asked["replaces"], asked["policy"]))
    parts = [f"{name} {asked[name]}" for name in ("epsilon", "delta") if name in asked]
    if "ex_post" in asked:
        parts.append(f"ex-post {asked['ex_post']['limit']} ({asked['ex_post']['settlement']})")
    return "allow " + ", ".join(parts or ["a statement about secrets"])


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [f"{name} {stated(name, value)}" for name, value in after.items() if value != before.get(name)]


def confirm(proposal: ProposalId, reason: Reason) -> Answer:
    """Confirm a proposal of another steward: its entry is written, or its policy stands."""
    with connect() as client:
        found = client.confirm(proposal, reason)
    yield found
    changed = "the policy of {dataset} is changed"
    yield (changed if found["entry"] is None else "entry {entry} of {dataset} is written").format(**found)


def withdraw(proposal: ProposalId, reason: Reason) -> Answer:
    """Close a proposal without effect."""
    with connect() as client:
        found = client.withdraw(proposal, reason)
    yield found
    yield f"the proposal is {found['state']}"


def correct(
    job: JobId,
    reason: Reason,
    event: Annotated[
        str | None, typer.Option(help="What it really released, as JSON. [all that was reserved]")
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="It released nothing.")] = False,
    ex_post: Annotated[str | None, typer.Option(help="Another ex-post cap.")] = None,
) -> Answer:
    """Propose another charge for a settled job; a second steward confirms it."""
    given: dict[str, Any] = {"ex_post": ex_post, "nothing": nothing or None}
    given["event"] = None if event is None else read_json("--event", event)
    with connect() as client:
        stated = {name: value for name, value in given.items() if value is not None}
        found = client.correct(job, reason, **stated)["proposal"]
    yield found
    yield f"proposed; another steward runs: exchequer confirm {found['id']} --reason TEXT"
