"""A message names whose turn it takes: to find the next ones, all that waits was joined with jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0130"
down_revision = "0129"
branch_labels = None
depends_on = None

TAKEN = """
UPDATE outbox SET analyst_id = jobs.analyst_id FROM jobs
WHERE jobs.id = outbox.subject AND outbox.task IN ('generate', 'free')
"""


def upgrade() -> None:
    op.add_column("outbox", sa.Column("analyst_id", sa.Uuid))
    op.execute(TAKEN)
    unsent = sa.text("sent_at IS NULL")
    op.drop_index("ix_outbox_unsent", "outbox")
    op.create_index(
        "ix_outbox_unsent", "outbox", ["analyst_id", "task", "id"], postgresql_where=unsent
    )
    sent = sa.text("sent_at IS NOT NULL")
    op.create_index("ix_outbox_sent", "outbox", ["sent_at"], postgresql_where=sent)
