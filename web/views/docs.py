"""The documents, served by the service that they are about: `/docs`, for anybody."""

from flask import Blueprint, Response, redirect, render_template, request, send_file, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import NotFound
from web import documents

pages = Blueprint("docs", __name__)


@pages.get("/docs")
def first() -> str:
    """The list of documents."""
    return _page(documents.FIRST)


@pages.get("/docs/<path:name>")
def show(name: str) -> Response | BaseResponse | str:
    """One document, what a folder holds, or a picture."""
    picture = documents.pictures().get(name)
    if picture is not None:
        return send_file(picture, max_age=3600)
    if name == documents.FIRST or name.endswith(".md"):  # as a code host has it
        return redirect(address(name.removesuffix(".md")), 301)
    return _page(name)


def _page(name: str) -> str:
    page = documents.render(name, address)
    if page is None:
        raise NotFound("document", name[:80])
    folder = name.rpartition("/")[0]
    return render_template(
        "docs.html", document=page, folder=folder, is_first=name == documents.FIRST
    )


#: What the document of fields calls the things that a page's forms are about.
_FORMS = {
    "wizard": ("dataset", "allowance"),
    "datasets": ("dataset", "job"),
    "policies": ("allowance",),
    "asking": ("job",),
    "models": ("model",),
    "corpora": ("corpus",),
    "account": ("account",),
    "notices": ("notice",),
}


def about_field(name: str) -> Markup:
    """Return a link to what the documents say of a field of this page, or nothing."""
    options = (name, *(f"{form}.{name}" for form in _FORMS.get(request.blueprint or "", ())))
    places = documents.places("fields")
    anchor = next((option for option in options if option in places), None)
    if anchor is None:
        return Markup()
    link = url_for("docs.show", name="fields", _anchor=anchor)
    label = f"more on {name.rpartition('.')[2].replace('_', ' ')}"
    return Markup(' <a class="about-field" href="{}" aria-label="{}">more</a>').format(link, label)


def address(name: str) -> str:
    """Return the page of a document, by its name with an anchor."""
    path, _, anchor = name.partition("#")
    if path == documents.FIRST:
        return url_for("docs.first", _anchor=anchor or None)
    return url_for("docs.show", name=path, _anchor=anchor or None)
