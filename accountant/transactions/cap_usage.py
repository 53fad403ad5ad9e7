"""Use of a dataset per person and project: sums compared with caps, updated together with the
ledger.

Only the ledger moves them, in the transaction that appends the entry and under the account's lock.
A job counts what it asked for, whether it ended early or not, until its reservation is void or its
charge is corrected to nothing.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.ledger import charges
from accountant.core.ledger.caps import ANALYST, NO_USAGE, PROJECT, Usage, counted, limits
from accountant.core.ledger.fair_use import Shared, Sharing, month_of
from accountant.core.ledger.policy import Policy

usage = tables.usage


def holders(job: Row[Any]) -> dict[str, str]:
    """Return the holders whose caps a job counts towards: its analyst, its project if it names
    one, and all charges of its level if it is one.
    """
    return holders_of(job.analyst_id, job.project, charges.level(job.mechanism, job.parameters))


def holders_of(
    analyst: UUID, project: str | None, vouched: str = charges.MEASURED
) -> dict[str, str]:
    """Return the same for a job that is not recorded yet."""
    found = {ANALYST: str(analyst)}
    if vouched != charges.MEASURED:
        found[vouched] = "charges"
    return found if project is None else {**found, PROJECT: project}


class Sheet:
    """Use of one dataset per holder while its account's row is locked: as stored, and as counted
    since.

    Requests of one transaction are decided one after the other, so each sees what those before it
    count.
    """

    def __init__(self, connection: Connection, dataset_id: UUID) -> None:
        self._connection, self._dataset_id = connection, dataset_id
        self._written: dict[tuple[str, str], int] = {}
        self._added: dict[tuple[str, str], tuple[int, int | None]] = {}
        self._shared: Shared | None = None

    def shared(self, policy: Policy, now: datetime) -> Shared | None:
        """Return the use of what the policy shares out, or None if it shares nothing."""
        if self._shared is None:
            self._shared = shared(self._connection, self._dataset_id, policy, now)
        return self._shared

    def used_where_capped(self, wanted: Mapping[str, str], policy: Policy) -> Usage:
        """Return the present use by both holders; not looked up if the policy sets no cap."""
        if not limits(policy):
            return NO_USAGE
        unknown = {
            kind: holder for kind, holder in wanted.items() if (kind, holder) not in self._written
        }
        if unknown:
            query = select(usage.c.kind, usage.c.spent + usage.c.reserved)
            found = dict(
                self._connection.execute(query.where(_rows(self._dataset_id, unknown))).all()
            )
            self._written |= {
                (kind, holder): int(found.get(kind, 0)) for kind, holder in unknown.items()
            }
        amounts: dict[str, Any] = {
            each[0]: self._written[each] + self._counted(each) for each in wanted.items()
        }
        return Usage(**amounts)

    def _counted(self, holder: tuple[str, str]) -> int:
        return self._added.get(holder, (0, None))[0]

    def reserve(
        self,
        wanted: Mapping[str, str],
        epsilon_alone: float | None,
        policy: Policy,
        sharer: str = "",
    ) -> None:
        """Count a job that is reserved now. The row's CHECK holds the cap that admitted it."""
        amount, caps = counted(epsilon_alone), limits(policy)
        for each in wanted.items():
            cap = caps.get(each[0]) if amount else None  # what is free fits beyond every cap
            self._added[each] = (self._counted(each) + amount, cap)
        if self._shared is not None:
            self._shared = self._shared.after(sharer, amount)

    def snapshot(self) -> tuple[dict[tuple[str, str], tuple[int, int | None]], Shared | None]:
        """Return the counts so far, for `restore`."""
        return dict(self._added), self._shared

    def restore(
        self, before: tuple[dict[tuple[str, str], tuple[int, int | None]], Shared | None]
    ) -> None:
        """Forget what was counted since the snapshot."""
        self._added, self._shared = before

    def take(self) -> list[dict[str, Any]]:
        """Return the counted rows, in one order for everybody, for the caller to add up."""
        rows = [
            {
                "dataset_id": self._dataset_id,
                "kind": kind,
                "holder": holder,
                "reserved": amount,
                "cap": cap,
            }
            for (kind, holder), (amount, cap) in sorted(self._added.items())
        ]
        for each, (amount, _) in self._added.items():
            if each in self._written:
                self._written[each] += amount
        self._added = {}
        return rows


def sharer(policy: Policy, analyst: str, project: str | None) -> str:
    """Return the name under which a request uses a share: its project's or its analyst's."""
    return (project or "") if policy.share_by_project else analyst


def shared(
    connection: Connection, dataset_id: UUID, policy: Policy, now: datetime
) -> Shared | None:
    """Return the use of what the policy shares out, or None. By entries: no sum is kept of it."""
    sharing = Sharing.of(policy)
    if sharing is None:
        return None
    since = datetime(sharing.start // 12, sharing.start % 12 + 1, 1, tzinfo=UTC)
    month = month_of(now)
    used: tuple[dict[str, int], dict[str, int]] = {}, {}
    for job in connection.execute(_SHARED, {"dataset": dataset_id, "since": since}):
        sums = used[month_of(job.at) == month]
        name = sharer(policy, job.actor, job.project)
        sums[name] = sums.get(name, 0) + counted(job.epsilon_alone)
    return Shared(sharing, month, *used)


def used(connection: Connection, dataset_id: UUID, wanted: Mapping[str, str]) -> Usage:
    """Return the present use by these holders. Under the account's lock nobody changes it."""
    query = select(usage.c.kind, usage.c.spent + usage.c.reserved)
    found = dict(connection.execute(query.where(_rows(dataset_id, wanted))).all())
    amounts: dict[str, Any] = {kind: int(found.get(kind, 0)) for kind in wanted}
    return Usage(**amounts)


def settle(connection: Connection, job: Row[Any], *, charged: bool) -> None:
    """The job's reservation is resolved: charged, or void and counted no more."""
    amount = counted(job.epsilon_alone)
    values: dict[str, Any] = {"reserved": usage.c.reserved - amount}
    if charged:
        values["spent"] = usage.c.spent + amount
    _move(connection, job, values)


def correct(connection: Connection, job: Row[Any], sign: int) -> None:
    """A correction made a void job count (1) or a charged one void (-1): that may pass a cap."""
    if sign:
        _move(
            connection,
            job,
            {"spent": usage.c.spent + sign * counted(job.epsilon_alone), "cap": None},
        )


def _move(connection: Connection, job: Row[Any], values: dict[str, Any]) -> None:
    connection.execute(update(usage).where(_rows(job.dataset_id, holders(job))).values(**values))


def _rows(dataset_id: UUID, wanted: Mapping[str, str]) -> Any:
    pairs = [
        and_(usage.c.kind == kind, usage.c.holder == holder) for kind, holder in wanted.items()
    ]
    return and_(usage.c.dataset_id == dataset_id, or_(*pairs))


def recount(connection: Connection, dataset_id: UUID) -> None:
    """Make a dataset's sums those of its jobs and entries; the next job meets its caps."""
    key = ("dataset_id", "kind", "holder")
    counted_anew = _sums(connection, dataset_id)
    connection.execute(
        update(usage).where(usage.c.dataset_id == dataset_id).values(spent=0, reserved=0)
    )
    for (kind, holder), (reserved, spent) in sorted(counted_anew.items()):
        row = {"dataset_id": dataset_id, "kind": kind, "holder": holder}
        sums = {"reserved": reserved, "spent": spent, "cap": None}
        statement = insert(usage).values(row | sums)
        connection.execute(statement.on_conflict_do_update(index_elements=key, set_=sums))


def problems(connection: Connection, dataset_id: UUID) -> list[str]:
    """Report sums that differ from those computed from jobs and their entries."""
    found = _sums(connection, dataset_id)
    query = select(usage.c.kind, usage.c.holder, usage.c.reserved, usage.c.spent)
    kept = {
        (row.kind, row.holder): [row.reserved, row.spent]
        for row in connection.execute(query.where(usage.c.dataset_id == dataset_id))
    }
    wrong = []
    for holder in sorted({*found, *kept}):
        stated, counted_anew = kept.get(holder, [0, 0]), found.get(holder, [0, 0])
        if stated != counted_anew:
            wrong.append(
                f"the sums of {' '.join(holder)} are {stated}, those of its jobs {counted_anew}"
            )
    return wrong


#: The jobs reserved since a moment, each with how it counts by its newest entry: RESERVE reserved,
#: VOID not, the others by their body.
_COUNTED = (
    "SELECT j.id, j.dataset_id, j.analyst_id, j.project, j.mechanism, j.parameters, "
    "j.epsilon_alone, r.at, r.actor, e.kind, CASE WHEN e.kind = 'REVERSAL' THEN "
    "(e.document::jsonb -> 'body' ->> 'counts')::boolean ELSE e.kind <> 'VOID' END AS counts "
    "FROM entries r JOIN jobs j ON j.id = r.job_id JOIN LATERAL (SELECT kind, document "
    "FROM entries WHERE job_id = r.job_id ORDER BY seq DESC LIMIT 1) e ON true "
    "WHERE r.dataset_id = :dataset AND r.kind = 'RESERVE' AND r.at >= :since "
    "AND j.epsilon_alone > 0"
)
_SHARED = text(f"SELECT at, actor, project, epsilon_alone FROM ({_COUNTED}) AS job WHERE counts")  # noqa: S608


def _sums(connection: Connection, dataset_id: UUID) -> dict[tuple[str, str], list[int]]:
    """Return reserved and spent by each holder, by the jobs and their entries."""
    found: dict[tuple[str, str], list[int]] = {}
    ever = {"dataset": dataset_id, "since": datetime(1970, 1, 1, tzinfo=UTC)}
    for job in connection.execute(text(_COUNTED), ever):
        for holder in holders(job).items():
            sums = found.setdefault(holder, [0, 0])
            if job.counts:
                sums[job.kind != "RESERVE"] += counted(job.epsilon_alone)
    return found
