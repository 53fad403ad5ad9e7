"""Runs migrations with timeouts and an advisory lock, so that two deployments can't run them at once.

As DATABASE_OWNER_URL, or as DATABASE_URL where that is not set. Then the user of DATABASE_URL gets the rights
that all processes need together, and those of DATABASE_WEB_URL, DATABASE_RELAY_URL, DATABASE_WORKER_URL,
DATABASE_CHECKS_URL and DATABASE_SIGNER_URL what that one process needs; none of them more.
"""

import os

from alembic import context, util
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import text

from accountant.database import grant, unpooled
from accountant.rights import process_urls
from accountant.tables import metadata

ADVISORY_LOCK = 0x65786368  # any fixed number; "exch"
_UNRELEASED = {f"{number:04}" for number in range(1, 20)}


def run() -> None:
    given = context.config.attributes
    if "url" in given:
        url, application_url = given["url"], given.get("application_url")
        processes = given.get("processes", {})
    else:
        application_url, processes = os.environ.get("DATABASE_URL"), process_urls()
        url = os.environ.get("DATABASE_OWNER_URL") or application_url
    if url is None:
        raise util.CommandError("Neither DATABASE_OWNER_URL nor DATABASE_URL is set.")
    with unpooled(url).connect() as connection:
        connection.execute(text("SET lock_timeout = '10s'"))
        connection.execute(text("SET statement_timeout = 0"))  # a million rows take as long as they take
        connection.execute(text("SET idle_in_transaction_session_timeout = 0"))
        connection.commit()
        context.configure(
            connection=connection,
            target_metadata=metadata,
            compare_type=True,
            on_version_apply=refuse_to_lose_books,
        )
        with context.begin_transaction():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            refuse_unreleased(context.get_context().get_current_revision())
            context.run_migrations()
            if application_url is not None:
                grant(connection, application_url)
            for process, address in processes.items():
                grant(connection, address, process)


def refuse_to_lose_books(*, ctx: MigrationContext, step: MigrationInfo, **_: object) -> None:
    """Ends the one transaction of a downgrade where a ledger has entries: nothing is changed then."""
    if step.is_upgrade or step.is_stamp or ctx.connection is None:
        return
    if ctx.connection.execute(text("SELECT EXISTS (SELECT FROM entries)")).scalar_one():
        raise util.CommandError(
            "This database holds ledgers, and what they say of budget that was spent may not fit an older "
            "schema. Nothing was changed. Go on with this version, or a newer one."
        )


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
