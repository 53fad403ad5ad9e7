"""Rate limits of the API: a program in a loop slows itself down and nobody else.

    a request ─▶ per address ─▶ token ─▶ per person ─▶ the view
    signing in ─▶ per address, of its own: each try costs the server an argon2 hash

Counted in windows of a minute, in the broker where all web processes see it. While the broker is
away each process counts for itself: people can go on working, and nobody gets more than the limit
from one process. Which people have how much left says nothing about data: every request counts
alike, whatever it asks.
"""

import logging
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from flask import Flask, Response, current_app, g, request
from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage, Storage
from limits.strategies import FixedWindowRateLimiter
from werkzeug.exceptions import TooManyRequests

from accountant.addresses import broker_address
from accountant.identities import sign_ins
from accountant.settings import Settings

logger = logging.getLogger(__name__)

#: How long a broker that did not answer is left alone.
_AWAY_SECONDS = 5.0
_PATIENCE_SECONDS = 0.25


class RateLimits:
    """The counters of one web process, shared through the broker while it answers."""

    def __init__(self, settings: Settings) -> None:
        self.limits = {
            "address": settings.requests_per_address,
            "person": settings.requests_per_person,
            "sign-in": settings.sign_ins_per_address,
        }
        self._shared = None if settings.broker_url is None else _storage(settings.broker_url)
        self._own = FixedWindowRateLimiter(MemoryStorage())
        self._away_until = 0.0

    def count(self, name: str, holder: str) -> None:
        """Count a request of `holder`. Raises TooManyRequests beyond the limit; 0: no limit."""
        allowed = self.limits[name]
        if not allowed:
            return
        item = RateLimitItemPerMinute(allowed)
        within, left, seconds = self._hit(item, name, holder)
        limits = g.setdefault("rate_limits", [])
        limits.append((name, allowed, left, seconds))
        if not within:
            detail = (
                f"more than {allowed} requests a minute ({name}); try again in {seconds} seconds"
            )
            raise TooManyRequests(detail, retry_after=seconds)

    def _hit(self, item: RateLimitItemPerMinute, *holder: str) -> tuple[bool, int, int]:
        if self._shared is not None and time.monotonic() >= self._away_until:
            try:
                return _counted(self._shared, item, *holder)
            except StorageError as error:
                self._away_until = time.monotonic() + _AWAY_SECONDS
                logger.warning(
                    "the broker counts no requests (%s); each process counts its own", error
                )
        return _counted(self._own, item, *holder)


def _counted(
    limiter: FixedWindowRateLimiter, item: RateLimitItemPerMinute, *holder: str
) -> tuple[bool, int, int]:
    within = limiter.hit(item, *holder)
    stats = limiter.get_window_stats(item, *holder)
    return within, max(0, stats.remaining), max(1, round(stats.reset_time - time.time()))


def _storage(broker_url: str) -> FixedWindowRateLimiter:
    """Return counters in the broker; this library spells a socket unlike Celery."""
    url = broker_address(broker_url)
    parts = urlsplit(url)
    options: dict[str, Any] = {
        "socket_timeout": _PATIENCE_SECONDS,
        "socket_connect_timeout": _PATIENCE_SECONDS,
        "wrap_exceptions": True,
        "key_prefix": "exchequer-limits",
    }
    if parts.scheme == "redis+socket":
        url = f"redis+unix://{parts.path}?db={parse_qs(parts.query).get('virtual_host', ['0'])[0]}"
    storage: Storage = RedisStorage(url, **options)
    return FixedWindowRateLimiter(storage)


def init_app(app: Flask, settings: Settings) -> None:
    """Set up one set of counters for each application."""
    app.extensions["exchequer"]["limits"] = RateLimits(settings)


def counted(name: str, holder: str) -> None:
    """Count a request of the current application."""
    limits: RateLimits = current_app.extensions["exchequer"]["limits"]
    limits.count(name, holder)


def tell(response: Response) -> Response:
    """Add what is left in the header fields of the IETF's draft (RateLimit, RateLimit-Policy)."""
    rate_limits = g.get("rate_limits")
    if rate_limits:
        policies = (f'"{name}";q={allowed};w=60' for name, allowed, _, _ in rate_limits)
        left = (f'"{name}";r={rest};t={seconds}' for name, _, rest, seconds in rate_limits)
        response.headers["RateLimit-Policy"] = ", ".join(policies)
        response.headers["RateLimit"] = ", ".join(left)
    return response


def address() -> str:
    """Return the client's address, as the proxy reports it if `proxies` are trusted."""
    return sign_ins.customer(request.remote_addr or "")
