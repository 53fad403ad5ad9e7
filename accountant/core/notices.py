"""What a person or a program is told: one sentence of names and states, and a link. Pure.

Nothing in it depends on private data, and nothing in it is somebody's words: a comment's text, a
purpose and a reason are read on their pages, by whoever may.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from accountant.core.errors import invalid
from accountant.core.webhook_rules import TEST, meaning

#: How an address is told: a letter, a chat's incoming address (Slack, Mattermost), a card for
#: Teams, JSON, or a RunEvent of OpenLineage.
Kind = Literal["mail", "chat", "teams", "json", "openlineage"]
SCHEME = "mailto:"
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@([A-Za-z0-9][A-Za-z0-9.-]{0,252})")


def read_mail(url: str, domains: Sequence[str]) -> str:
    """Return the address for mail in `mailto:NAME@DOMAIN`. Raises InvalidRequest (field `url`).

    `domains`: those to which this service writes; none: it writes to nobody.
    """
    if not domains:
        allowed = (
            "https://…; whoever runs the service allows mail (EXCHEQUER_SMTP_HOST, "
            "EXCHEQUER_MAIL_DOMAINS)"
        )
        raise invalid("url", "this service sends no mail", allowed)
    match = _ADDRESS.fullmatch(url.removeprefix(SCHEME))
    if not url.startswith(SCHEME) or match is None:
        raise invalid("url", "is no address for mail", f"{SCHEME}NAME@{domains[0]}")
    if match[1].lower() not in domains:
        raise invalid(
            "url", "is of a domain that this service does not write to", ", ".join(domains)
        )
    return match[0]


def sentence(event: str, facts: Mapping[str, Any]) -> str:
    """Return an event in one sentence. `facts` are those of its message; a job's has its name."""
    if event == TEST:
        return "A test: notices reach this address."
    about = f"Dataset {facts.get('dataset', '')}"
    if facts.get("job") and event.startswith("job."):
        name = facts.get("name", "A job")
        about = f"{name}, of {facts.get('analyst', '')} on {facts.get('dataset', '')}"
        state = str(facts.get("state", "")).replace("_", " ")
        what = {
            "job.asked_back": "a steward asks its analyst something",
            "job.answered": "it was answered",
        }
        return _plain(f"{about}: {what.get(event, f'it is now {state}')}.")
    return _plain(f"{about}: {meaning(event)}.")


def page(public_url: str | None, facts: Mapping[str, Any]) -> str | None:
    """Return the page that the event is about; None where nobody said where pages are."""
    if public_url is None:
        return None
    about = ("dataset", "job", "decision")  # the last of these that the message names
    name = next((name for name in reversed(about) if facts.get(name)), "dataset")
    path = f"{name}s/{facts.get(name, '')}"
    return f"{public_url.rstrip('/')}/{path}"


def body(
    kind: str, event: str, facts: Mapping[str, Any], public_url: str | None, message_id: str
) -> bytes:
    """Return the body of a message to a chat, Teams or a program; it is equal at every attempt."""
    sentence_text, link = sentence(event, facts), page(public_url, facts)
    if kind == "chat":
        document: dict[str, Any] = {
            "text": sentence_text if link is None else f"{sentence_text} {link}"
        }
    elif kind == "teams":
        document = _card(sentence_text, link)
    elif kind == "openlineage":
        document = _run_event(event, facts, public_url or "urn:exchequer", message_id)
    else:
        document = {
            "id": message_id,
            "event": event,
            "text": sentence_text,
            "link": link,
            "data": dict(facts),
        }
    return json.dumps(document, sort_keys=True).encode()


def _card(told: str, link: str | None) -> dict[str, Any]:
    """Return an Adaptive Card, as the incoming addresses of Microsoft Teams read it."""
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": told, "wrap": True}],
    }
    if link is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": link}]
    content_type = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content_type, "content": card}]}


#: The end of a job as OpenLineage calls it.
RUN_STATES = {"job.succeeded": "COMPLETE", "job.failed": "FAIL", "job.cancelled": "ABORT"}
_LINEAGE = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"


def _run_event(
    event: str, facts: Mapping[str, Any], producer: str, message_id: str
) -> dict[str, Any]:
    """Return the end of a job as OpenLineage reads it: the dataset goes in, its result comes out.

    A test is a run of its own, in no state of a job's.
    """

    def named(name: str) -> list[dict[str, str]]:
        return [{"namespace": producer, "name": name}]

    job, dataset = facts.get("job"), facts.get("dataset")
    return {
        "eventType": RUN_STATES.get(event, "OTHER"),
        "eventTime": facts["at"],
        "producer": producer,
        "schemaURL": _LINEAGE,
        "run": {"runId": job or str(UUID(message_id.removeprefix("msg_")))},
        "job": named(facts.get("name", event))[0],
        "inputs": named(f"datasets/{dataset}") if dataset else [],
        "outputs": named(f"jobs/{job}") if event == "job.succeeded" else [],
    }


def letter(event: str, facts: Mapping[str, Any], public_url: str | None) -> tuple[str, str]:
    """Return the subject and the text of a letter."""
    sentence_text, link = sentence(event, facts), page(public_url, facts)
    lines = [sentence_text, *([] if link is None else ["", link])]
    lines += ["", "Your account, Notices, lists this address. You can end it there."]
    return f"Exchequer: {sentence_text.rstrip('.')}", "\n".join(lines)


def _plain(text: str) -> str:
    """Return the text without control characters and without links or calls of a chat."""
    return re.sub(r"[\x00-\x1f<>@\[\]]", " ", text)
