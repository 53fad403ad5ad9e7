"""People's passkeys, and the challenges that these are asked to sign: each taken once, within
minutes.

What an authenticator says is checked before anything here is called (web.passkeys).
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, Row, any_, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from accountant.core.errors import Conflict, NotPermitted, invalid
from accountant.core.ledger.policy import Signer, read_signer
from accountant.core.ledger.signatures import fingerprint
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables import passkey_challenges, passkeys, users
from accountant.tables.lookup import one

#: How long somebody may take to touch a passkey.
CHALLENGE_MINUTES = 5
MOST_PASSKEYS = 20
#: Challenges open at a time: of one person, and of all who are not signed in.
_MOST_OPEN, _MOST_STRANGERS = 50, 10_000


@dataclass(frozen=True)
class Challenge:
    """What a passkey was asked to sign: random bytes, or the hash of an act with this nonce."""

    challenge: bytes
    nonce: str | None


# --- challenges -----------------------------------------------------------------------------------


def ask(
    engine: Engine, user_id: UUID | None, purpose: str, challenge: bytes, nonce: str | None = None
) -> UUID:
    """Keep what a passkey is asked to sign, for `take`. `user_id` None: nobody is signed in."""
    challenge_id, now = uuid4(), func.clock_timestamp()
    expires = now + timedelta(minutes=CHALLENGE_MINUTES)
    with engine.begin() as connection:
        connection.execute(delete(passkey_challenges).where(passkey_challenges.c.expires_at < now))
        mine = select(passkey_challenges.c.id).where(passkey_challenges.c.user_id == user_id)
        most = _MOST_STRANGERS if user_id is None else _MOST_OPEN
        newest = mine.order_by(passkey_challenges.c.expires_at.desc()).offset(most)
        connection.execute(delete(passkey_challenges).where(passkey_challenges.c.id.in_(newest)))
        connection.execute(
            insert(passkey_challenges).values(
                id=challenge_id,
                user_id=user_id,
                purpose=purpose,
                challenge=challenge,
                nonce=nonce,
                expires_at=expires,
            )
        )
    return challenge_id


def take(engine: Engine, challenge_id: UUID, user_id: UUID | None, purpose: str) -> Challenge:
    """Return and delete a challenge of this person and purpose. Raises NotPermitted without one."""
    open_ = passkey_challenges
    taken = (
        delete(open_)
        .where(open_.c.id == challenge_id, open_.c.user_id.is_not_distinct_from(user_id))
        .where(open_.c.purpose == purpose, open_.c.expires_at > func.clock_timestamp())
    )
    with engine.begin() as connection:
        row = connection.execute(taken.returning(open_.c.challenge, open_.c.nonce)).one_or_none()
    if row is None:
        raise NotPermitted(
            "passkey: it was asked for too long ago, or has answered already: try again"
        )
    return Challenge(row.challenge, row.nonce)


# --- passkeys -------------------------------------------------------------------------------------


def check_name(name: str, field: str = "name") -> None:
    """Raise InvalidRequest unless a passkey can have this name."""
    if not 1 <= len(name.strip()) <= 100 or not name.isprintable():
        raise invalid(field, repr(name[:40]), "1 to 100 printable characters")


def add(
    engine: Engine,
    actor: Actor,
    name: str,
    credential_id: bytes,
    public_key: bytes,
    signer: Signer,
    count: int,
) -> UUID:
    """Register a passkey of the actor's. Raises InvalidRequest, and Conflict if it is known."""
    check_name(name)
    key_id = uuid4()
    try:
        with engine.begin() as connection:
            held = select(users.c.id).where(users.c.id == actor.id).with_for_update()
            connection.execute(held)
            own_passkeys = select(func.count()).where(
                passkeys.c.user_id == actor.id, passkeys.c.removed_at.is_(None)
            )
            if connection.execute(own_passkeys).scalar_one() >= MOST_PASSKEYS:
                raise Conflict(f"you have {MOST_PASSKEYS} passkeys: remove one first")
            connection.execute(
                insert(passkeys).values(
                    id=key_id,
                    user_id=actor.id,
                    name=name.strip(),
                    credential_id=credential_id,
                    public_key=public_key,
                    signer=str(signer),
                    sign_count=count,
                )
            )
            _log(connection, actor, "passkey added", name.strip(), signer)
    except IntegrityError:
        raise Conflict("this passkey is registered already") from None
    return key_id


def remove(engine: Engine, actor: Actor, passkey_id: UUID) -> None:
    """Remove a passkey of the actor's: it signs in no more. Its signatures and policies stand."""
    mine = (
        passkeys.c.id == passkey_id,
        passkeys.c.user_id == actor.id,
        passkeys.c.removed_at.is_(None),
    )
    with engine.begin() as connection:
        row = one(
            connection, select(passkeys).where(*mine).with_for_update(), "passkey", passkey_id
        )
        gone = update(passkeys).where(passkeys.c.id == row.id)
        connection.execute(gone.values(removed_at=func.clock_timestamp()))
        _log(connection, actor, "passkey removed", row.name, read_signer(row.signer))


def _log(connection: Any, actor: Actor, action: str, name: str, signer: Signer) -> None:
    detail = {"passkey": name, "key_sha256": fingerprint(signer.key)}
    activity_log.record(connection, actor, action, "account", actor.name, **detail)


def of(engine: Engine, user_id: UUID) -> list[dict[str, Any]]:
    """Return a person's passkeys, the oldest first, with the texts by which policies name them."""
    query = select(passkeys).where(passkeys.c.user_id == user_id, passkeys.c.removed_at.is_(None))
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(passkeys.c.created_at)).all()
    return [
        {
            "id": str(row.id),
            "name": row.name,
            "created_at": row.created_at.isoformat(),
            "last_used_at": None if row.last_used_at is None else row.last_used_at.isoformat(),
            "credential_id": row.credential_id,
            "signer": row.signer,
            "key_sha256": fingerprint(read_signer(row.signer).key),
        }
        for row in rows
    ]


def signers(engine: Engine, viewer: Actor) -> list[dict[str, str]]:
    """Return passkeys of stewards with open accounts, for stewards: text, person, name, key."""
    viewer.require("steward")
    query = (
        select(passkeys.c.signer, passkeys.c.name, users.c.name.label("person"))
        .join(users, users.c.id == passkeys.c.user_id)
        .where(passkeys.c.removed_at.is_(None), users.c.active, any_(users.c.roles) == "steward")
    )
    with engine.connect() as connection:
        rows = connection.execute(
            query.order_by(users.c.name, passkeys.c.created_at).limit(1000)
        ).all()
    return [
        {
            "signer": row.signer,
            "person": row.person,
            "name": row.name,
            "key_sha256": fingerprint(read_signer(row.signer).key),
        }
        for row in rows
    ]


def find(engine: Engine, credential_id: bytes) -> Row[Any] | None:
    """Return the passkey with this credential id if its owner's account is open, or None."""
    query = (
        select(passkeys)
        .join(users, users.c.id == passkeys.c.user_id)
        .where(
            passkeys.c.credential_id == credential_id,
            passkeys.c.removed_at.is_(None),
            users.c.active,
        )
    )
    with engine.connect() as connection:
        return connection.execute(query).one_or_none()


def used(engine: Engine, passkey: Row[Any], count: int) -> None:
    """Note a use. Raises NotPermitted where the count did not rise since `passkey` was read."""
    rises = (passkeys.c.sign_count < count) | ((passkeys.c.sign_count == 0) & (count == 0))
    noted = update(passkeys).where(passkeys.c.id == passkey.id, rises)
    with engine.begin() as connection:
        moved = connection.execute(
            noted.values(sign_count=count, last_used_at=func.clock_timestamp())
        )
        if not moved.rowcount:
            raise NotPermitted(
                "passkey: it was used less often than before, so there may be a copy of it"
            )
