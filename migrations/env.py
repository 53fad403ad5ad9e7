"""Runs migrations with timeouts and an advisory lock, so that two deployments can't run them at once."""

import os

from alembic import context
from sqlalchemy import create_engine, pool, text

from accountant.tables import metadata

ADVISORY_LOCK = 0x65786368  # any fixed number; "exch"


def run() -> None:
    url = context.config.attributes.get("url") or os.environ["DATABASE_URL"]
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        connection.execute(text("SET lock_timeout = '10s'"))
        connection.execute(text("SET statement_timeout = '60s'"))
        connection.commit()
        context.configure(connection=connection, target_metadata=metadata, compare_type=True)
        with context.begin_transaction():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            context.run_migrations()


run()
