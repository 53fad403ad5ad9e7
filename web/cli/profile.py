"""The server and user of a command: --profile, or what web.client.profiles finds."""

from web.client.api import Api
from web.client.profiles import Profile, chosen


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
