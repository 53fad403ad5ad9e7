"""Models: what is registered, and registering one."""

from flask import Blueprint, Response, render_template
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import models
from accountant.core.errors import Conflict, InvalidRequest
from accountant.queries import models as model_queries
from accountant.schema.base import documents
from web.api.models import NewModel
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import engine
from web.errors import status_of
from web.views.forms import BLANK, Form, done, rejected, sent, whole

pages = Blueprint("models", __name__)


@pages.get("/models")
def listing(form: Form = BLANK) -> str:
    """Registered models."""
    return render_template(
        "models.html", models=documents(model_queries.models(engine(), current_actor())), form=form
    )


@pages.post("/models")
@needs_role("steward")
def add() -> BaseResponse:
    """Register a model."""
    values = {name: value.strip() for name, value in sent().items()}
    try:
        fields: dict[str, object] = {
            name: values[name] for name in NewModel.model_fields if name in values
        }
        if values.get("kind") == "endpoint":
            fields["endpoint"] = {
                "model": values.get("endpoint.model", ""),
                "version": values.get("endpoint.version", ""),
                "chat": values.get("endpoint.chat") != "no",
                **{
                    name: whole(values[f"endpoint.{name}"])
                    for name in ("requests", "tokens")
                    if values.get(f"endpoint.{name}")
                },
            }
        body = read(NewModel, fields)
        models.add_model(
            engine(),
            body.name,
            body.path,
            body.trained_on,
            current_actor(),
            body.kind,
            endpoint=body.endpoint,
        )
    except (InvalidRequest, Conflict) as error:
        return Response(listing(rejected(error)), status_of(error))
    return done(f"{body.name} is registered. A worker now looks at it.", "models.listing")
