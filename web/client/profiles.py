"""Profiles of servers and users: ~/.config/exchequer/profile.json, mode 0600.

A profile is a server's address, your name there and a token. A stored token goes only to the server
that gave it. What decides, first to last: the profile that is asked for, EXCHEQUER_PROFILE,
EXCHEQUER_URL (with EXCHEQUER_TOKEN, or the token kept for that address), the profile in use, this
machine's own service.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from accountant.core.errors import ExchequerError
from accountant.core.files.private import private_draft

DEFAULT_URL = "http://127.0.0.1:8750"


class NoSuchProfile(ExchequerError):
    """A profile that nobody made; `known` are those there are."""

    code = "no-such-profile"

    def __init__(self, name: str, known: list[str]):
        self.name, self.known = name, known
        there = f"there are: {', '.join(known)}" if known else "there is none yet"
        super().__init__(f"no profile {name!r}; {there}")


@dataclass(frozen=True)
class Profile:
    """One server, and who you are there. Without a token the server says what is missing."""

    url: str
    name: str | None = None
    token: str | None = None
    expires_at: str | None = None

    def __repr__(self) -> str:
        return f"Profile({self.url!r}, {self.name!r})"  # never the token


@dataclass(frozen=True)
class Profiles:
    """All of them, by name, and the one in use."""

    current: str | None
    known: dict[str, Profile]


def path() -> Path:
    """Return the file."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "exchequer" / "profile.json"


def default_url() -> str:
    """Return the local stack's address."""
    port = os.environ.get("EXCHEQUER_PORT", "")
    return f"http://127.0.0.1:{port}" if port.isdigit() else DEFAULT_URL


def default_name(url: str) -> str:
    """Return the default name of a profile: the server's host and port."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


def read() -> Profiles:
    """Return the stored profiles; a damaged file counts as none."""
    try:
        document = json.loads(path().read_text(encoding="utf-8"))
        saved = {str(name): _profile(fields) for name, fields in document["profiles"].items()}
        current = document["current"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Profiles(None, {})
    return Profiles(current if current in saved else None, saved)


def _profile(kept: dict[str, Any]) -> Profile:
    texts = {name: kept.get(name) for name in ("name", "token", "expires_at")}
    return Profile(
        str(kept["url"]),
        **{name: None if fields is None else str(fields) for name, fields in texts.items()},
    )


def keep(profile: Profile, name: str | None = None) -> str:
    """Keep a profile, and use it from now on; returns its name."""
    profiles, chosen = read(), name or default_name(profile.url)
    _write(chosen, {**profiles.known, chosen: profile})
    return chosen


def use(name: str) -> Profile:
    """Use another profile from now on."""
    profiles, chosen = read(), named(name)
    _write(name, profiles.known)
    return chosen


def forget(name: str) -> None:
    """Remove a profile with its token."""
    profiles = read()
    left = {
        profile_name: profile
        for profile_name, profile in profiles.known.items()
        if profile_name != name
    }
    _write(profiles.current if profiles.current in left else None, left)


def _write(current: str | None, known: dict[str, Profile]) -> None:
    target = path()
    document = {
        "current": current,
        "profiles": {name: asdict(profile) for name, profile in known.items()},
    }
    with private_draft(target, json.dumps(document, indent=2)) as draft:
        draft.replace(target)


# --- which one ------------------------------------------------------------------------------------


def named(name: str) -> Profile:
    """Return a profile by name. Raises NoSuchProfile."""
    profiles = read().known
    if name not in profiles:
        raise NoSuchProfile(name, sorted(profiles))
    return profiles[name]


def name_in_use(name: str | None = None) -> str | None:
    """Return the name of the profile that serves, where one does."""
    name = name or os.environ.get("EXCHEQUER_PROFILE")
    if name:
        named(name)
        return name
    profiles = read()
    url = os.environ.get("EXCHEQUER_URL")
    if url:
        return next(
            (
                profile_name
                for profile_name, profile in profiles.known.items()
                if profile.url == url.rstrip("/")
            ),
            None,
        )
    return profiles.current


def chosen(name: str | None = None) -> Profile:
    """Return the profile that serves now. Raises NoSuchProfile."""
    name = name or os.environ.get("EXCHEQUER_PROFILE")
    if name:
        return named(name)
    profiles = read()
    server_url = os.environ.get("EXCHEQUER_URL")
    if server_url:
        url = server_url.rstrip("/")
        profile = next(
            (
                known_profile
                for known_profile in profiles.known.values()
                if known_profile.url == url
            ),
            Profile(url),
        )
    elif profiles.current is not None:
        profile = profiles.known[profiles.current]
    else:
        profile = Profile(default_url())
    token = os.environ.get("EXCHEQUER_TOKEN")
    return Profile(profile.url, None, token) if token else profile
