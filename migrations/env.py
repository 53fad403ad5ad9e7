"""Runs migrations with timeouts and an advisory lock, so that two deployments can't run them at once.

As DATABASE_OWNER_URL, or as DATABASE_URL where that is not set; the user of DATABASE_URL then gets the
rights that the application needs, and no more.
"""

import os

from alembic import context, util
from sqlalchemy import create_engine, pool, text

from accountant.database import grant
from accountant.tables import metadata

ADVISORY_LOCK = 0x65786368  # any fixed number; "exch"
_UNRELEASED = {f"{number:04}" for number in range(1, 20)}


def run() -> None:
    given = context.config.attributes
    application_url = given.get("application_url") if "url" in given else os.environ["DATABASE_URL"]
    url = given.get("url") or os.environ.get("DATABASE_OWNER_URL") or application_url
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        connection.execute(text("SET lock_timeout = '10s'"))
        connection.execute(text("SET statement_timeout = '60s'"))
        connection.commit()
        context.configure(connection=connection, target_metadata=metadata, compare_type=True)
        with context.begin_transaction():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            refuse_unreleased(context.get_context().get_current_revision())
            context.run_migrations()
            if application_url is not None:
                grant(connection, application_url)


def refuse_unreleased(revision: str | None) -> None:
    """Revisions 0001 to 0019 changed from commit to commit before the first release."""
    if revision in _UNRELEASED:
        raise util.CommandError(
            f"This database is at revision {revision}, from before the first release, and can't be brought "
            "forward. Its ledgers stay readable: export them with the version that made them. Then make an "
            "empty database, or name another one in DATABASE_URL (with the local stack: in EXCHEQUER_HOME), "
            "and migrate again."
        )


run()
