"""`login` and `profile`: who you are, and to which server commands talk."""

import os
import sys
from typing import Annotated

import typer

from accountant.core.errors import invalid
from web.cli import completion
from web.cli.answers import Answer
from web.cli.output import Failed, minute, note, table
from web.client import profiles
from web.client.api import Api
from web.client.errors import ApiProblem, NotSignedIn, Unreachable, Unreadable
from web.client.errors import Json as Document
from web.client.profiles import Profile, chosen
from web.client.transport import is_loopback

# --- The server and user of a command: --profile, or what web.client.profiles finds --------------


class Selected:
    """The profile that --profile names; set when a command starts."""

    name: str | None = None


def selected() -> Profile:
    """Return the server that commands talk to. Raises NoSuchProfile."""
    return chosen(Selected.name)


def connect() -> Api:
    """Return a client for the server, signed in where there is a token: else the server says so."""
    profile = selected()
    return Api(profile.url, profile.token)


Named = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Keep it by this name. [host and port]"),
]


def login(
    address: Annotated[str | None, typer.Argument(metavar="[URL]", help="The server.")] = None,
    name: Annotated[str | None, typer.Option(help="Your account. [asked for]")] = None,
    url: Annotated[str | None, typer.Option(help="The server's address.", hidden=True)] = None,
    profile: Named = None,
    token: Annotated[
        bool,
        typer.Option(
            "--token-stdin", help="Read a token from standard input instead of a password."
        ),
    ] = False,
) -> Answer:
    """Sign in to a service. It asks for your password, or reads EXCHEQUER_PASSWORD."""
    kept_as = profile or Selected.name
    server = _address(address or url, kept_as)
    if not server.startswith("https:") and not is_loopback(server):
        note(f"{server} is not encrypted: whoever is on the way reads what you send")
    session = _with_token(server) if token else _with_password(server, name)
    new_profile = Profile(server, session["name"], session["token"], session.get("expires_at"))
    saved = profiles.keep(new_profile, kept_as)
    shown = {field: session.get(field) for field in ("name", "roles", "expires_at")}
    yield {"profile": saved, "url": server, **shown}
    until = f" until {minute(session['expires_at'])} UTC" if session.get("expires_at") else ""
    yield f"signed in to {server} as {session['name']} ({', '.join(session['roles'])}){until}"


def _address(given: str | None, profile: str | None) -> str:
    """Return the address that is given, that of the profile, or the one in use."""
    if given is not None:
        return given.rstrip("/")
    all_profiles = profiles.read().known
    if profile is not None and profile not in all_profiles:
        raise invalid("URL", f"the profile {profile!r} is new", "the address of its server")
    return all_profiles[profile].url if profile is not None else selected().url


def _with_token(server: str) -> Document:
    text = sys.stdin.readline().strip() if not sys.stdin.isatty() else ""
    if not text:
        raise invalid(
            "--token-stdin",
            "standard input holds no token",
            "exchequer login URL --token-stdin < FILE",
        )
    with Api(server, text) as api:
        try:
            return {**api.me(), "token": text}
        except NotSignedIn:
            raise Failed(
                f"{server} does not know this token, or it has ended. Make another there."
            ) from None


def _with_password(server: str, name: str | None) -> Document:
    environment_password = os.environ.get("EXCHEQUER_PASSWORD")
    if name is None:
        _require_somebody("--name", "your account")
        name = str(typer.prompt("Name", err=True))
    if not environment_password:
        _require_somebody("EXCHEQUER_PASSWORD", "your password; or --token-stdin")
        environment_password = str(typer.prompt("Password", hide_input=True, err=True))
    with Api(server) as api:
        try:
            return api.sign_in(name, environment_password)
        except NotSignedIn:
            raise Failed(
                f"{server} does not know this name with this password. Try again."
            ) from None


def _require_somebody(field: str, allowed: str) -> None:
    if not sys.stdin.isatty():
        raise invalid(field, "not set, and nobody is here to be asked", allowed)


def logout(
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", autocompletion=completion.profiles)
    ] = None,
    everywhere: Annotated[
        bool,
        typer.Option("--everywhere", help="Sign out on all your other devices, too."),
    ] = False,
) -> Answer:
    """Sign out, and forget the profile."""
    name = profiles.name_in_use(profile or Selected.name)
    if name is None:
        raise Failed("you are signed in nowhere. `exchequer profile list` lists what is kept.")
    stored_profile = profiles.named(name)
    if everywhere:
        with Api(stored_profile.url, stored_profile.token) as api:
            api.sign_out_everywhere()
    ended = everywhere or _ended(stored_profile)
    profiles.forget(name)
    yield {"profile": name, "token_ended": ended, "ended_everywhere": everywhere}
    if ended:
        yield f"signed out of {name}{', everywhere' if everywhere else ''}"
    else:
        ends = (
            f" on {stored_profile.expires_at[:10]}" if stored_profile.expires_at else " by itself"
        )
        yield f"forgot {name}; its server does not answer, so its token ends{ends}"


def _ended(kept: Profile) -> bool:
    """Revoke a profile's token; returns False if its server can't be asked."""
    try:
        with Api(kept.url, kept.token, timeout_seconds=10.0, attempts=1) as api:
            api.sign_out()
    except NotSignedIn:
        return True  # it had ended before
    except (Unreachable, Unreadable, ApiProblem):
        return False
    return True


def whoami() -> Answer:
    """Show who you are signed in as, and where."""
    with connect() as client:
        me = client.me()
    yield {"url": client.url} | me
    yield f"{me['name']} ({', '.join(me['roles'])}) at {client.url}"


def use_profile(name: Annotated[str, typer.Argument(autocompletion=completion.profiles)]) -> Answer:
    """Use a profile from now on. With `--profile` a command uses one just once."""
    profiles.use(name)
    yield from list_profiles()


def list_profiles() -> Answer:
    """List where you are signed in."""
    saved, current = profiles.read(), profiles.name_in_use(Selected.name)
    rows = [
        {
            "profile": name,
            "url": profile.url,
            "name": profile.name,
            "expires_at": profile.expires_at,
            "in_use": name == current,
        }
        for name, profile in saved.known.items()
    ]
    yield rows
    shown = [
        (
            "*" if name == current else "",
            name,
            profile.url,
            profile.name,
            minute(profile.expires_at),
        )
        for name, profile in saved.known.items()
    ]
    nothing = "signed in nowhere: exchequer login URL"
    yield table(["", "profile", "server", "as", "until (UTC)"], shown) if rows else nothing


def password() -> Answer:
    """Change your password. It signs you out on all devices."""
    _require_somebody("password", "somebody at a terminal")
    current = str(typer.prompt("Password now", hide_input=True, err=True))
    new = str(typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))
    with connect() as client:
        session = client.change_password(current, new)
    yield session
    yield "changed; sign in again: exchequer login"
