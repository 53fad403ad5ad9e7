"""Webhooks: one's own, and what was sent to each."""

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core import notices, webhook_rules
from accountant.core.errors import Conflict, InvalidRequest
from accountant.transactions.artifacts import OVERSEERS
from accountant.webhooks import delivery as messages
from accountant.webhooks import registration
from web.api.paging import cut, read_window
from web.api.parsing import read, read_id
from web.api.webhooks import DELIVERIES, WebhookRequest, key, register
from web.auth import current_actor
from web.context import engine, settings
from web.views.forms import Form, rejected, sent

pages = Blueprint("hooks", __name__)

LOG_PAGE = 25


@pages.get("/settings/webhooks")
def listing() -> str:
    """One's webhooks, and the form of a new one."""
    return _page(Form())


def _page(form: Form, chosen: tuple[str, ...] = ()) -> str:
    actor = current_actor()
    offered = webhook_rules.EVENTS if actor.roles & OVERSEERS else webhook_rules.JOB_EVENTS
    found = registration.listing(engine(), actor)
    events = [(each, webhook_rules.meaning(each)) for each in offered]
    return render_template(
        "hooks.html",
        hooks=found,
        form=form,
        events=events,
        chosen=chosen,
        domains=settings().mail_domain_list,
    )


@pages.post("/settings/webhooks")
def add() -> BaseResponse:
    """Register a webhook; the page that answers is the only one that shows its secret."""
    chosen = tuple(request.form.getlist("events"))
    try:
        kind, url = sent().get("kind", "webhook"), sent().get("url", "").strip()
        if kind == "mail" and "@" in url and not url.startswith(notices.SCHEME):
            url = notices.SCHEME + url
        body = read(WebhookRequest, {"kind": kind, "url": url, "events": list(chosen)})
        hook_id, secret = register(body)
    except InvalidRequest as error:
        return Response(_page(rejected(error), chosen), 422)
    return Response(_one(str(hook_id), secret=secret if body.kind == "webhook" else None), 201)


@pages.get("/settings/webhooks/<id>")
def show(id: str) -> str:
    """One webhook and what was sent to it."""
    return _one(id)


def _one(id: str, secret: str | None = None) -> str:
    hook_id, actor = read_id(id, "webhook"), current_actor()
    window = read_window(DELIVERIES, LOG_PAGE)
    found, following = cut(messages.log(engine(), hook_id, actor, **window.reads), window)
    return render_template(
        "hook.html",
        hook=registration.show(engine(), hook_id, actor),
        deliveries=found,
        following=following,
        secret=secret,
    )


ACTS = {
    "enable": (registration.enable, "The webhook is enabled: it is told what happens from now on."),
    "disable": (registration.disable, "The webhook is disabled: it is told nothing until it is enabled."),
    "test": (messages.test, "A test is on its way; the log below tells what becomes of it."),
    "remove": (registration.remove, "The webhook is removed."),
}


@pages.post("/settings/webhooks/<id>/<any(enable, disable, test, remove):act>")
def change(id: str, act: str) -> BaseResponse:
    """Enable, disable, test or remove a webhook."""
    do, done = ACTS[act]
    try:
        do(engine(), read_id(id, "webhook"), current_actor())
        flash(done)
    except Conflict as error:
        flash(str(error), "problem")
    where = url_for("hooks.listing") if act == "remove" else url_for("hooks.show", id=id)
    return redirect(where, 303)


@pages.post("/settings/webhooks/<id>/secret")
def renew_secret(id: str) -> BaseResponse:
    """A new secret, shown by the page that answers and by no other."""
    secret = registration.renew_secret(engine(), read_id(id, "webhook"), current_actor(), key())
    return Response(_one(id, secret=secret), 201)


@pages.post("/settings/webhooks/<id>/deliveries/<delivery>/redeliver")
def redeliver(id: str, delivery: str) -> BaseResponse:
    """Send a message again."""
    try:
        messages.redeliver(engine(), read_id(id, "webhook"), read_id(delivery, "delivery"), current_actor())
        flash("The message is sent again, under the same id.")
    except Conflict as error:
        flash(str(error), "problem")
    return redirect(url_for("hooks.show", id=id), 303)
