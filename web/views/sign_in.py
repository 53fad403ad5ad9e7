"""Sign-in, by password or at the provider, and sign-out."""

import time

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    jsonify,
    make_response,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from flask_login import current_user
from werkzeug.exceptions import TooManyRequests
from werkzeug.wrappers import Response as BaseResponse

from accountant.identities import sessions
from web import auth, held_forms, oidc, passkeys, provider_logout
from web.api import limits
from web.auth import end_session, local_path, needs_passkey, start_session, user_of_password
from web.context import engine
from web.views.forms import Form

pages = Blueprint("sign_in", __name__)

# in the session, while somebody is at the provider
_WANTED, _AGAIN, _OUT = "wanted", "again", "out"


@pages.get("/sign-in")
def form() -> str | BaseResponse:
    """The sign-in form; a user who is signed in is sent on."""
    if current_user.is_authenticated:
        return redirect(local_path(request.args.get("next")), 303)
    return _form(Form(), request.args.get("next", ""))


def _form(form: Form, wanted: str, held: str = "") -> str:
    """`held`: a form that came after its session had ended, sealed (held_forms)."""
    held = held or request.form.get(held_forms.FIELD, "")
    return render_template("sign_in.html", form=form, next=wanted, provider=oidc.name(), held=held)


def resume(held: str) -> Response:
    """Return the sign-in form that carries a form on, sealed."""
    general = "Your session has ended. Sign in: what you typed is kept, and nothing is sent yet."
    fits = len(held) <= held_forms.MOST_COOKIE
    if oidc.name() is not None and not fits:
        general += f" It is too long to be kept by way of {oidc.name()}: copy it first."
    page = Response(_form(Form(general=general), "", held), 401)
    return held_forms.through_provider(page, held) if oidc.name() is not None and fits else page


@pages.post("/sign-in")
def submit() -> BaseResponse:
    """Check name and password, then go where the person wanted to be."""
    name, wanted = request.form.get("name", ""), request.form.get("next", "")
    try:
        user = user_of_password(name, request.form.get("password", ""), "page")
    except TooManyRequests as error:
        page = _form(Form({"name": name}, general=str(error.description)), wanted)
        return Response(page, 429, {"Retry-After": str(error.retry_after)})
    if user is not None and needs_passkey(user):
        words = "Your password is right. The passkey of your account comes after it."
        return _ask_passkey("And your passkey", words)
    if user is None or not start_session(user):
        form = Form({"name": name}, general="The name or the password is wrong.")
        return Response(_form(form, wanted), 401)
    onward = held_forms.page() or redirect(local_path(wanted), 303)
    return auth.remember_device(onward, user.name)


@pages.post("/sign-in/passkey")
def passkey() -> BaseResponse:
    """Ask the browser for a passkey; with its answer, sign its owner in."""
    wanted = request.form.get("next", "")
    if "passkey" not in request.form:
        words = "Your browser asks which passkey you want to sign in with."
        return _ask_passkey("Sign in with a passkey", words)
    user = passkeys.user_of_passkey()
    if user is None or not start_session(user, "passkey"):
        return Response(_form(Form(general="This passkey signs nobody in here."), wanted), 401)
    return held_forms.page() or redirect(local_path(wanted), 303)


def _ask_passkey(title: str, words: str) -> BaseResponse:
    where = {"action": url_for("sign_in.passkey"), "back": url_for("sign_in.form")}
    return passkeys.page(passkeys.ask_sign_in(), title=title, words=words, **where)


@pages.get("/sign-in/provider")
def provider_begin() -> BaseResponse:
    """Go to the provider."""
    if oidc.name() is None:
        abort(404)
    session[_WANTED] = local_path(request.args.get("next"))
    session.pop(_AGAIN, None)
    try:
        return oidc.begin()
    except oidc.Refused as error:
        return Response(_form(Form(general=str(error)), ""), 502)


@pages.get("/sign-in/provider/return")
def provider_return() -> BaseResponse:
    """Come back from the provider, with proof of who one is."""
    if oidc.name() is None:
        abort(404)
    wanted, since = local_path(session.pop(_WANTED, None)), session.pop(_AGAIN, None)
    if since is not None:
        return _returned_again(since)
    try:
        user, proof = oidc.finish()
    except oidc.Refused as error:
        return Response(_form(Form(general=str(error)), wanted), 403)
    if user is None or not start_session(user, "provider", proof):
        return Response(_form(Form(general="This account was closed meanwhile."), wanted), 403)
    return held_forms.page() or redirect(wanted, 303)


@pages.get("/sign-in/provider/again")
def provider_again() -> BaseResponse:
    """Go to the provider to sign in anew before a sensitive act in another tab."""
    if oidc.name() is None or not current_user.is_authenticated:
        abort(404)
    session[_AGAIN] = time.time()
    try:
        return oidc.begin_again()
    except oidc.Refused as error:
        return Response(render_template("sign_in_again.html", problem=str(error)), 502)


def _returned_again(since: float) -> BaseResponse:
    problem = "Your session here has ended: sign in, and do it then."
    if current_user.is_authenticated:
        try:
            shown = oidc.finish_again(current_user.actor.id, since)
        except oidc.Refused as error:
            problem = str(error)
        else:
            if sessions.confirmed(engine(), current_user.session_id, shown):
                problem = ""
    return Response(render_template("sign_in_again.html", problem=problem), 403 if problem else 200)


@pages.post("/sign-out")
def sign_out() -> BaseResponse:
    """End the session here, and at the provider where it came from there."""
    away = provider_logout.address(current_user) if current_user.is_authenticated else None
    end_session()
    if away is None:
        return redirect(url_for("sign_in.form"), 303)
    there, session[_OUT] = away
    # A page between: browsers let no form lead to another host (form-action), a redirect neither.
    page = render_template("signed_out.html", address=there, provider=oidc.name())
    return Response(page, headers={"Refresh": f"0; url={there}"})


@pages.get("/sign-in/provider/left")
def provider_left() -> str | BaseResponse:
    """Come back from the provider, signed out there."""
    state = session.pop(_OUT, None)
    if oidc.name() is None or state is None or request.args.get("state") != state:
        return redirect(url_for("sign_in.form"), 303)
    return render_template("signed_out.html", address=None, provider=oidc.name())


@pages.post("/sign-in/provider/back-channel")
def provider_back_channel() -> BaseResponse:
    """Take the provider's word, server to server, that somebody signed out there."""
    if oidc.name() is None:
        abort(404)
    limits.counted("address", limits.address())
    status, message = 200, {}
    try:
        provider_logout.take(request.form.get("logout_token", ""))
    except oidc.TROUBLE as error:
        # Quoted: some of it comes from the request, and must not look like a line of its own.
        current_app.logger.warning("logout token: %s: %r", type(error).__name__, str(error)[:300])
        status, message = 400, {"error": "invalid_request", "error_description": "the log says why"}
    return make_response(jsonify(message), status, {"Cache-Control": "no-store"})
