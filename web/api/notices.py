"""Notices: addresses that are told when something changes. Administrators set them, each for a
person.
"""

from uuid import UUID

from flask import Response, jsonify
from pydantic import Field

from accountant.catalogue import notices
from accountant.core import webhook_rules
from accountant.core.notices import Kind
from accountant.schema.notices import Event, Notice, Removed, Sent
from web.api.blueprint import api
from web.api.openapi import Operation, describe, listing
from web.api.parsing import Body, read, read_id
from web.auth import current_actor
from web.context import engine, settings


class NewNotice(Body):
    """An address to tell, for whom, and of what."""

    url: str = Field(
        min_length=1,
        max_length=webhook_rules.MOST_URL,
        description="where to: NAME@DOMAIN, or an https address on the public internet",
        examples=["https://hooks.slack.com/services/T/B/X"],
    )
    kind: Kind = Field(
        description="mail: a letter to `mailto:NAME@DOMAIN`. chat: Slack or Mattermost. teams: "
        "Microsoft Teams. json: a program"
    )
    person: str = Field(
        min_length=1,
        max_length=200,
        description="the address is told what this person may see",
        examples=["sam"],
    )
    events: list[str] = Field(
        min_length=1,
        max_length=100,
        examples=[["job.succeeded", "job.failed"]],
        description="see /notices/events",
    )


def register(body: NewNotice) -> UUID:
    """Set an address as the current actor; pages call it too."""
    configured = settings()
    return notices.add(
        engine(),
        body.url,
        body.kind,
        body.events,
        body.person,
        current_actor(),
        allowed=webhook_rules.networks(configured.notice_networks),
        domains=configured.mail_domain_list,
    )


@api.get("/notices/events")
@describe(Operation(answer=listing("events", Event)))
def notice_events() -> Response:
    """The events that an address may be told of, and who may see them."""
    overseers = webhook_rules.OVERSEERS_EVENTS
    return jsonify(
        events=[
            {
                "event": event,
                "meaning": webhook_rules.meaning(event),
                "seen_by": "overseers" if event in overseers else "analyst and overseers",
            }
            for event in webhook_rules.EVENTS
        ]
    )


@api.get("/notices")
@describe(Operation(answer=listing("notices", Notice)))
def list_notices() -> Response:
    """Your addresses, or all of them for an administrator."""
    return jsonify(notices=notices.listing(engine(), current_actor()))


@api.post("/notices")
@describe(Operation(body=NewNotice, status=201, roles=(notices.SETTER,), answer=Notice))
def add_notice() -> tuple[Response, int]:
    """Set an address for a person. It is told what that person may see."""
    current_actor().require(notices.SETTER)
    notice_id = register(read(NewNotice))
    return jsonify(notices.show(engine(), notice_id, current_actor())), 201


@api.delete("/notices/<id>")
@describe(Operation(answer=Removed))
def remove_notice(id: str) -> Response:
    """End the notices to an address of yours, or to any as an administrator."""
    notice_id = read_id(id, "notice")
    notices.remove(engine(), notice_id, current_actor())
    return jsonify(id=str(notice_id), removed=True)


@api.post("/notices/<id>/test")
@describe(Operation(status=201, roles=(notices.SETTER,), answer=Sent))
def test_notice(id: str) -> tuple[Response, int]:
    """Send a message that says nothing."""
    current_actor().require(notices.SETTER)
    notice_id = read_id(id, "notice")
    notices.test(engine(), notice_id, current_actor())
    return jsonify(id=str(notice_id), sent=True), 201
