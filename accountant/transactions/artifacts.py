"""Artifacts: what a job released besides its texts, kept with its lineage and read again for
nothing.

Rows are written by `ledger` in the transaction of their COMMIT and never change. An analyst sees
those of their own jobs, and those of others where the dataset's policy shares them; stewards and
auditors see those of their datasets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, func, insert, or_, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, NotFound, invalid
from accountant.core.ledger import lineage
from accountant.core.ledger.entry_bodies import published_by
from accountant.core.ledger.export_formats import read_document
from accountant.tables import paging
from accountant.tables.lookup import one
from accountant.transactions import ledger_log, owners
from accountant.transactions.job_requests import Priced

OVERSEERS = frozenset({"steward", "auditor"})


class Viewer(Protocol):
    """The person who looks; `ledger.Actor` is one."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def roles(self) -> frozenset[str]: ...


@dataclass(frozen=True)
class Stored:
    """A staged artifact: its name within the job, its kind, and the name of its draft."""

    name: str
    kind: str
    media_type: str
    sha256: str
    size: int
    draft: str

    def to_json(self) -> dict[str, str]:
        """Return its description in a COMMIT."""
        return {"name": self.name, "kind": self.kind, "sha256": self.sha256}


# --- writing ------------------------------------------------------------------------------------


def add(connection: Connection, job: Row[Any], stored: Sequence[Stored]) -> None:
    """Publish the artifacts that the job's COMMIT names, in its transaction."""
    for artifact in stored:
        connection.execute(
            insert(tables.artifacts).values(
                job_id=job.id,
                name=artifact.name,
                kind=artifact.kind,
                media_type=artifact.media_type,
                sha256=artifact.sha256,
                size=artifact.size,
            )
        )


def source(
    connection: Connection, dataset_id: UUID, model_id: UUID | None, priced: Priced, asker: Viewer
) -> Row[Any] | None:
    """Return the job whose artifacts a request reads, or None: it reads records and has a price, or
    is public.

    Raises InvalidRequest where `from_job` names no such job that the asker may use, one of another
    mechanism, other labels or, where that matters, another model.
    """
    job = priced.candidate
    named = getattr(job.resolved, "from_job", None)
    if named is None:
        if job.is_free and not mechanisms.get(job.mechanism).public:
            raise invalid("parameters", "the job reads records and would cost nothing", "a price")
        return None
    if not job.is_free:
        raise invalid(
            "parameters.from_job", "a job that reads artifacts only has no price", "nothing"
        )
    mechanism = mechanisms.get(job.mechanism)
    if mechanism.reads_output:
        return _published(connection, dataset_id, str(named), asker)
    found = usable(connection, dataset_id, str(named), asker)
    if found is None:
        raise _refused(
            f"{str(named)[:100]!r} is no job of this dataset with artifacts that you may use"
        )
    if found.mechanism != job.mechanism:
        raise _refused(f"its mechanism is {found.mechanism}")
    if tuple(found.terms["labels"]) != job.terms.labels:
        raise _refused("its labels are not those of the dataset now")
    if mechanism.artifacts_need_model and found.model_id != model_id:
        raise _refused("its artifacts belong to another model")
    return found


def _refused(problem: str) -> InvalidRequest:
    return invalid(
        "parameters.from_job",
        problem,
        "the id of an earlier job; `exchequer artifact list` lists them",
    )


def usable(
    connection: Connection,
    dataset_id: UUID,
    named: str,
    asker: Viewer,
    public_of_others: bool = False,
) -> Row[Any] | None:
    """Return the succeeded job of a dataset that `named` names, if it has artifacts that the asker
    may use.

    `public_of_others`: public jobs of other datasets too, which read no dataset's records.
    """
    job_id = _job_id(named)
    if job_id is None:
        return None
    jobs = tables.jobs
    own = jobs.c.dataset_id == dataset_id
    if public_of_others:
        public = [mechanism.id for mechanism in mechanisms.MECHANISMS.values() if mechanism.public]
        own = or_(own, and_(jobs.c.mechanism.in_(public), jobs.c.reads_records.is_(False)))
    has_any = select(tables.artifacts.c.name).where(tables.artifacts.c.job_id == jobs.c.id).exists()
    query = (
        select(jobs)
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .where(jobs.c.id == job_id, own, jobs.c.state == "succeeded")
        .where(has_any, _visible(asker))
    )
    return connection.execute(query).one_or_none()


def _job_id(named: str) -> UUID | None:
    """Return the id in a parameter, or None unless it is spelled as entries spell it."""
    try:
        job_id = UUID(named)
    except ValueError:
        return None
    return job_id if str(job_id) == named else None


def _published(connection: Connection, dataset_id: UUID, named: str, asker: Viewer) -> Row[Any]:
    """Return the job with this output. Anyone who may read the output may have it examined."""
    jobs = tables.jobs
    query = select(jobs).join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
    query = query.where(jobs.c.dataset_id == dataset_id, jobs.c.output_sha256.is_not(None))
    query = query.where(or_(jobs.c.analyst_id == asker.id, owners.overseen(asker)))
    found = connection.execute(query.where(jobs.c.id == _job_id(named))).one_or_none()
    if found is None:
        problem = f"{named[:100]!r} is no succeeded job of this dataset that you may read"
        raise invalid("parameters.from_job", problem, "the id of a job with published texts")
    return found


# --- reading ------------------------------------------------------------------------------------


def _visible(viewer: Viewer) -> ColumnElement[bool]:
    """Over jobs and datasets: whose artifacts `viewer` may see and use."""
    policy = tables.datasets.c.policy
    analysts = policy["analysts"]
    may_ask = or_(
        func.coalesce(func.jsonb_array_length(analysts), 0) == 0, analysts.has_key(viewer.name)
    )
    shared = and_(func.coalesce(policy["share_artifacts"].as_boolean(), False), may_ask)
    return or_(tables.jobs.c.analyst_id == viewer.id, shared, owners.overseen(viewer))


def of_job(connection: Connection, job_id: UUID) -> Sequence[Row[Any]]:
    """Return the rows of a job's artifacts, by name."""
    table = tables.artifacts
    return connection.execute(
        select(table).where(table.c.job_id == job_id).order_by(table.c.name)
    ).all()


def lineage_of(connection: Connection, source: Row[Any], mechanism: str) -> dict[str, Any]:
    """Return the lineage in the RESERVE of a job that reads releases of the job `source`."""
    if mechanisms.get(mechanism).reads_output:
        return lineage.of_output(str(source.id), source.output_sha256)
    rows = of_job(connection, source.id)
    return lineage.of_artifacts(str(source.id), {row.name: row.sha256 for row in rows})


def listing(
    engine: Engine,
    viewer: Viewer,
    *,
    job: UUID | None = None,
    dataset: str | None = None,
    limit: int = 50,
    after: paging.After = None,
) -> list[dict[str, Any]]:
    """Return artifacts that `viewer` may see, newest first; `after` (job, name) continues a
    listing.

    A key tells no time: when a job ended depends on the records that it read. Raises InvalidRequest
    for one that names no artifact which `viewer` may see.
    """
    query = _query(viewer)
    if job is not None:
        query = query.where(tables.artifacts.c.job_id == job)
    if dataset is not None:
        query = query.where(tables.datasets.c.name == dataset)
    table = tables.artifacts
    with engine.connect() as connection:
        place = None if after is None else _place(connection, viewer, *after)
        window = paging.window(
            query, [table.c.created_at, table.c.job_id, table.c.name], limit, place
        )
        return [_view(dict(row._mapping)) for row in connection.execute(window)]


def _place(connection: Connection, viewer: Viewer, job_id: UUID, name: str) -> Sequence[Any]:
    """Return an artifact's place in the order of all; one that the viewer can't see is unknown."""
    table = tables.artifacts
    named = _query(viewer).where(table.c.job_id == job_id, table.c.name == name)
    row = connection.execute(named).one_or_none()
    if row is None:
        raise paging.unknown("artifact")
    return (row.created_at, job_id, name)


def find(engine: Engine, sha256: str, viewer: Viewer) -> Row[Any]:
    """Return one artifact by its hash. Raises NotFound, for those that are not shared too.

    LedgerBehind and LogUnusable where the log outside the database does not hold its COMMIT.
    """
    query = _query(viewer).where(tables.artifacts.c.sha256 == sha256)
    with engine.connect() as connection:
        oldest = (
            query.add_columns(tables.entries.c.document)
            .order_by(tables.artifacts.c.created_at)
            .limit(1)
        )
        found = one(connection, oldest, "artifact", sha256[:64])
    ledger_log.ensure_job(engine, found.job_id)
    if sha256 not in published_by(read_document(found.document)["body"]):
        raise NotFound("artifact", sha256[:64])
    return found


def _query(viewer: Viewer) -> Any:
    table, jobs = tables.artifacts, tables.jobs
    return (
        select(
            table,
            tables.datasets.c.name.label("dataset"),
            tables.models.c.name.label("model"),
            jobs.c.mechanism,
            jobs.c.reads_records,
            tables.entries.c.seq,
            owners.overseen(viewer).label("overseen"),
        )
        .join(jobs, jobs.c.id == table.c.job_id)
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .outerjoin(tables.models, tables.models.c.id == jobs.c.model_id)
        .join(
            tables.entries,
            and_(tables.entries.c.job_id == jobs.c.id, tables.entries.c.kind == "COMMIT"),
        )
        .where(_visible(viewer))
    )


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an artifact as shown. `created_at`, which depends on records, is for overseers."""
    facts = ("name", "kind", "media_type", "sha256", "size", "dataset", "mechanism", "model")
    told = not row["reads_records"] or bool(row["overseen"])
    return {
        "job": str(row["job_id"]),
        **{name: row[name] for name in facts},
        "entry": row["seq"],
        "created_at": row["created_at"].isoformat() if told else None,
    }
