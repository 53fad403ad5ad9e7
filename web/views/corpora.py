"""Public corpora: what is registered, and registering one."""

from flask import Blueprint, render_template
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import corpora
from web.api.corpora import NewCorpus
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import engine
from web.views.forms import BLANK, Form, done, sent, shown_again

pages = Blueprint("corpora", __name__)


@pages.get("/corpora")
def listing(form: Form = BLANK) -> str:
    """Registered corpora."""
    found = corpora.listing(engine(), current_actor())
    return render_template("corpora.html", corpora=found, form=form)


@pages.post("/corpora")
@needs_role("steward")
@shown_again(listing)
def add() -> BaseResponse:
    """Register a corpus."""
    values = {name: value.strip() for name, value in sent().items()}
    fields = {name: values[name] for name in NewCorpus.model_fields if values.get(name)}
    body = read(NewCorpus, {"statement": "", "name": "", **fields})
    corpora.add(engine(), body, current_actor())
    return done(f"{body.name} is registered. A worker now reads it through.", "corpora.listing")
