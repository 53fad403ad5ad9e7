"""Lists of jobs by state and by mechanism, newest first: each page is a walk along an index."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_jobs_state": ["state", "created_at"],
    "ix_jobs_mechanism": ["mechanism", "created_at"],
}


def upgrade() -> None:
    op.drop_index("ix_jobs_mechanism", "jobs")
    for name, columns in INDEXES.items():
        op.create_index(name, "jobs", columns)


def downgrade() -> None:
    for name in INDEXES:
        op.drop_index(name, "jobs")
    op.create_index("ix_jobs_mechanism", "jobs", ["mechanism"])
