"""Acts on a dataset by an index; one index fewer on entries."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

DATASET = "(CASE WHEN object_kind = 'dataset' THEN object_id ELSE detail ->> 'dataset' END)"


def upgrade() -> None:
    op.create_index("ix_activity_dataset", "activity", [sa.text(DATASET), "at", "id"])
    # ix_entries_job_id finds a job's corrections too.
    op.drop_index("ix_entries_reversal", "entries")


def downgrade() -> None:
    op.create_index(
        "ix_entries_reversal", "entries", ["job_id"], postgresql_where=sa.text("kind = 'REVERSAL'")
    )
    op.drop_index("ix_activity_dataset", "activity")
