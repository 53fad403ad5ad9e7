"""`proposals`, `confirm`, `withdraw`, `correct`: what takes two stewards."""

from typing import Annotated, Any

import typer

from web.cli import completion
from web.cli.options import JobId, Json
from web.cli.output import facts, out, print_json, say, table
from web.cli.policy import stated
from web.cli.price import read_json
from web.cli.profile import connect

ProposalId = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.proposals)]
Reason = Annotated[str, typer.Option(help="Why; it stands in the ledger.")]


def proposals(
    state: Annotated[str, typer.Option(metavar="open|confirmed|withdrawn|expired")] = "open",
    as_json: Json = False,
) -> None:
    """List what waits for a second steward."""
    with connect() as client:
        found = client.proposals(state)
    if as_json:
        print_json(found)
    elif not found:
        say(f"no {state} proposals")
    else:
        rows = [
            (each["id"], each["dataset"], what(each), f"{each['proposed_by']}: {each['reason']}")
            for each in found
        ]
        out.print(table(["id", "dataset", "what", "who and why"], rows, whole="id"))


def proposal(proposal: ProposalId, as_json: Json = False) -> None:
    """Show one proposal."""
    with connect() as client:
        found = client.proposal(proposal)
    if as_json:
        print_json(found)
        return
    names = ("id", "dataset", "state", "proposed_by", "reason", "entry")
    rows = [(name.replace("_", " "), found[name]) for name in names if found.get(name) is not None]
    out.print(facts([*rows, ("would", what(found))]))


def what(proposal: dict[str, Any]) -> str:
    """One line that says what a proposal would do."""
    asked = proposal["asked"]
    if proposal["kind"] == "correction":
        charge = "charge nothing" if asked["event"] is None else f"charge a {asked['event']['type']}"
        return f"job {proposal['job'][:8]}: {charge}"
    if proposal["kind"] == "policy":
        return "policy: " + ", ".join(_changed(asked["replaces"], asked["policy"]))
    parts = [f"{name} {asked[name]}" for name in ("epsilon", "delta") if name in asked]
    if "ex_post" in asked:
        parts.append(f"ex-post {asked['ex_post']['limit']} ({asked['ex_post']['settlement']})")
    return "allow " + ", ".join(parts or ["a statement about secrets"])


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [f"{name} {stated(value)}" for name, value in after.items() if value != before.get(name)]


def confirm(proposal: ProposalId, reason: Reason, as_json: Json = False) -> None:
    """Confirm a proposal of another steward: its entry is written, or its policy stands."""
    with connect() as client:
        found = client.confirm(proposal, reason)
    if as_json:
        print_json(found)
    elif found["entry"] is None:
        say(f"the policy of {found['dataset']} is changed")
    else:
        say(f"entry {found['entry']} of {found['dataset']} is written")


def withdraw(proposal: ProposalId, reason: Reason, as_json: Json = False) -> None:
    """Close a proposal without effect."""
    with connect() as client:
        found = client.withdraw(proposal, reason)
    if as_json:
        print_json(found)
    else:
        say(f"the proposal is {found['state']}")


def correct(
    job: JobId,
    reason: Reason,
    event: Annotated[
        str | None, typer.Option(help="What it really released, as JSON. [all that was reserved]")
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="It released nothing.")] = False,
    ex_post: Annotated[str | None, typer.Option(help="Another ex-post cap.")] = None,
    as_json: Json = False,
) -> None:
    """Propose another charge for a settled job; a second steward confirms it."""
    given: dict[str, Any] = {"ex_post": ex_post, "nothing": nothing or None}
    given["event"] = None if event is None else read_json("--event", event)
    with connect() as client:
        stated = {name: value for name, value in given.items() if value is not None}
        found = client.correct(job, reason, **stated)["proposal"]
    if as_json:
        print_json(found)
    else:
        say(f"proposed; another steward runs: exchequer confirm {found['id']} --reason TEXT")
