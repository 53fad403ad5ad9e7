"""What a second person answers. Every kind of it is asked, kept and closed in one way.

    ask ──▶ open ── yes ──▶ `apply` makes it true, in the transaction of the answer ──▶ accepted
              ├── no ──▶ refused, or withdrawn where its asker says it: nothing happened
              └── nobody answers in time ──▶ expired

A job that awaits approval is a decision too: its own row keeps it, and its id is the decision's.
The account's row is locked first, then the decision's. So of two people who answer at once, one is
told that the other was faster. `answers.answer` is the only way to answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from accountant import tables
from accountant.core.errors import Conflict, NotFound, NotPermitted, VerificationFailed, invalid
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reversals import TwoPeople
from accountant.core.names import is_alike
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners, signed_acts, two_people
from accountant.transactions.decision import Untold
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import policy_of
from accountant.transactions.signed_acts import Signature

decisions, jobs = tables.decisions, tables.jobs

OPEN_DAYS = 14
MOST_CHARACTERS = 2_000
#: The kind of a job that awaits approval; no row of `decisions` has it.
APPROVAL = "approval"


@dataclass(frozen=True)
class Result:
    """What a yes made: an entry's number, a job, or another decision. `untold`: see `decision`."""

    entry: int | None = None
    job: UUID | None = None
    decision: UUID | None = None
    untold: Untold | None = None


NOTHING = Result()


@dataclass(frozen=True)
class Ground:
    """The ground that an answer stands on: the decision and its dataset's account, both held."""

    account: LockedAccount
    row: Any  # of `decisions`
    dataset: Row[Any]
    actor: Actor
    reason: str
    signature: Signature | None

    @classmethod
    def locked(
        cls,
        connection: Connection,
        decision_id: UUID,
        actor: Actor,
        reason: str,
        signature: Signature | None,
    ) -> "Ground":
        """Lock the account's row, then the decision's. Raises NotFound."""
        query = select(decisions).where(decisions.c.id == decision_id)
        waiting = select(jobs).where(jobs.c.id == decision_id)
        found = connection.execute(query).one_or_none()
        if found is None:
            account = LockedAccount(
                connection, one(connection, waiting, "decision", decision_id).dataset_id
            )
            row: Any = _of_job(connection.execute(waiting.with_for_update()).one())
        else:
            account = LockedAccount(connection, found.dataset_id)
            row = connection.execute(query.with_for_update()).one()
        dataset = held_dataset(connection, account.dataset_id)
        return cls(account, row, dataset, actor, reason, signature)

    @property
    def connection(self) -> Connection:
        """The connection of the transaction."""
        return self.account.connection

    @property
    def policy(self) -> Policy:
        """The dataset's policy, which nobody changes meanwhile."""
        return policy_of(self.dataset)

    @property
    def is_asker(self) -> bool:
        """True if the actor asked."""
        return bool(self.actor.id == self.row.asked_by)

    @property
    def was_accepted(self) -> bool:
        """True if the actor said yes before."""
        return bool(self.row.state == "accepted" and self.row.answered_by == self.actor.id)

    @property
    def roles(self) -> frozenset[str]:
        """The actor's roles on the dataset."""
        return owners.on(self.actor, self.policy).roles

    def job(self) -> Row[Any]:
        """Return the row of the job that the decision is about."""
        return row_of(self.connection, jobs, self.row.job_id)

    def giving(self, reason: str) -> "Ground":
        """Return the ground with this reason."""
        return replace(self, reason=reason)

    def require_steward(self) -> None:
        """Raise NotPermitted unless the actor is a steward of the dataset."""
        owners.require(self.actor, self.policy, "steward")

    def require_other(self) -> None:
        """Raise NotPermitted if the actor asked."""
        if self.is_asker:
            raise NotPermitted("nobody answers what they asked for themselves: it takes two people")

    def require_unlike(self, asker: str) -> None:
        """Raise NotPermitted if the asker's name looks like the actor's: one person, perhaps."""
        if is_alike(asker, self.actor.name):
            raise NotPermitted(f"{asker!r} and {self.actor.name!r} look alike: not two people")

    def require_open(self) -> None:
        """Raise Conflict if the decision is closed."""
        if self.row.state != "open":
            what = "job" if self.row.kind == APPROVAL else "decision"
            raise Conflict(f"the {what} is {self.row.state.replace('_', ' ')} already")

    def require_entry(self, newest: int) -> None:
        """Raise Conflict if `newest` is another entry than the decision would replace."""
        if newest != self.row.basis_seq:
            basis = f"entry {self.row.basis_seq}" if self.row.basis_seq else "no allowance"
            raise Conflict(
                f"it was asked for when {basis} stood, and entry {newest} stands now: propose it "
                "anew"
            )

    def people(self) -> TwoPeople:
        """Return both people for an entry. Raises Conflict if the asker may be neither any more."""
        asker = row_of(self.connection, tables.users, self.row.asked_by)
        left = owners.steward_departure(asker, self.policy)
        if left is not None:
            raise Conflict(f"{left}, who proposed it: propose it anew")
        if "administrator" in asker.roles:
            raise Conflict(
                "who proposed it is administrator by now, and could make a second person: propose "
                "it anew"
            )
        self.require_unlike(asker.name)
        return TwoPeople(str(asker.name), self.row.reason, self.actor.name, self.reason)

    def signed(self, kind: EntryKind, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of an entry with both signatures, where the policy asks for them."""
        first = {name: value for name, value in self.row.asked.items() if name == "signature"}
        about = self.connection, self.dataset.id, self.policy, kind, self.row.job_id
        return signed_acts.by_second(*about, {**body, **first}, self.signature)

    def expire(self) -> bool:
        """Expire the decision if its time is over, and return whether it was."""
        waits_as_job = self.row.kind == APPROVAL
        expired = expire_approvals if waits_as_job else expire_decisions
        return bool(expired(self.connection, self.row.id))


class Kind:
    """A kind of decision: who answers it, what a yes does, and what pages say of it.

    By default one steward asks, and another answers.
    """

    name: ClassVar[str]
    #: What is asked for, the button of a yes, and what follows from it.
    title: ClassVar[str] = ""
    yes: ClassVar[str] = "Confirm"
    effect: ClassVar[str] = "The ledger gets an entry with both names. It can't be removed."
    #: Whether a yes asks who is there, where that was shown too long ago.
    is_sensitive: ClassVar[bool] = True
    #: Whether an answer says why.
    needs_reason: ClassVar[bool] = True
    #: Roles on the dataset whose people see it, beside who asked and who answers.
    seen_by: ClassVar[frozenset[str]] = frozenset({"steward", "auditor"})

    def addressee(self, ground: Ground) -> UUID | None:  # noqa: ARG002
        """Return the one person who answers, or None if stewards do."""
        return None

    def require_seen(self, ground: Ground) -> None:
        """Raise NotFound for somebody who may not know of the decision."""
        if ground.roles & self.seen_by or ground.is_asker:
            return
        if ground.actor.id != self.addressee(ground):
            raise NotFound("decision", str(ground.row.id))

    def require_answerer(self, ground: Ground) -> None:
        """Raise NotPermitted unless the actor may say yes."""
        ground.require_steward()
        ground.require_other()
        two_people.require_second(ground.connection, ground.actor)

    def state_after_no(self, ground: Ground) -> str:
        """Return the state after a no of the actor. Raises NotPermitted if they may not say it."""
        ground.require_steward()
        return "withdrawn" if ground.is_asker else "refused"

    def apply(self, ground: Ground) -> Result:
        """Make it true. Raises Conflict if what it was asked on has changed."""
        raise NotImplementedError

    def close(self, ground: Ground, state: str, result: Result = NOTHING) -> None:
        """Record the answer."""
        change = update(decisions).where(decisions.c.id == ground.row.id)
        ground.connection.execute(
            change.values(
                state=state,
                answered_by=ground.actor.id,
                answered_at=func.clock_timestamp(),
                answer=ground.reason,
                entry_seq=result.entry,
                made_job=result.job,
                made_decision=result.decision,
            )
        )


class ByAnybody(Kind):
    """What somebody who is no steward asks for, and a steward answers."""

    def require_answerer(self, ground: Ground) -> None:
        """Raise NotPermitted unless another steward answers."""
        ground.require_steward()
        ground.require_other()

    def state_after_no(self, ground: Ground) -> str:
        """Return "withdrawn" for a no of who asked, and "refused" for one of a steward."""
        if ground.is_asker:
            return "withdrawn"
        ground.require_steward()
        return "refused"


class ByTwo(Kind):
    """What one steward proposes and another confirms: an entry that names both."""

    def apply(self, ground: Ground) -> Result:
        """Write the entry. Raises Conflict if the account can't bear it any more."""
        try:
            return self.write(ground)
        except VerificationFailed as error:
            raise Conflict(f"it can't stand any more: {error}") from None

    def write(self, ground: Ground) -> Result:
        """Write the entry."""
        raise NotImplementedError


# --- asking -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What is asked of a second person.

    Args:
        basis: The number of the entry that it would replace; 0 if there is none yet.
        days: Days until it expires, or None if it does not.
        by_two: Whether asker and answerer are the two people of an act.
    """

    kind: str
    asked: Mapping[str, Any]
    reason: str
    basis: int | None = None
    job_id: UUID | None = None
    days: int | None = OPEN_DAYS
    by_two: bool = True


def ask(
    connection: Connection, decision_id: UUID, dataset_id: UUID, actor: Actor, request: Request
) -> UUID:
    """Record what a second person is to answer, and return its id.

    Raises NotPermitted for an administrator who asks for an act of two people: they could make the
    second.
    """
    if request.by_two:
        two_people.require_separate(actor)
    expires = (
        None if request.days is None else func.clock_timestamp() + timedelta(days=request.days)
    )
    connection.execute(
        insert(decisions).values(
            id=decision_id,
            kind=request.kind,
            dataset_id=dataset_id,
            job_id=request.job_id,
            asked=dict(request.asked),
            basis_seq=request.basis,
            reason=request.reason,
            asked_by=actor.id,
            expires_at=expires,
        )
    )
    return decision_id


def words(reason: str) -> str:
    """Return a reason without space around it. Raises InvalidRequest if it is empty or too long."""
    said = reason.strip()
    if not said:
        raise invalid("reason", "empty", "a sentence that says why")
    if len(said) > MOST_CHARACTERS or "\0" in said:
        problem = (
            "holds a character that no text has" if "\0" in said else f"{len(said):,} characters"
        )
        raise invalid("reason", problem, f"from 1 to {MOST_CHARACTERS:,} characters")
    return said


# --- expiry -------------------------------------------------------------------------------------


def expire_approvals(connection: Connection, job_id: UUID | None = None) -> int:
    """Expire jobs that await approval past their time (one job, or all), and return how many.

    Such a job has no reservation: no balance moves, so no account is locked. A row that somebody
    decides on right now is left to them.
    """
    overdue = [
        jobs.c.state == "awaiting_approval",
        jobs.c.approval_expires < func.clock_timestamp(),
    ]
    if job_id is not None:
        overdue.append(jobs.c.id == job_id)
    held = select(jobs.c.id).where(*overdue).with_for_update(skip_locked=True)
    ended = update(jobs).where(jobs.c.id.in_(held), *overdue)
    return connection.execute(
        ended.values(state="expired", finished_at=func.clock_timestamp())
    ).rowcount


def expire_decisions(connection: Connection, decision_id: UUID | None = None) -> int:
    """Expire open decisions past their time, like `expire_approvals`."""
    overdue = [decisions.c.state == "open", decisions.c.expires_at < func.clock_timestamp()]
    if decision_id is not None:
        overdue.append(decisions.c.id == decision_id)
    held = select(decisions.c.id).where(*overdue).with_for_update(skip_locked=True)
    ended = update(decisions).where(decisions.c.id.in_(held), *overdue)
    return connection.execute(
        ended.values(state="expired", answered_at=func.clock_timestamp())
    ).rowcount


def sweep(engine: Engine) -> int:
    """Expire everything that is overdue, and return how many jobs and decisions."""
    with engine.begin() as connection:
        return expire_approvals(connection) + expire_decisions(connection)


# --- rows ---------------------------------------------------------------------------------------


def held_dataset(connection: Connection, dataset_id: UUID) -> Row[Any]:
    """Lock a dataset's row and its policy. Lock the account's row before, or never."""
    query = select(tables.datasets).where(tables.datasets.c.id == dataset_id)
    return connection.execute(query.with_for_update(key_share=True)).one()


def row_of(connection: Connection, table: Any, row_id: UUID) -> Row[Any]:
    """Return the row with this id."""
    return connection.execute(select(table).where(table.c.id == row_id)).one()


def _of_job(job: Row[Any]) -> Any:
    """Return a job that awaits approval as a row of `decisions`."""
    return SimpleNamespace(
        id=job.id,
        kind=APPROVAL,
        dataset_id=job.dataset_id,
        job_id=job.id,
        asked={},
        reason=job.purpose,
        state="open" if job.state == "awaiting_approval" else job.state,
        asked_by=job.analyst_id,
        answered_by=None,
    )
