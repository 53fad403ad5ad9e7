"""Sign-in attempts: their rate limits, and the log of all of them.

An attempt is counted before its password is checked, and a successful one is uncounted: of any
number of concurrent attempts, no more than allowed are checked. They are counted by the name as
typed, known or not, so that a lock does not reveal who has an account; and by the address or the
device that they came from, so that no stranger's failures keep a person out elsewhere (OWASP: slow
down online guessing with device cookies).
"""

import hashlib
import ipaddress
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant.identities.activity_log import READERS
from accountant.identities.actor import Actor
from accountant.identities.sessions import Origin
from accountant.schema.people import METHODS as METHODS  # noqa: PLC0414
from accountant.schema.people import OUTCOMES as OUTCOMES  # noqa: PLC0414
from accountant.tables import paging, sign_ins
from accountant.tables import sign_in_limits as limits

#: Failures in a row for one name from one address or device: so many are free, then each doubles
#: the wait, up to an hour.
FREE_FAILURES = 5
FIRST_WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(hours=1)
#: NIST SP 800-63B, throttling: no more in a row. From here on an administrator unlocks the account.
MOST_FAILURES = 100
CLOSED_WAIT = timedelta(days=1)
FORGOTTEN_AFTER = timedelta(days=1)

#: So many failures from one address count against a name as a whole, which is closed at
#: MOST_FAILURES to addresses and devices that nobody of the name has signed in from: one stranger
#: alone never closes it.
MOST_OF_AN_ADDRESS = 10
REMEMBERED = 50  # sign-ins whose addresses are known

#: Failures from one address, whatever the names: a bucket that holds so many and leaks one in this
#: time.
ADDRESS_FAILURES = 50
ADDRESS_LEAK = timedelta(minutes=1)

_COULD_BE_A_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def admit(engine: Engine, name: str, origin: Origin, device: str | None = None) -> timedelta | None:
    """Count an attempt by `name` from an address as failed. Returns None to check it, or the time
    to wait.

    `device`: a browser in which somebody of this name has signed in before (web.auth): its
    failures are counted for themselves. Several processes may ask at once: rows are locked, always
    in the same order.
    """
    device_key, whole, address = _keys(name, origin, device)
    with engine.begin() as connection:
        counted = {device_key} if device else {device_key, whole, address}
        rows = {key: _held(connection, key) for key in sorted(counted)}
        now = connection.execute(select(func.clock_timestamp())).scalar_one()
        waits = [_name_wait(rows[device_key], now)]
        if device is None:
            waits.append(_address_wait(rows[address], now))
            if rows[whole].failures >= MOST_FAILURES and not _signed_in_from(
                connection, name, origin.address
            ):
                waits.append(CLOSED_WAIT)
        longest = max((wait for wait in waits if wait is not None), default=None)
        if longest is not None:
            _log_refusal(connection, list(rows.values()), name, origin)
            return longest
        changed = {device_key: _after_name(rows[device_key], now)}
        if device is None:
            changed[address] = _after_address(rows[address], now)
            if changed[device_key]["failures"] <= MOST_OF_AN_ADDRESS:
                changed[whole] = {**_after_name(rows[whole], now), "locked_until": None}
        for key, values in changed.items():
            connection.execute(update(limits).where(limits.c.key == key).values(**values))
        # a few obsolete rows go: the table must not grow with every typing error
        old = (limits.c.last_at < now - 2 * FORGOTTEN_AFTER) & (limits.c.failures < MOST_FAILURES)
        few = select(limits.c.key).where(old).limit(20).with_for_update(skip_locked=True)
        connection.execute(delete(limits).where(limits.c.key.in_(few.scalar_subquery())))
    return None


def succeeded(
    engine: Engine,
    name: str,
    user_id: UUID,
    origin: Origin,
    outcome: str = "signed in",
    device: str | None = None,
) -> None:
    """Record that the admitted attempt succeeded. It and those before it are uncounted."""
    device_key, whole, address = _keys(name, origin, device)
    with engine.begin() as connection:
        counted = {device_key} if device else {device_key, whole, address}
        rows = {key: _held(connection, key) for key in sorted(counted)}
        before = rows[device_key].failures
        back = {device_key: before, whole: min(before, MOST_OF_AN_ADDRESS), address: 1}
        for key in rows:
            left = func.greatest(limits.c.failures - back[key], 0)
            values: dict[str, Any] = {"failures": left}
            if not key.startswith("address:"):
                values |= {"locked_until": None, "refusal_logged": False}
            connection.execute(update(limits).where(limits.c.key == key).values(**values))
        _add(connection, name, user_id, origin, outcome)


def _keys(name: str, origin: Origin, device: str | None) -> tuple[str, str, str]:
    """Return an attempt's rows: name from this device or address, name, and address."""
    whole, address = _name_key(name), _address_key(origin.address)
    return f"{whole}@{address if device is None else _sha256(device)}", whole, address


def _signed_in_from(connection: Connection, name: str, address: str) -> bool:
    """Return True if this name signed in from this address or IPv6 network of late."""
    mine = select(sign_ins.c.address).where(
        sign_ins.c.name == name, sign_ins.c.outcome == "signed in"
    )
    rows = connection.execute(mine.order_by(sign_ins.c.id.desc()).limit(REMEMBERED)).scalars()
    return customer(address) in {customer(row) for row in rows}


def log(engine: Engine, name: str, user_id: UUID | None, origin: Origin, outcome: str) -> None:
    """Record a failed attempt."""
    with engine.begin() as connection:
        _add(connection, name, user_id, origin, outcome)


def log_return(engine: Engine, origin: Origin, outcome: str = "provider refused") -> None:
    """Record a failed return from the provider, or passkey's answer, as long as the address's limit
    allows.

    Anybody can request that address without having been at the provider, as often as they like.
    """
    key = _address_key(origin.address)
    with engine.begin() as connection:
        row = _held(connection, key)
        now = connection.execute(select(func.clock_timestamp())).scalar_one()
        if _address_wait(row, now) is not None:
            _log_refusal(connection, [row], "", origin)
            return
        connection.execute(
            update(limits).where(limits.c.key == key).values(**_after_address(row, now))
        )
        _add(connection, "", None, origin, outcome)


def clear(connection: Connection, name: str) -> None:
    """Forget the failures of a name, from wherever they came."""
    values = {"failures": 0, "locked_until": None, "refusal_logged": False}
    connection.execute(
        update(limits).where(limits.c.key.startswith(_name_key(name))).values(**values)
    )


@dataclass(frozen=True)
class Lock:
    """A lock on a name. `until` is None if only an administrator can unlock it."""

    failures: int
    until: datetime | None


def locks(connection: Connection, names: list[str]) -> dict[str, Lock]:
    """Return the current locks among `names`; of several, by address and by device, the longest."""
    keys = {_name_key(name): name for name in names}
    now = connection.execute(select(func.clock_timestamp())).scalar_one()
    held_locks: dict[str, Lock] = {}
    of_names = or_(*(limits.c.key.startswith(key) for key in keys))
    query = select(limits).where(of_names, limits.c.failures > 0)
    for row in connection.execute(query.order_by(limits.c.failures)):
        if _name_wait(row, now) is not None:
            until = None if row.failures >= MOST_FAILURES else row.locked_until
            held_locks[keys[row.key.partition("@")[0]]] = Lock(row.failures, until)
    return held_locks


# --- the limits ---------------------------------------------------------------------------------


def _held(connection: Connection, key: str) -> Row[Any]:
    """Return the row of a key, created if absent, and locked."""
    insertion = upsert(limits).values(key=key, last_at=func.clock_timestamp())
    locked_row = insertion.on_conflict_do_update(index_elements=["key"], set_={"key": key})
    return connection.execute(locked_row.returning(*limits.c)).one()


def _name_wait(row: Row[Any], now: datetime) -> timedelta | None:
    if row.failures >= MOST_FAILURES:
        return CLOSED_WAIT
    return (
        row.locked_until - now if row.locked_until is not None and row.locked_until > now else None
    )


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
    """Return the level of an address's leaky bucket, and the time up to which it has leaked."""
    leaked = max(math.floor((now - row.last_at) / ADDRESS_LEAK), 0)
    return (
        (0, now)
        if leaked >= row.failures
        else (row.failures - leaked, row.last_at + leaked * ADDRESS_LEAK)
    )


def _address_wait(row: Row[Any], now: datetime) -> timedelta | None:
    level, since = _level(row, now)
    return None if level < ADDRESS_FAILURES else since + ADDRESS_LEAK - now


def _after_address(row: Row[Any], now: datetime) -> dict[str, Any]:
    level, since = _level(row, now)
    return {"failures": level + 1, "last_at": since, "refusal_logged": False}


def _name_key(name: str) -> str:
    return "name:" + _sha256(name)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _address_key(address: str) -> str:
    return f"address:{customer(address)}"


def customer(address: str) -> str:
    """Return an address's presumed owner: an IPv4 address, or a customer's IPv6 network."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if ip.version == 6:
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((int(ip), 64), strict=False))
    return str(ip)


# --- the log ------------------------------------------------------------------------------------


def _log_refusal(connection: Connection, rows: list[Row[Any]], name: str, origin: Origin) -> None:
    """Log the first refusal of each lock only: the log must not grow as fast as requests arrive."""
    if all(row.refusal_logged for row in rows):
        return
    connection.execute(
        update(limits)
        .where(limits.c.key.in_([row.key for row in rows]))
        .values(refusal_logged=True)
    )
    _add(connection, name, None, origin, "too many failures")


def _add(
    connection: Connection, name: str, user_id: UUID | None, origin: Origin, outcome: str
) -> None:
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
    """Return attempts, newest first, for auditors and administrators; others see those under their
    own name.

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
    return [
        {"at": row.at.isoformat(), **{column: getattr(row, column) for column in shown}}
        for row in rows
    ]
