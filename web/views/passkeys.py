"""One's own passkeys: added, removed."""

from flask import Blueprint, Response, flash, redirect, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, InvalidRequest, NotFound, NotPermitted
from accountant.identities import passkeys as kept
from web import passkeys
from web.api.parsing import read_id
from web.auth import current_actor
from web.confirmation import by_passkey, needs_fresh
from web.context import engine
from web.errors import status_of
from web.views import account
from web.views.forms import rejected

pages = Blueprint("passkeys", __name__)


@pages.post("/account/passkeys")
@needs_fresh
def add() -> BaseResponse:
    """Ask the browser for a new passkey; with its answer, keep it."""
    actor, name = current_actor(), request.form.get("passkey_name", "")
    try:
        kept.check_name(name, "passkey_name")
        if "passkey" not in request.form or passkeys.CONFIRMING in request.form:
            words = (
                f"Your browser makes a passkey for {actor.name}, to be kept on this device or "
                "on a key."
            )
            where = {"action": url_for("passkeys.add"), "back": url_for("account.show")}
            return passkeys.page(
                passkeys.ask_new(actor), title="Add a passkey", words=words, **where
            )
        passkeys.register(actor, name)
    except (InvalidRequest, Conflict, NotPermitted) as error:
        return Response(account.page(rejected(error)), status_of(error))
    flash("The passkey is added: it signs you in. Where you sign acts, a policy names it first.")
    return redirect(url_for("account.show"), 303)


@pages.post("/account/passkeys/<passkey>/remove")
def remove(passkey: str) -> BaseResponse:
    """Remove a passkey of one's own, after a touch of one."""
    actor, wanted = current_actor(), read_id(passkey, "passkey")
    if str(wanted) not in [passkey_row["id"] for passkey_row in kept.of(engine(), actor.id)]:
        raise NotFound("passkey", str(wanted))
    redirection = by_passkey()
    if redirection is not None:
        return redirection
    kept.remove(engine(), actor, wanted)
    flash("The passkey is removed: it signs you in no more.")
    return redirect(url_for("account.show"), 303)
