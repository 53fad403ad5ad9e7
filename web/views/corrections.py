"""Corrections of a settled charge, and overdrafts of a refused one, asked for on the job's page;
another steward confirms in the inbox.
"""

import json
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, flash, redirect, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, InvalidRequest, SignatureNeeded, invalid
from accountant.queries import jobs as job_queries
from accountant.transactions import corrections, overdrafts
from web import passkeys
from web.api.decisions import ChargeCorrection
from web.api.parsing import read, read_id
from web.auth import current_actor, needs_role
from web.context import engine
from web.errors import status_of
from web.views.forms import rejected, sent
from web.views.jobs import page

pages = Blueprint("corrections", __name__)

RELEASED = ("reserved", "event")


@pages.post("/jobs/<job>/correction")
@needs_role("steward")
def propose(job: str) -> BaseResponse:
    """Propose another charge, or show the job's page with what is wrong."""
    job_id, values = read_id(job), sent()
    try:
        body = read(ChargeCorrection, _body(values))
        corrections.correct(
            engine(),
            job_id,
            current_actor(),
            body.reason,
            event=body.event,
            ex_post=body.ex_post,
            signature=passkeys.given(current_actor()),
        )
    except SignatureNeeded as needed:
        return passkeys.sign(needed, url_for("jobs.show", job=job_id))
    except (InvalidRequest, Conflict) as error:
        return Response(page(job_id, correction_form=rejected(error)), status_of(error))
    flash("The correction is proposed. Another steward confirms it in the inbox.")
    return redirect(url_for("jobs.show", job=job_id), 303)


@pages.post("/jobs/<job>/overdraft")
@needs_role("steward")
def declare(job: str) -> BaseResponse:
    """Declare that a refused charge has happened already."""
    job_id, actor = read_id(job), current_actor()
    asked = job_queries.job(engine(), job_id, actor)
    about = engine(), asked.dataset, asked.parameters, actor, sent().get("reason", "")
    try:
        overdrafts.declare(*about, signature=passkeys.given(actor))
    except SignatureNeeded as needed:
        return passkeys.sign(needed, url_for("jobs.show", job=job_id))
    except (InvalidRequest, Conflict) as error:
        return Response(page(job_id, correction_form=rejected(error)), status_of(error))
    flash("The overdraft is declared. Another steward confirms it in the inbox.")
    return redirect(url_for("jobs.show", job=job_id), 303)


def _body(values: Mapping[str, str]) -> dict[str, Any]:
    released = values.get("released", "reserved")
    if released not in RELEASED:
        raise invalid("released", repr(released[:40]), ", ".join(RELEASED))
    body: dict[str, Any] = {"reason": values.get("reason", "")}
    if values.get("ex_post", "").strip():
        body["ex_post"] = values["ex_post"].strip()
    if released == "event":
        try:
            body["event"] = json.loads(values.get("event", ""))
        except (ValueError, RecursionError):
            raise invalid(
                "event", "is no JSON", "an event as the ledger's entries hold it"
            ) from None
    return body
