"""The connection to PostgreSQL: one engine per process, READ COMMITTED, explicit transactions."""

from functools import lru_cache
from pathlib import Path

from sqlalchemy import Engine, NullPool, create_engine

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"


def connect(url: str, pool_size: int = 10) -> Engine:
    """An engine for `url`. Correctness rests on row locks, so READ COMMITTED is enough and asked for."""
    return create_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,  # the embedded server may have been restarted between two uses
        pool_size=pool_size,
        max_overflow=pool_size,
        connect_args={"options": "-c timezone=UTC -c lock_timeout=60s"},
    )


@lru_cache(maxsize=4)
def engine_for(url: str) -> Engine:
    """The engine of this process for `url`."""
    return connect(url)


def unpooled(url: str) -> Engine:
    """An engine that keeps no connection open: for a process that forks others, which would share it."""
    return create_engine(url, isolation_level="READ COMMITTED", poolclass=NullPool)


def migrate(url: str) -> None:
    """Bring the schema to the newest version."""
    from alembic import command
    from alembic.config import Config

    config = Config(str(MIGRATIONS / "alembic.ini"))
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = url
    command.upgrade(config, "head")
