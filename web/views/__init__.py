"""Pages, rendered on the server: one module and one blueprint per noun."""

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import (
        account,
        api_docs,
        artifacts,
        charts,
        corpora,
        corrections,
        datasets,
        inbox,
        job_form,
        jobs,
        ledgers,
        models,
        offers,
        people,
        policies,
        sign_in,
        spending,
        template_filters,
        uploads,
        webhooks,
        wizard,
    )

    nouns = (
        *(
            api_docs,
            sign_in,
            datasets,
            job_form,
            wizard,
            policies,
            spending,
            jobs,
            offers,
            corrections,
            artifacts,
        ),
        *(ledgers, inbox, models, corpora, account, people, uploads, webhooks),
    )
    for module in nouns:
        app.register_blueprint(module.pages)
    template_filters.init_app(app)
    charts.init_app(app)
