"""Pushes: a result goes to a Hugging Face hub once a steward said yes; its asker uploads it."""

from datetime import UTC, date, datetime
from typing import Any

from flask import Response, jsonify
from pydantic import Field

from accountant.core.errors import Conflict
from accountant.identities import activity_log
from accountant.queries import decisions
from accountant.schema.decisions import Asked, Decision
from accountant.transactions import owners, pushes
from web.api import outputs
from web.api.blueprint import api
from web.api.openapi import Operation, describe
from web.api.parsing import Body, read, read_id
from web.auth import current_actor
from web.context import engine

# ASCII alone, here and in an address: a steward who reads either must know where it leads.
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"


class NewPush(Body):
    """A request to publish a result with its card."""

    to: str = Field(
        pattern=rf"^hf://datasets/{_NAME}/{_NAME}$",
        description="the dataset of the hub, as hf://datasets/OWNER/NAME",
    )
    endpoint: str = Field(
        "https://huggingface.co",
        max_length=300,
        pattern=r"^https?://[A-Za-z0-9._~:/\[\]%-]*[A-Za-z0-9._~\]-]$",
        description="the address of the hub",
    )
    license: str | None = Field(None, pattern=f"^{outputs.LICENSE}$")
    language: str | None = Field(None, pattern=f"^{outputs.LANGUAGE}$")
    reason: str = Field(max_length=2000)


class Pushed(Body):
    """The commit that the hub made of the upload."""

    commit: str = Field(pattern="^[0-9a-f]{7,64}$")


@api.post("/jobs/<job>/push")
@describe(
    Operation(body=NewPush, status=202, answer=Asked, refusals=(409,), roles=("analyst", "steward"))
)
def push(job: str) -> tuple[Response, int]:
    """Ask to publish a result on a hub, which a steward answers: another person.

    The yes is to these files alone, named by their hashes.
    """
    actor, job_id, body = current_actor(), read_id(job), read(NewPush)
    actor.require(*owners.ASKERS)
    card = outputs.card(job_id)
    about = outputs.read_about({"license": body.license, "language": body.language})
    asked = {
        "to": body.to,
        "endpoint": body.endpoint,
        **about,
        "made": datetime.now(UTC).date().isoformat(),
        "head": card["ledger"]["head"],
        "after_entry": card["statement"]["after_entry"],
    }
    asked["files"] = outputs.hashes(job_id, *_stated(card, asked))
    decision_id = pushes.propose(engine(), job_id, actor, asked, body.reason)
    return jsonify(decision=decisions.show(engine(), decision_id, actor)), 202


@api.get("/decisions/<decision>/archive")
@describe(
    Operation(
        media_types=("application/octet-stream",), refusals=(409,), roles=("analyst", "steward")
    )
)
def pushed_archive(decision: str) -> Response:
    """Return the zip that a steward let you publish; its files have the hashes of the decision.

    A result or a card that says something else now is refused: ask again.
    """
    actor = current_actor()
    row = pushes.approved(engine(), read_id(decision, "decision"), actor)
    card, about, made = _stated(outputs.card(row.job_id), row.asked)
    if outputs.hashes(row.job_id, card, about, made) != row.asked["files"]:
        raise Conflict("the result or its card is not what was approved: ask again")
    response = outputs.zipped(row.job_id, card, about, made)
    dataset = card["dataset"]["name"]
    activity_log.note(engine(), actor, "result downloaded", "job", str(row.job_id), dataset=dataset)
    return response


@api.post("/decisions/<decision>/pushed")
@describe(Operation(body=Pushed, answer=Decision, refusals=(409,), roles=("analyst", "steward")))
def record_push(decision: str) -> Response:
    """Record that an approved result was published, and as which commit.

    An approval is used once.
    """
    actor, decision_id, body = current_actor(), read_id(decision, "decision"), read(Pushed)
    pushes.record(engine(), decision_id, actor, body.commit)
    return jsonify(decisions.show(engine(), decision_id, actor))


def _stated(
    card: dict[str, Any], asked: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], date]:
    """Return the card as it was when it was asked for, as far as only the ledger has grown."""
    head = {name: asked["head"][name] for name in ("seq", "kind", "hash")}
    ledger = card["ledger"] | {"head": head}
    statement = card["statement"] | {"after_entry": asked["after_entry"]}
    about = {name: asked[name] for name in ("license", "language")}
    stated = card | {"ledger": ledger, "statement": statement}
    return stated, about, date.fromisoformat(asked["made"])
