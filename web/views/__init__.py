"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import (
        account,
        api_docs,
        artifacts,
        asking,
        auditing,
        charts,
        corpora,
        corrections,
        datasets,
        hooks,
        inbox,
        jobs,
        look,
        models,
        offers,
        people,
        policies,
        sign_in,
        spending,
        uploads,
        wizard,
    )

    nouns = (
        *(
            api_docs,
            sign_in,
            datasets,
            asking,
            wizard,
            policies,
            spending,
            jobs,
            offers,
            corrections,
            artifacts,
        ),
        *(auditing, inbox, models, corpora, account, people, uploads, hooks),
    )
    for module in nouns:
        app.register_blueprint(module.pages)
    look.init_app(app)
    charts.init_app(app)
