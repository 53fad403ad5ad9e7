"""Jobs: asking, listing, deciding, results."""

from typing import Any
from uuid import UUID

from flask import Response, jsonify, request
from pydantic import Field

from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.core.ledger.data_card import markdown
from accountant.core.states import JOB_STATES
from accountant.queries import jobs as job_queries
from accountant.schema.jobs import Card, Job, JobInList
from accountant.transactions import charges, comments, job_requests, settlement, submission
from web.api import outputs
from web.api.blueprint import api
from web.api.datasets import MECHANISM
from web.api.openapi import TEXT, TIME, WHEN, Operation, describe, listing
from web.api.paging import BY_TIME, Order, Window, page, read_window
from web.api.parsing import Body, made, read, read_choice, read_id, read_key, read_moment, read_when
from web.auth import current_actor
from web.context import engine
from web.request_log import about_job

STATE = {"type": "string", "enum": list(JOB_STATES)}
OUTPUT = {"type": "string", "enum": list(outputs.FORMATS), "default": "jsonl"}
CARD = {"type": "string", "enum": ["json", "md"], "default": "json"}
ORDER = Order("jobs", BY_TIME)


class NewJob(Body):
    """A request for a job."""

    dataset: str = Field(max_length=200)
    mechanism: str = Field(
        max_length=200, description="how the job works. Each has a page of its own"
    )
    model: str | None = Field(None, max_length=200, description="the model that writes")
    parameters: dict[str, Any] = Field(default_factory=dict)
    purpose: str = Field(
        "",
        max_length=2000,
        description="what the output is for; may not be empty. A steward reads it",
    )
    project: str | None = Field(
        None, max_length=200, description="a public name. A policy may cap what one project uses"
    )


@api.post("/jobs")
@describe(
    Operation(
        body=NewJob,
        keyed=True,
        status=201,
        located=True,
        answer=Job,
        roles=("analyst", "steward"),
    )
)
def submit() -> tuple[Response, int]:
    """Submit a job.

    It is decided at once: refused (`refusal` names what binds, what was asked, what is left and the
    largest that would fit), queued, or waiting for a steward. The same Idempotency-Key with the
    same body is the same job.
    """
    key, actor = read_key(), current_actor()
    job_id = submit_job(read(NewJob), key)
    return made(job_queries.job(engine(), job_id, actor), "job", job=str(job_id))


def request_of(job: NewJob) -> job_requests.JobRequest:
    """Return a body as a request."""
    return job_requests.JobRequest(
        job.dataset, job.mechanism, job.model, job.parameters, job.purpose, job.project
    )


def submit_job(job: NewJob, key: str | None) -> UUID:
    """Submit a job for the current actor. Raises InvalidRequest without a purpose."""
    if not job.purpose.strip():
        raise invalid("purpose", "empty", "a sentence: what the output is for")
    try:
        job_id = submission.submit(engine(), request_of(job), current_actor(), key)
    except OverflowError:
        raise invalid(
            "parameters", "the price would be beyond every figure", "smaller costs"
        ) from None
    about_job(job_id, job.dataset)
    return job_id


@api.get("/jobs")
@describe(
    Operation(
        query={
            "dataset": TEXT,
            "state": STATE,
            "mechanism": MECHANISM,
            "analyst": TEXT,
            "since": WHEN,
            "until": WHEN,
            "before": TIME,
        },
        answer=listing("jobs", JobInList, paged=ORDER),
    )
)
def jobs() -> Response:
    """Jobs that the asker may see, newest first.

    An analyst sees their own; stewards and auditors see all. `since` and `until` take a day, which
    counts whole, or a time; `before` leaves out those from that time on.
    """
    window = read_window(ORDER)
    return page("jobs", found_jobs(window), window)


def found_jobs(window: Window) -> list[JobInList]:
    """Return jobs with the filters of the address."""
    ends = [moment for moment in (read_when("until"), read_moment("before")) if moment is not None]
    wanted = job_queries.Wanted(
        dataset=request.args.get("dataset") or None,
        state=read_choice("state", JOB_STATES),
        mechanism=read_choice("mechanism", tuple(mechanisms.MECHANISMS)),
        analyst=request.args.get("analyst") or None,
        since=read_when("since"),
        until=min(ends, default=None),
    )
    return job_queries.jobs(engine(), current_actor(), wanted, **window.reads)


@api.get("/jobs/<job>")
@describe(Operation(answer=Job))
def job(job: str) -> Response:
    """One job."""
    return _answer(read_id(job))


def _answer(job_id: UUID) -> Response:
    return jsonify(job_queries.job(engine(), job_id, current_actor()))


class Said(Body):
    """Something to say about a job."""

    text: str = Field(max_length=2000)
    asks: bool = Field(False, description="a steward's question, for which the job then waits")


@api.post("/jobs/<job>/comments")
@describe(Operation(body=Said, status=201, refusals=(409,), answer=Job))
def comment(job: str) -> tuple[Response, int]:
    """Say something about a job, as its analyst or a steward.

    A steward who `asks` waits for the analyst, whose next comment is the answer. Nothing is
    decided, reserved or charged by either, and each starts the days for a decision anew.
    """
    job_id, text = read_id(job), read(Said)
    comments.say(engine(), job_id, current_actor(), text.text, text.asks)
    return made(job_queries.job(engine(), job_id, current_actor()), "job", job=str(job_id))


@api.post("/jobs/<job>/cancel")
@describe(Operation(refusals=(409,), answer=Job))
def cancel(job: str) -> Response:
    """Ask a job to stop, as its analyst or a steward.

    Before it began to read it is void and costs nothing; after, it is charged its whole
    reservation.
    """
    job_id = read_id(job)
    settlement.cancel(engine(), job_id, current_actor())
    return _answer(job_id)


# --- charges of other programs ------------------------------------------------------------------

LEASE_SECONDS = 3600


class Begin(Body):
    """The beginning of a charge, by the program that releases something."""

    lease: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="32 bytes in hex that the client draws, and shows with every further request",
    )
    lease_seconds: int = Field(
        LEASE_SECONDS,
        ge=1,
        le=604_800,
        description="without a word for so long, the charge ends and all of it is charged",
    )


class Alive(Begin):
    """A sign of life of a charge."""

    step: int = Field(0, ge=0, description="releases made so far")


class Settle(Body):
    """The end of a charge."""

    lease: str = Field(pattern="^[0-9a-f]{64}$")
    event: Any = Field(
        None,
        description="what was released, in any form that a charge takes, and signed. Nothing: "
        "all that was reserved",
    )
    output: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="the SHA-256 of what the program made"
    )
    signature: str | None = Field(
        None, max_length=128, description="the runner's, of event and output: docs/charges.md"
    )


@api.post("/jobs/<job>/begin")
@describe(Operation(body=Begin, refusals=(409,), answer=Job, roles=("analyst", "steward")))
def begin(job: str) -> Response:
    """Begin a charge that is queued: run the program only after the answer.

    From here on all of it is charged, unless its runner signs that less was released. The same
    lease begins it once, however often it is sent. A charge that is queued still is taken back with
    `cancel`, for nothing.
    """
    job_id, body = read_id(job), read(Begin)
    secret = bytes.fromhex(body.lease)
    charges.begin(engine(), job_id, current_actor(), secret, body.lease_seconds)
    return _answer(job_id)


@api.post("/jobs/<job>/alive")
@describe(Operation(body=Alive, refusals=(409,), answer=Job, roles=("analyst", "steward")))
def alive(job: str) -> Response:
    """Keep the lease of a charge alive, and report progress.

    `cancel_requested` says that somebody asked it to stop.
    """
    job_id, body = read_id(job), read(Alive)
    secret = bytes.fromhex(body.lease)
    charges.alive(engine(), job_id, current_actor(), secret, body.lease_seconds, body.step)
    return _answer(job_id)


@api.post("/jobs/<job>/settle")
@describe(Operation(body=Settle, refusals=(409,), answer=Job, roles=("analyst", "steward")))
def settle(job: str) -> Response:
    """End a charge: what its runner signed is charged, or else all that was reserved."""
    job_id, body = read_id(job), read(Settle)
    secret, said = bytes.fromhex(body.lease), (body.event, body.output, body.signature)
    charges.settle(engine(), job_id, current_actor(), secret, *said)
    return _answer(job_id)


@api.get("/jobs/<job>/result")
@describe(Operation(media_types=("application/octet-stream",), refusals=(409,)))
def result(job: str) -> Response:
    """The published texts, as JSON Lines.

    The ETag is their SHA-256, which the ledger holds too.
    """
    return outputs.download(read_id(job))


@api.get("/jobs/<job>/output")
@describe(
    Operation(
        query={"format": OUTPUT, **outputs.ARCHIVE},
        refusals=(409,),
        media_types=(*outputs.FORMATS.values(), outputs.ZIP),
    )
)
def output(job: str) -> Response:
    """Return the output as JSON Lines, CSV or Parquet; `card=true`: a zip, a dataset of the Hub."""
    job_id = read_id(job)
    with_card = read_choice("card", ("true", "false")) == "true"
    return outputs.export(job_id, request.args.get("format") or "jsonl", with_card)


@api.get("/jobs/<job>/card")
@describe(
    Operation(
        query={"format": CARD},
        refusals=(409,),
        answer=Card,
        media_types=("application/json", "text/markdown"),
    )
)
def card(job: str) -> Response:
    """Return the data card of a published output: what it is, and what holds of it."""
    return card_response(read_id(job), read_choice("format", ("json", "md")) or "json")


def card_response(job_id: UUID, form: str) -> Response:
    """Return a data card as JSON or Markdown; pages offer it too."""
    document = outputs.card(job_id)
    as_json = form == "json"
    response = (
        jsonify(document) if as_json else Response(markdown(document), mimetype="text/markdown")
    )
    response.headers["Content-Disposition"] = f'attachment; filename="{job_id}-card.{form}"'
    return response
