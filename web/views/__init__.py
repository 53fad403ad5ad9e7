"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import (
        artifacts,
        auditing,
        charts,
        corpora,
        datasets,
        inbox,
        jobs,
        look,
        models,
        sign_in,
        spending,
    )

    for module in (sign_in, datasets, jobs, artifacts, auditing, inbox, models, corpora, spending):
        app.register_blueprint(module.pages)
    look.init_app(app)
    charts.init_app(app)
