"""Pages, rendered on the server: one module and one blueprint per noun."""

import importlib
import pkgutil

from flask import Flask


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import charts, template_filters

    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        if hasattr(module, "pages"):
            app.register_blueprint(module.pages)
    template_filters.init_app(app)
    charts.init_app(app)
