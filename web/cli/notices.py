"""`notice`: addresses that are told when something changes."""

from typing import Annotated

import typer

from web.cli.answers import Answer
from web.cli.output import table
from web.cli.session import connect

NoticeId = Annotated[str, typer.Argument(metavar="ID")]


def add(
    url: str,
    kind: Annotated[
        str,
        typer.Option(
            metavar="mail|chat|teams|json|openlineage", help="For mail, URL is mailto:NAME@DOMAIN."
        ),
    ],
    person: Annotated[str, typer.Option(help="Whose roles decide what the address is told.")],
    event: Annotated[list[str], typer.Option("--event", help="Such as job.succeeded; repeat it.")],
) -> Answer:
    """Tell a person at this address. It needs an administrator."""
    with connect() as client:
        notice = client.add_notice(url, event, kind=kind, person=person)
    yield notice
    yield f"notice {notice['id']}: {kind} for {person}"


def list_notices() -> Answer:
    """List where you are told. Those who run the service see all."""
    with connect() as client:
        notices = client.notices()
    yield notices
    rows = [
        (notice["id"], notice["person"], notice["url"], ", ".join(notice["events"]))
        for notice in notices
    ]
    nothing = (
        "no notices yet. An administrator sets one: exchequer notice add URL --kind chat "
        "--person NAME"
    )
    yield table(["id", "for", "address", "events"], rows, whole="id") if rows else nothing


def events() -> Answer:
    """List what a person can be told of."""
    with connect() as client:
        notice_events = client.notice_events()
    yield notice_events
    yield table(
        ["event", "meaning"],
        [(notice_event["event"], notice_event["meaning"]) for notice_event in notice_events],
    )


def remove(notice_id: NoticeId) -> Answer:
    """Stop telling an address."""
    with connect() as client:
        removed = client.remove_notice(notice_id)
    yield removed
    yield f"notice {notice_id} is removed"


def test(notice_id: NoticeId) -> Answer:
    """Send an empty message as a test."""
    with connect() as client:
        sent = client.test_notice(notice_id)
    yield sent
    yield f"a test to notice {notice_id} is on its way"
