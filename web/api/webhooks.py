"""Webhooks: addresses that are told when something changes. Everybody has their own and sees no other's."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from flask import Response, jsonify
from pydantic import Field

from accountant.core import webhook_rules
from accountant.core.webhook_rules import Network
from accountant.schema.webhooks import Delivery, Event, NewWebhook, Removed, Secret, Sent, Webhook
from accountant.webhooks import delivery as messages
from accountant.webhooks import registration
from web.api.blueprint import api
from web.api.openapi import Operation, describe, listing
from web.api.paging import Order, page, read_window
from web.api.parsing import Body, read, read_id
from web.auth import current_actor
from web.context import engine, settings

DELIVERIES = Order("deliveries", (("occurred_at", datetime), ("id", UUID)))


class WebhookRequest(Body):
    """An address to tell, and of what."""

    url: str = Field(
        min_length=1, max_length=webhook_rules.MOST_URL, examples=["https://ci.example.org/exchequer"]
    )
    kind: Literal["webhook", "chat", "mail"] = Field(
        "webhook",
        description='webhook: a signed message; chat: `{"text": …}`; mail: a letter, to `mailto:NAME@DOMAIN`',
    )
    events: list[str] = Field(
        min_length=1,
        max_length=100,
        examples=[["job.succeeded", "job.failed"]],
        description="see /webhooks/events",
    )


def key() -> bytes:
    """Under what secrets are kept."""
    return settings().secret("webhooks")


def allowed() -> tuple[Network, ...]:
    """Networks beside the public internet."""
    return webhook_rules.networks(settings().webhook_networks)


def register(body: WebhookRequest) -> tuple[UUID, str]:
    """Register a webhook for the current actor; pages call it too."""
    domains = settings().mail_domain_list
    return registration.add(
        engine(), body.url, body.events, current_actor(), key(), allowed(), body.kind, domains
    )


@api.get("/webhooks/events")
@describe(Operation(answer=listing("events", Event)))
def webhook_events() -> Response:
    """The events that a webhook may be told of, and who may see it."""
    return jsonify(
        events=[
            {
                "event": each,
                "meaning": webhook_rules.meaning(each),
                "seen_by": "overseers" if each in webhook_rules.OVERSEERS_EVENTS else "analyst and overseers",
            }
            for each in webhook_rules.EVENTS
        ]
    )


@api.get("/webhooks")
@describe(Operation(answer=listing("webhooks", Webhook)))
def list_webhooks() -> Response:
    """Your webhooks."""
    return jsonify(webhooks=registration.listing(engine(), current_actor()))


@api.post("/webhooks")
@describe(Operation(body=WebhookRequest, status=201, answer=NewWebhook))
def add_webhook() -> tuple[Response, int]:
    """Register a webhook. The answer has its secret, which is shown this once."""
    actor = current_actor()
    body = read(WebhookRequest)
    hook_id, secret = register(body)
    return jsonify(**registration.show(engine(), hook_id, actor), secret=secret), 201


@api.get("/webhooks/<id>")
@describe(Operation(answer=Webhook))
def show_webhook(id: str) -> Response:
    """One of your webhooks."""
    return _shown(read_id(id, "webhook"))


@api.delete("/webhooks/<id>")
@describe(Operation(answer=Removed))
def remove_webhook(id: str) -> Response:
    """Forget a webhook and its secret; what was not sent yet is not sent."""
    hook_id = read_id(id, "webhook")
    registration.remove(engine(), hook_id, current_actor())
    return jsonify(id=str(hook_id), removed=True)


@api.post("/webhooks/<id>/enable")
@describe(Operation(answer=Webhook))
def enable_webhook(id: str) -> Response:
    """Tell a disabled webhook again, from now on."""
    hook_id = read_id(id, "webhook")
    registration.enable(engine(), hook_id, current_actor())
    return _shown(hook_id)


@api.post("/webhooks/<id>/disable")
@describe(Operation(answer=Webhook))
def disable_webhook(id: str) -> Response:
    """Tell a webhook nothing until it is enabled."""
    hook_id = read_id(id, "webhook")
    registration.disable(engine(), hook_id, current_actor())
    return _shown(hook_id)


@api.post("/webhooks/<id>/secret")
@describe(Operation(status=201, answer=Secret))
def renew_webhook_secret(id: str) -> tuple[Response, int]:
    """A new secret in place of the old one, at once; it is shown this once."""
    hook_id = read_id(id, "webhook")
    secret = registration.renew_secret(engine(), hook_id, current_actor(), key())
    return jsonify(id=str(hook_id), secret=secret), 201


@api.post("/webhooks/<id>/test")
@describe(Operation(status=201, refusals=(409,), answer=Sent))
def test_webhook(id: str) -> tuple[Response, int]:
    """Send a message that says nothing."""
    delivery = messages.test(engine(), read_id(id, "webhook"), current_actor())
    return jsonify(delivery=str(delivery)), 201


@api.get("/webhooks/<id>/deliveries")
@describe(Operation(answer=listing("deliveries", Delivery, paged=DELIVERIES)))
def webhook_deliveries(id: str) -> Response:
    """Messages that were sent, newest first."""
    window = read_window(DELIVERIES)
    found = messages.log(engine(), read_id(id, "webhook"), current_actor(), **window.reads)
    return page("deliveries", found, window)


@api.post("/webhooks/<id>/deliveries/<delivery>/redeliver")
@describe(Operation(refusals=(409,), answer=Sent))
def redeliver_webhook(id: str, delivery: str) -> Response:
    """Send a message again, under the same id."""
    delivery_id = read_id(delivery, "delivery")
    messages.redeliver(engine(), read_id(id, "webhook"), delivery_id, current_actor())
    return jsonify(delivery=str(delivery_id))


def _shown(hook_id: UUID) -> Response:
    return jsonify(registration.show(engine(), hook_id, current_actor()))
