"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import (
        account,
        api_docs,
        artifacts,
        auditing,
        charts,
        corpora,
        corrections,
        datasets,
        inbox,
        jobs,
        look,
        models,
        offers,
        people,
        sign_in,
        spending,
        uploads,
    )

    nouns = (
        *(api_docs, sign_in, datasets, jobs, offers, corrections, artifacts, auditing, inbox),
        *(models, corpora, spending, account, people, uploads),
    )
    for module in nouns:
        app.register_blueprint(module.pages)
    look.init_app(app)
    charts.init_app(app)
