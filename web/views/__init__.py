"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import (
        account,
        artifacts,
        corpora,
        datasets,
        inbox,
        jobs,
        look,
        models,
        people,
        sign_in,
        uploads,
    )

    modules = (sign_in, datasets, jobs, artifacts, inbox, models, corpora, account, people, uploads)
    for module in modules:
        app.register_blueprint(module.pages)
    look.init_app(app)
