"""Notices: the addresses that are told, and the form in which an administrator sets one."""

from flask import Blueprint, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import notices
from accountant.core import webhook_rules
from accountant.core.errors import InvalidRequest
from accountant.core.notices import SCHEME
from web.api.notices import NewNotice, register
from web.api.parsing import read, read_id
from web.auth import current_actor, needs_role
from web.context import engine, settings
from web.views.forms import BLANK, Form, done, sent, shown_again

pages = Blueprint("notices", __name__)


@pages.get("/settings/notices")
def listing(form: Form = BLANK) -> str:
    """One's addresses, or all of them and the form of another for an administrator."""
    return render_template(
        "notices.html",
        notices=notices.listing(engine(), current_actor()),
        form=form,
        events=[(event, webhook_rules.meaning(event)) for event in webhook_rules.EVENTS],
        chosen=request.form.getlist("events"),
        domains=settings().mail_domain_list,
        elsewhere=form.elsewhere(["kind", "url", "person", "events"]),
    )


@pages.post("/settings/notices")
@needs_role(notices.SETTER)
@shown_again(listing, errors=(InvalidRequest,))
def add() -> BaseResponse:
    """Set an address for a person."""
    values = sent()
    kind, url = values.get("kind", ""), values.get("url", "").strip()
    if kind == "mail" and "@" in url and not url.startswith(SCHEME):
        url = SCHEME + url
    person, events = values.get("person", "").strip(), request.form.getlist("events")
    register(read(NewNotice, {"kind": kind, "url": url, "person": person, "events": events}))
    return done("The address is set: it is told what happens from now on.", "notices.listing")


@pages.post("/settings/notices/<id>/test")
@needs_role(notices.SETTER)
def test(id: str) -> BaseResponse:
    """Send a message that says nothing."""
    notices.test(engine(), read_id(id, "notice"), current_actor())
    return done("A test is on its way.", "notices.listing")


@pages.post("/settings/notices/<id>/remove")
def remove(id: str) -> BaseResponse:
    """End the notices to an address."""
    notices.remove(engine(), read_id(id, "notice"), current_actor())
    return done("The address is told nothing more.", "notices.listing")
