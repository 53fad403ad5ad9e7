"""Sign-in attempts: their rate limits, and the log of all of them.

An attempt is counted before its password is checked, and a successful one is uncounted: of any number of
concurrent attempts, no more than allowed are checked. They are counted by the name as typed, known or not, so
that a lock does not reveal who has an account.
"""

import hashlib
import ipaddress
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant.identities.activity_log import READERS
from accountant.identities.actor import Actor
from accountant.identities.sessions import Origin
from accountant.schema.people import METHODS as METHODS  # noqa: PLC0414
from accountant.schema.people import OUTCOMES as OUTCOMES  # noqa: PLC0414
from accountant.tables import paging, sign_ins
from accountant.tables import sign_in_limits as limits

#: Failures in a row for one name: so many are free, then each doubles the wait, up to an hour.
FREE_FAILURES = 5
FIRST_WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(hours=1)
#: NIST SP 800-63B, throttling: no more in a row. From here on an administrator unlocks the account.
MOST_FAILURES = 100
CLOSED_WAIT = timedelta(days=1)
FORGOTTEN_AFTER = timedelta(days=1)

#: Failures from one address, whatever the names: a bucket that holds so many and leaks one in this time.
ADDRESS_FAILURES = 50
ADDRESS_LEAK = timedelta(minutes=1)

_COULD_BE_A_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def admit(engine: Engine, name: str, origin: Origin) -> timedelta | None:
    """Count an attempt by `name` from an address as failed. Returns None to check it, or the time to wait.

    Several processes may ask at once: rows are locked, always in the same order.
    """
    keys = {_name_key(name): False, _address_key(origin.address): True}
    with engine.begin() as connection:
        rows = [_held(connection, key) for key in sorted(keys)]
        now = connection.execute(select(func.clock_timestamp())).scalar_one()
        waits = [_address_wait(row, now) if keys[row.key] else _name_wait(row, now) for row in rows]
        longest = max((wait for wait in waits if wait is not None), default=None)
        if longest is not None:
            _log_refusal(connection, rows, name, origin)
            return longest
        for row in rows:
            values = _after_address(row, now) if keys[row.key] else _after_name(row, now)
            connection.execute(update(limits).where(limits.c.key == row.key).values(**values))
        _forget(connection, now)
    return None


def succeeded(engine: Engine, name: str, user_id: UUID, origin: Origin, outcome: str = "signed in") -> None:
    """Record that the admitted attempt succeeded: clear the name's failures and one of the address's."""
    address = limits.c.key == _address_key(origin.address)
    with engine.begin() as connection:
        clear(connection, name)
        connection.execute(
            update(limits).where(address).values(failures=func.greatest(limits.c.failures - 1, 0))
        )
        _add(connection, name, user_id, origin, outcome)


def log(engine: Engine, name: str, user_id: UUID | None, origin: Origin, outcome: str) -> None:
    """Record a failed attempt."""
    with engine.begin() as connection:
        _add(connection, name, user_id, origin, outcome)


def log_return(engine: Engine, origin: Origin) -> None:
    """Record a failed return from the provider, as long as the address's limit allows.

    Anybody can request that address without having been at the provider, as often as they like.
    """
    key = _address_key(origin.address)
    with engine.begin() as connection:
        row = _held(connection, key)
        now = connection.execute(select(func.clock_timestamp())).scalar_one()
        if _address_wait(row, now) is not None:
            _log_refusal(connection, [row], "", origin)
            return
        connection.execute(update(limits).where(limits.c.key == key).values(**_after_address(row, now)))
        _add(connection, "", None, origin, "provider refused")


def clear(connection: Connection, name: str) -> None:
    """Forget the failures of a name."""
    values = {"failures": 0, "locked_until": None, "refusal_logged": False}
    connection.execute(update(limits).where(limits.c.key == _name_key(name)).values(**values))


@dataclass(frozen=True)
class Lock:
    """A lock on a name. `until` is None if only an administrator can unlock it."""

    failures: int
    until: datetime | None


def locks(connection: Connection, names: list[str]) -> dict[str, Lock]:
    """The current locks among `names`."""
    keys = {_name_key(name): name for name in names}
    now = connection.execute(select(func.clock_timestamp())).scalar_one()
    rows = connection.execute(select(limits).where(limits.c.key.in_(keys))).all()
    return {
        keys[row.key]: Lock(row.failures, None if row.failures >= MOST_FAILURES else row.locked_until)
        for row in rows
        if _name_wait(row, now) is not None
    }


# --- the limits ---------------------------------------------------------------------------------


def _held(connection: Connection, key: str) -> Row[Any]:
    """The row of a key, created if absent, and locked."""
    made = upsert(limits).values(key=key, last_at=func.clock_timestamp())
    kept = made.on_conflict_do_update(index_elements=["key"], set_={"key": key})
    return connection.execute(kept.returning(*limits.c)).one()


def _name_wait(row: Row[Any], now: datetime) -> timedelta | None:
    if row.failures >= MOST_FAILURES:
        return CLOSED_WAIT
    return row.locked_until - now if row.locked_until is not None and row.locked_until > now else None


def _after_name(row: Row[Any], now: datetime) -> dict[str, Any]:
    failures = 1 if now - row.last_at > FORGOTTEN_AFTER else row.failures + 1
    beyond = failures - FREE_FAILURES
    wait = None if beyond < 0 else min(FIRST_WAIT * 2 ** min(beyond, 20), LONGEST_WAIT)
    return {
        "failures": failures,
        "last_at": now,
        "locked_until": None if wait is None else now + wait,
        "refusal_logged": False,
    }


def _level(row: Row[Any], now: datetime) -> tuple[int, datetime]:
    """The level of an address's leaky bucket, and the time up to which it has leaked."""
    leaked = max(math.floor((now - row.last_at) / ADDRESS_LEAK), 0)
    return (
        (0, now) if leaked >= row.failures else (row.failures - leaked, row.last_at + leaked * ADDRESS_LEAK)
    )


def _address_wait(row: Row[Any], now: datetime) -> timedelta | None:
    level, since = _level(row, now)
    return None if level < ADDRESS_FAILURES else since + ADDRESS_LEAK - now


def _after_address(row: Row[Any], now: datetime) -> dict[str, Any]:
    level, since = _level(row, now)
    return {"failures": level + 1, "last_at": since, "refusal_logged": False}


def _forget(connection: Connection, now: datetime) -> None:
    """Delete a few obsolete rows: the table must not grow with every typing error."""
    old = (limits.c.last_at < now - 2 * FORGOTTEN_AFTER) & (limits.c.failures < MOST_FAILURES)
    few = select(limits.c.key).where(old).limit(20).with_for_update(skip_locked=True)
    connection.execute(delete(limits).where(limits.c.key.in_(few.scalar_subquery())))


def _name_key(name: str) -> str:
    return "name:" + hashlib.sha256(name.encode()).hexdigest()


def _address_key(address: str) -> str:
    return f"address:{customer(address)}"


def customer(address: str) -> str:
    """The presumed owner of an address: an IPv4 address, or the IPv6 network of one customer."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if found.version == 6:
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found), 64), strict=False))
    return str(found)


# --- the log ------------------------------------------------------------------------------------


def _log_refusal(connection: Connection, rows: list[Row[Any]], name: str, origin: Origin) -> None:
    """Log the first refusal of each lock only: the log must not grow as fast as requests arrive."""
    if all(row.refusal_logged for row in rows):
        return
    connection.execute(
        update(limits).where(limits.c.key.in_([row.key for row in rows])).values(refusal_logged=True)
    )
    _add(connection, name, None, origin, "too many failures")


def _add(connection: Connection, name: str, user_id: UUID | None, origin: Origin, outcome: str) -> None:
    connection.execute(
        insert(sign_ins).values(
            # Whoever types a password into the wrong field does not find it in a log.
            name=name if _COULD_BE_A_NAME.fullmatch(name) else None,
            user_id=user_id,
            method=origin.method,
            address=origin.address,
            user_agent=origin.user_agent,
            outcome=outcome,
        )
    )


def listing(
    engine: Engine,
    viewer: Actor,
    *,
    name: str | None = None,
    outcome: str | None = None,
    method: str | None = None,
    after: paging.After = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Attempts, newest first, for auditors and administrators; others see those under their own name.

    `after` (id,) continues a listing.
    """
    if not viewer.roles & set(READERS):
        name = viewer.name
    query = paging.window(select(sign_ins), [sign_ins.c.id], limit, after)
    for column, value in {"name": name, "outcome": outcome, "method": method}.items():
        if value is not None:
            query = query.where(sign_ins.c[column] == value)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    shown = ("id", "name", "method", "address", "user_agent", "outcome")
    return [{"at": row.at.isoformat(), **{each: getattr(row, each) for each in shown}} for row in rows]
