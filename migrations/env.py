"""Runs migrations with timeouts and an advisory lock, so that two deployments can't run them at
once.

As DATABASE_OWNER_URL, or as DATABASE_URL where that is not set. Then the user of DATABASE_URL gets
the rights that all processes need together, and those of DATABASE_WEB_URL, DATABASE_RELAY_URL,
DATABASE_WORKER_URL, DATABASE_CHECKS_URL and DATABASE_SIGNER_URL what that one process needs; none
of them more.
"""

import os

from alembic import context, util
from sqlalchemy import text

from accountant.database import grant, unpooled
from accountant.rights import process_urls
from accountant.tables import metadata

ADVISORY_LOCK = 0x65786368  # any fixed number; "exch"


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
        # a million rows take as long as they take
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("SET idle_in_transaction_session_timeout = 0"))
        connection.commit()
        context.configure(
            connection=connection,
            target_metadata=metadata,
            compare_type=True,
        )
        with context.begin_transaction():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            refuse_unknown(context.get_context().get_current_revision())
            context.run_migrations()
            if application_url is not None:
                grant(connection, application_url)
            for process, address in processes.items():
                grant(connection, address, process)


def refuse_unknown(revision: str | None) -> None:
    """Raise CommandError for a database of a revision that is not among these."""
    known = {script.revision for script in context.script.walk_revisions()}
    if revision is None or revision in known:
        return
    if revision > max(known):
        raise util.CommandError(
            f"This database is at revision {revision}, which is newer than this version: it ends "
            f"at {max(known)}. Use the version that migrated it, or a newer one."
        )
    raise util.CommandError(
        f"This database is at revision {revision}, which is older than the first release: nothing "
        "upgrades it. Export its ledgers with the version that made them, to keep them. Then make "
        "an empty database, or name another one in DATABASE_URL (with the local stack: in "
        "EXCHEQUER_HOME), and migrate again."
    )


run()
