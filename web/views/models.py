"""Models: what is registered, and registering one."""

from flask import Blueprint, render_template
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import models
from accountant.queries import models as model_queries
from accountant.schema.base import documents
from web.api.models import NewModel
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import engine
from web.views.forms import BLANK, Form, done, sent, shown_again, whole

pages = Blueprint("models", __name__)


@pages.get("/models")
def listing(form: Form = BLANK) -> str:
    """Registered models."""
    found = documents(model_queries.models(engine(), current_actor()))
    return render_template("models.html", models=found, form=form)


@pages.post("/models")
@needs_role("steward")
@shown_again(listing)
def add() -> BaseResponse:
    """Register a model."""
    values = {name: value.strip() for name, value in sent().items()}
    fields: dict[str, object] = {
        name: values[name] for name in NewModel.model_fields if name in values
    }
    if values.get("kind") == "endpoint":
        most = {name: whole(values.get(f"endpoint.{name}", "")) for name in ("requests", "tokens")}
        fields["endpoint"] = {
            "model": values.get("endpoint.model", ""),
            "version": values.get("endpoint.version", ""),
            "chat": values.get("endpoint.chat") != "no",
            **{name: number for name, number in most.items() if number is not None},
        }
    body = read(NewModel, fields)
    about = (body.name, body.path, body.trained_on, current_actor(), body.kind)
    models.add_model(engine(), *about, endpoint=body.endpoint)
    return done(f"{body.name} is registered. A worker now looks at it.", "models.listing")
