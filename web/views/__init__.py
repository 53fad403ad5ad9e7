"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
<<<<<<< HEAD
    from web.views import (
        account,
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
        *(sign_in, datasets, jobs, offers, corrections, artifacts, auditing, inbox),
        *(models, corpora, spending, account, people, uploads),
    )
    for module in nouns:
=======
    from web.views import artifacts, corpora, datasets, hooks, inbox, jobs, look, models, sign_in, uploads

    for module in (sign_in, datasets, jobs, artifacts, inbox, models, corpora, uploads, hooks):
>>>>>>> 7a05ba5 (Webhooks: signed, retried, written by the change's own transaction, and to no address inside)
        app.register_blueprint(module.pages)
    look.init_app(app)
    charts.init_app(app)
