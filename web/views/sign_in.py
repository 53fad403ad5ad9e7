"""Sign-in and sign-out."""

from flask import Blueprint, Response, redirect, render_template, request, url_for
from flask_login import current_user, logout_user
from werkzeug.wrappers import Response as BaseResponse

from web.auth import local_path, start_session, user_of_password
from web.views.forms import Form

pages = Blueprint("sign_in", __name__)


@pages.get("/sign-in")
def form() -> str | BaseResponse:
    """The form; whoever is signed in goes on."""
    if current_user.is_authenticated:
        return redirect(local_path(request.args.get("next")), 303)
    return render_template("sign_in.html", form=Form(), next=request.args.get("next", ""))


@pages.post("/sign-in")
def submit() -> BaseResponse:
    """Check name and password, then go where the person wanted to be."""
    name, wanted = request.form.get("name", ""), request.form.get("next", "")
    user = user_of_password(name, request.form.get("password", ""))
    if user is None:
        failed = Form({"name": name}, general="The name or the password is wrong.")
        return Response(render_template("sign_in.html", form=failed, next=wanted), 401)
    start_session(user)
    return redirect(local_path(wanted), 303)


@pages.post("/sign-out")
def sign_out() -> BaseResponse:
    """End the session."""
    logout_user()
    return redirect(url_for("sign_in.form"), 303)
