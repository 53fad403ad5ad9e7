"""A runner's signature asks for one charge and begins one, whoever sends it again."""

from alembic import op

revision = "0120"
down_revision = "0119"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE UNIQUE INDEX uq_jobs_signature ON jobs ((parameters ->> 'signature')) "
        "WHERE mechanism = 'charge'"
    )
    # Rows of jobs say what the web wrote; what is charged stands in the entry.
    op.execute(
        "CREATE UNIQUE INDEX uq_entries_signature ON entries "
        "((document::jsonb #>> '{body,parameters,signature}')) WHERE kind = 'RESERVE'"
    )
