"""Earlier jobs whose artifacts a request reads beside its records or its own earlier job, field by
field.

A mechanism says which of its parameters name a job, and the kind of artifact that it reads there
(core.mechanisms.base.Mechanism.sources); any mechanism that releases this kind will do. A public
job's artifacts serve every dataset, since it read none; those of other jobs serve their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.transactions import artifacts
from accountant.transactions.artifacts import Viewer
from accountant.transactions.job_requests import Candidate


def resolve(
    connection: Connection, dataset_id: UUID, model_id: UUID | None, job: Candidate, asker: Viewer
) -> dict[str, str]:
    """{field: id of the job} of what the parameters name.

    Raises InvalidRequest where a field names no job that released such an artifact for the dataset,
    none that the asker may use, one of another model where that matters, or one whose parameters
    don't fit the request.
    """
    mechanism = mechanisms.get(job.mechanism)
    rows: dict[str, Row[Any]] = {}
    for field, kind in mechanism.sources(job.resolved).items():
        named = str(getattr(job.resolved, field))
        source = artifacts.usable(connection, dataset_id, named, asker, public_of_others=True)
        problem = None
        if source is None:
            problem = f"{named[:100]!r} is no job of this dataset with artifacts that you may use"
        elif kind not in mechanisms.get(source.mechanism).releases or not _of_kind(
            connection, source.id, kind
        ):
            problem = f"that job, of {source.mechanism}, released no {kind}"
        elif _of_another_model(source, model_id):
            problem = f"what that job, of {source.mechanism}, released belongs to another model"
        if problem is not None:
            releasing = ", ".join(
                e.id for e in mechanisms.MECHANISMS.values() if kind in e.releases
            )
            raise invalid(
                f"parameters.{field}", problem, f"a job that released a {kind} ({releasing})"
            )
        assert source is not None
        rows[field] = source
    _check_fit(connection, dataset_id, job, asker, rows)
    return {field: str(source.id) for field, source in rows.items()}


def _of_another_model(source: Row[Any], model_id: UUID | None) -> bool:
    """Return True if a job's release serves its own model only, and another is asked for."""
    return mechanisms.get(source.mechanism).artifacts_need_model and source.model_id not in (
        None,
        model_id,
    )


def _check_fit(
    connection: Connection,
    dataset_id: UUID,
    job: Candidate,
    asker: Viewer,
    found: Mapping[str, Row[Any]],
) -> None:
    """Raise InvalidRequest if parameters of jobs read beside don't fit the request's."""
    if not found:
        return
    given = {field: source.parameters for field, source in found.items()}
    named = getattr(job.resolved, "from_job", None)
    earlier = None if named is None else artifacts.usable(connection, dataset_id, str(named), asker)
    if earlier is not None:
        given["from_job"] = earlier.parameters
    unfit = mechanisms.get(job.mechanism).unfit_sources(job.resolved, given)
    if unfit is not None:
        raise invalid(f"parameters.{unfit.field}", unfit.problem, unfit.allowed)


def _of_kind(connection: Connection, job_id: object, kind: str) -> Sequence[Row[Any]]:
    table = tables.artifacts
    query = select(table).where(table.c.job_id == job_id, table.c.kind == kind)
    return connection.execute(query.order_by(table.c.name)).all()


def _rows(
    connection: Connection, mechanism: str, sources: Mapping[str, str], resolved: Any
) -> dict[str, Sequence[Row[Any]]]:
    kinds = mechanisms.get(mechanism).sources(resolved)
    return {
        field: _of_kind(connection, UUID(source), kinds[field]) for field, source in sources.items()
    }


def lineage(
    connection: Connection,
    dataset_id: UUID,
    mechanism: str,
    sources: Mapping[str, str],
    resolved: Any,
) -> dict[str, Any]:
    """Return its part of the lineage in a RESERVE; empty if no field names a job.

    A job of another dataset is named with it and its mechanism, which is public: its COMMIT stands
    in that dataset's ledger.
    """
    found = _rows(connection, mechanism, sources, resolved)
    stated = {
        field: {
            "job": sources[field],
            **_elsewhere(connection, dataset_id, UUID(sources[field])),
            "artifacts": {row.name: row.sha256 for row in rows},
        }
        for field, rows in found.items()
    }
    return {"sources": stated} if stated else {}


def _elsewhere(connection: Connection, dataset_id: UUID, job_id: UUID) -> dict[str, str]:
    jobs, datasets = tables.jobs, tables.datasets
    query = select(jobs.c.dataset_id, jobs.c.mechanism, datasets.c.name).where(jobs.c.id == job_id)
    row = connection.execute(query.where(datasets.c.id == jobs.c.dataset_id)).one()
    return {} if row.dataset_id == dataset_id else {"dataset": row.name, "mechanism": row.mechanism}
