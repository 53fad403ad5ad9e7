"""`python -m web.serve`: the web service under waitress, for a laptop or one machine."""

import logging

from waitress import serve

from accountant.settings import load
from web.app import MAX_BODY_BYTES, create_app

THREADS = 16


def main() -> None:
    """Serve until the process is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = load()
    serve(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        threads=THREADS,
        ident=None,
        # Twice what the application accepts, so that it is the application that explains the limit.
        max_request_body_size=2 * MAX_BODY_BYTES,
    )


if __name__ == "__main__":
    main()
