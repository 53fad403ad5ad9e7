"""Earlier jobs whose artifacts a request reads beside its records or its own earlier job, field by field.

A mechanism says which of its parameters name a job, and the kind of artifact that it reads there
(core.mechanisms.base.Mechanism.sources); any mechanism that releases this kind will do.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.transactions import artifacts
from accountant.transactions.artifacts import Viewer
from accountant.transactions.job_requests import Candidate


def resolve(connection: Connection, dataset_id: UUID, job: Candidate, asker: Viewer) -> dict[str, str]:
    """{field: id of the job} of what the parameters name.

    Raises InvalidRequest where a field names no job of the dataset that released such an artifact, or none
    that the asker may use.
    """
    found = {}
    for field, kind in mechanisms.get(job.mechanism).sources(job.resolved).items():
        named = str(getattr(job.resolved, field))
        source = artifacts.usable(connection, dataset_id, named, asker)
        problem = None
        if source is None:
            problem = f"{named[:100]!r} is no job of this dataset with artifacts that you may use"
        elif kind not in mechanisms.get(source.mechanism).releases or not _of_kind(
            connection, source.id, kind
        ):
            problem = f"that job, of {source.mechanism}, released no {kind}"
        if problem is not None:
            releasing = ", ".join(e.id for e in mechanisms.MECHANISMS.values() if kind in e.releases)
            raise invalid(f"parameters.{field}", problem, f"a job that released a {kind} ({releasing})")
        assert source is not None
        found[field] = str(source.id)
    return found


def _of_kind(connection: Connection, job_id: object, kind: str) -> Sequence[Row[Any]]:
    table = tables.artifacts
    query = select(table).where(table.c.job_id == job_id, table.c.kind == kind)
    return connection.execute(query.order_by(table.c.name)).all()


def _rows(
    connection: Connection, mechanism: str, sources: Mapping[str, str], resolved: Any
) -> dict[str, Sequence[Row[Any]]]:
    kinds = mechanisms.get(mechanism).sources(resolved)
    return {field: _of_kind(connection, UUID(source), kinds[field]) for field, source in sources.items()}


def read_by(engine: Engine, job: Row[Any], resolved: Any) -> dict[str, Sequence[Row[Any]]]:
    """Return the artifacts that a claimed job reads, by field, for a worker."""
    with engine.connect() as connection:
        return _rows(connection, job.mechanism, job.sources, resolved)


def lineage(
    connection: Connection, mechanism: str, sources: Mapping[str, str], resolved: Any
) -> dict[str, Any]:
    """Return its part of the lineage in a RESERVE; empty if no field names a job."""
    found = _rows(connection, mechanism, sources, resolved)
    return (
        {
            "sources": {
                field: {"job": sources[field], "artifacts": {row.name: row.sha256 for row in rows}}
                for field, rows in found.items()
            }
        }
        if found
        else {}
    )
