"""Jobs: asking, listing, deciding, results."""

from typing import Any
from uuid import UUID

from flask import Response, jsonify, request
from pydantic import Field

from accountant import ledger, reports
from accountant.core.errors import invalid
from accountant.core.states import JOB_STATES
from web.api import api, outputs
from web.api.bodies import Body, read, read_choice, read_id, read_limit, read_moment
from web.api.openapi import LIMIT, TEXT, TIME, Operation, describe, listing
from web.app import engine
from web.auth import current_actor
from web.errors import refuse_unstorable

STATE = {"type": "string", "enum": list(JOB_STATES)}
KEY = {"type": "string", "minLength": 1, "maxLength": 200}


class NewJob(Body):
    """What an analyst asks for."""

    dataset: str = Field(max_length=200)
    mechanism: str = Field(max_length=200)
    model: str | None = Field(None, max_length=200)
    parameters: dict[str, Any] = Field(default_factory=dict)
    purpose: str = Field("", max_length=2000)
    project: str | None = Field(None, max_length=200)


class Reason(Body):
    """Why somebody decided as they did."""

    reason: str = Field(max_length=2000)


@api.post("/jobs")
@describe(Operation(body=NewJob, headers={"Idempotency-Key": KEY}, status=201))
def submit() -> tuple[Response, int]:
    """Submit a job; the same Idempotency-Key with the same body is the same job."""
    key = request.headers.get("Idempotency-Key")
    if key is not None:
        refuse_unstorable(key, "Idempotency-Key")
    actor = current_actor()
    job_id = submit_job(read(NewJob), key)
    return jsonify(reports.job(engine(), job_id, actor)), 201


def submit_job(job: NewJob, key: str | None) -> UUID:
    """Submit for whoever acts; pages do it too."""
    request = ledger.JobRequest(
        job.dataset, job.mechanism, job.model, job.parameters, job.purpose, job.project
    )
    try:
        return ledger.submit(engine(), request, current_actor(), key)
    except OverflowError:
        raise invalid("parameters", "the price would be beyond every figure", "smaller costs") from None


@api.get("/jobs")
@describe(
    Operation(query={"dataset": TEXT, "state": STATE, "limit": LIMIT, "before": TIME}, answer=listing("jobs"))
)
def jobs() -> Response:
    """Jobs that the asker may see, newest first."""
    found = reports.jobs(
        engine(),
        current_actor(),
        dataset=request.args.get("dataset") or None,
        state=read_choice("state", JOB_STATES),
        limit=read_limit(),
        before=read_moment(),
    )
    return jsonify(jobs=found)


@api.get("/jobs/<job>")
@describe(Operation())
def job(job: str) -> Response:
    """One job."""
    return _answer(read_id(job))


def _answer(job_id: UUID) -> Response:
    return jsonify(reports.job(engine(), job_id, current_actor()))


@api.post("/jobs/<job>/approve")
@describe(Operation(body=Reason))
def approve(job: str) -> Response:
    """Say yes, as a steward."""
    job_id = read_id(job)
    ledger.approve(engine(), job_id, current_actor(), read(Reason).reason)
    return _answer(job_id)


@api.post("/jobs/<job>/refuse")
@describe(Operation(body=Reason))
def refuse(job: str) -> Response:
    """Say no, as a steward."""
    job_id = read_id(job)
    ledger.refuse(engine(), job_id, current_actor(), read(Reason).reason)
    return _answer(job_id)


@api.post("/jobs/<job>/cancel")
@describe(Operation(refusals=(409,)))
def cancel(job: str) -> Response:
    """Ask a job to stop."""
    job_id = read_id(job)
    ledger.cancel(engine(), job_id, current_actor())
    return _answer(job_id)


@api.get("/jobs/<job>/result")
@describe(Operation(media_types=("application/x-ndjson",)))
def result(job: str) -> Response:
    """The published texts."""
    return outputs.download(read_id(job))
