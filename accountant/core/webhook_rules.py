"""The rules of notices: their events, and the addresses that a message may reach. Pure."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from accountant.core.errors import InvalidRequest, invalid
from accountant.core.states import JOB_STATES

TEST = "notice.test"

#: What happens to jobs: told to the analyst whose job it is, and to stewards and auditors.
JOB_EVENTS = (*(f"job.{state}" for state in JOB_STATES), "job.asked_back", "job.answered")

#: What is told to stewards and auditors alone.
OVERSEERS_EVENTS = (
    "dataset.low",
    "dataset.exhausted",
    "dataset.overdrawn",
    "version.ready",
    "version.invalid",
    "decision.open",
    "decision.accepted",
    "decision.refused",
    "decision.withdrawn",
    "decision.expired",
    "checkpoint.made",
)
EVENTS = JOB_EVENTS + OVERSEERS_EVENTS

#: What each event says, for the page and the documentation.
MEANINGS = {
    "job.asked_back": "a steward asked its analyst something before deciding",
    "job.answered": "its analyst answered a steward's question",
    "dataset.low": "every filter that is open has used nine tenths of its allowance, or more",
    "dataset.exhausted": "no filter has anything left",
    "dataset.overdrawn": "a correction or an overdraft went beyond the allowance",
    "version.ready": "a worker found a dataset's data right",
    "version.invalid": "a worker found a dataset's data wrong",
    "decision.open": "something waits for the answer of a second person",
    "checkpoint.made": "a checkpoint was signed",
}


def meaning(event: str) -> str:
    """Return the meaning of an event, in words."""
    subject, _, what = event.partition(".")
    return MEANINGS.get(event, f"a {subject} is now {what.replace('_', ' ')}")


MOST_URL = 2000
Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

# --- where it may lead --------------------------------------------------------------------------

#: Never, whatever is allowed: what clouds answer with credentials at.
_METADATA = tuple(
    ip_network(name)
    for name in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "100.100.100.200/32",
        "168.63.129.16/32",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.?")


def networks(text: str) -> tuple[Network, ...]:
    """Return networks in CIDR, separated by '|'. Raises ValueError for anything else."""
    return tuple(ip_network(part.strip()) for part in text.split("|") if part.strip())


def may_reach(address: Address, allowed: Iterable[Network] = ()) -> bool:
    """Return True if messages may be sent to an address: the public internet, or an allowed
    network.

    An address embedded in another (mapped, 6to4, NAT64) is judged by the address it leads to.
    """
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return may_reach(inner, allowed)
        if address.teredo is not None or address.scope_id is not None:
            return False
        # Site-local, given up for fc00::/7 (RFC 3879): networks have it yet, and Python calls it
        # global.
        if address.is_site_local and not any(address in network for network in allowed):
            return False
    if any(address in network for network in _METADATA):
        return False
    if any(address in network for network in allowed):
        return True
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


@dataclass(frozen=True)
class Target:
    """A registered address, split into its parts."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """The Host header, with the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"


def read_url(url: str, allowed: Sequence[Network] = ()) -> Target:
    """Return the target of an address that may be registered. Raises InvalidRequest (field `url`).

    The scheme is https, or http if the host is a loopback address (or localhost) and `allowed`
    contains loopback. A host given as an address is checked here; a name is checked at every
    delivery, when it is resolved.
    """
    allowed_text = "https://host/path, of at most 2,000 printable characters"
    if (
        len(url) > MOST_URL
        or not url.isascii()
        or not url.isprintable()
        or " " in url
        or "\\" in url
    ):
        raise invalid("url", "is too long or holds what an address does not", allowed_text)
    try:
        parts = urlsplit(url)
        port = {"https": 443, "http": 80}.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError:
        raise invalid("url", "is no address", allowed_text) from None
    host = parts.hostname or ""
    if (
        parts.scheme not in ("https", "http")
        or not host
        or parts.fragment
        or "@" in parts.netloc
        or not port
    ):
        raise invalid(
            "url", "is no plain https address", f"{allowed_text}, without a user or a fragment"
        )
    literal = _literal(host)
    if literal is None and not _HOST.fullmatch(host):
        raise invalid("url", "names no host", allowed_text)
    if literal is not None and not may_reach(literal, allowed):
        raise unreachable()
    if parts.scheme == "http":
        here = host == "localhost" or (literal is not None and literal.is_loopback)
        if not here or not any(network[0].is_loopback for network in allowed):
            raise invalid(
                "url", "is not https", "https; http to this machine where the settings allow it"
            )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port, path)


def unreachable() -> InvalidRequest:
    """Return the refusal of an internal address. It reveals nothing more."""
    return invalid("url", "leads to an address that is not public", "a public address")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def read_events(events: Sequence[str]) -> list[str]:
    """Return the events without repetitions, in their canonical order. Raises InvalidRequest."""
    unknown = sorted(set(events) - set(EVENTS))
    if unknown or not events:
        problem = f"{unknown[0]!r} is none" if unknown else "none is chosen"
        raise invalid("events", problem, ", ".join(EVENTS))
    return [event for event in EVENTS if event in events]


# --- trying again -------------------------------------------------------------------------------

_MOST_SECONDS = 6 * 3600.0


def delay(attempt: int, first_seconds: float) -> float:
    """Return the seconds to wait after the `attempt`-th attempt (from 1) failed.

    Exponential backoff by a factor of 4, up to six hours, with a random factor of one half to one
    and a half, so that receivers that failed together are not all called again together.
    """
    planned = min(first_seconds * 4.0 ** min(attempt - 1, 20), _MOST_SECONDS)
    return planned * random.uniform(0.5, 1.5)  # noqa: S311 (it spreads load and keeps no secret)


def problem_of(status: int) -> str:
    """Return a status other than 2xx, in words."""
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed"
    return f"answered {status}"
