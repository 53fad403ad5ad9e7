"""Public corpora: what is registered, and registering one."""

from flask import Blueprint, Response, render_template
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import corpora
from accountant.core.errors import Conflict, InvalidRequest
from web.api.corpora import NewCorpus
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import engine
from web.errors import status_of
from web.views.forms import BLANK, Form, done, rejected, sent

pages = Blueprint("corpora", __name__)


@pages.get("/corpora")
def listing(form: Form = BLANK) -> str:
    """Registered corpora."""
    return render_template(
        "corpora.html", corpora=corpora.listing(engine(), current_actor()), form=form
    )


@pages.post("/corpora")
@needs_role("steward")
def add() -> BaseResponse:
    """Register a corpus."""
    values = {name: value.strip() for name, value in sent().items()}
    try:
        fields = {name: values[name] for name in NewCorpus.model_fields if values.get(name)}
        body = read(NewCorpus, {"statement": "", "name": "", **fields})
        corpora.add(engine(), body, current_actor())
    except (InvalidRequest, Conflict) as error:
        return Response(listing(rejected(error)), status_of(error))
    return done(f"{body.name} is registered. A worker now reads it through.", "corpora.listing")
