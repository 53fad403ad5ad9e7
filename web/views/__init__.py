"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import api_docs, artifacts, corpora, datasets, inbox, jobs, look, models, sign_in

    for module in (api_docs, sign_in, datasets, jobs, artifacts, inbox, models, corpora):
        app.register_blueprint(module.pages)
    look.init_app(app)
