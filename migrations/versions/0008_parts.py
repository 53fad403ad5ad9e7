"""A job's work is one or more parts with leases of their own; realized ex-post costs have a table."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_MOVE = """
    INSERT INTO parts (job_id, number, state, attempt, lease_token, lease_expires, worker, progress_done,
        progress_total)
    SELECT id, 0, CASE WHEN state = 'queued' THEN 'queued' WHEN lease_token IS NOT NULL THEN 'running'
        ELSE 'stopped' END, attempt, lease_token, lease_expires, worker, progress_done, progress_total
    FROM jobs WHERE attempt > 0
"""
_MOVE_BACK = """
    UPDATE jobs SET lease_token = parts.lease_token, lease_expires = parts.lease_expires,
        worker = parts.worker, progress_done = parts.progress_done, progress_total = parts.progress_total
    FROM parts WHERE parts.job_id = jobs.id AND parts.number = 0
"""


def upgrade() -> None:
    op.create_table(
        "parts",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("progress_done", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("progress_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("staged_uri", sa.Text(), nullable=True),
        sa.Column("staged_sha256", sa.Text(), nullable=True),
        sa.Column("realized", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("realized_ex_post", sa.Numeric(38, 0), nullable=True),
        sa.CheckConstraint("number >= 0", name=op.f("ck_parts_number")),
        sa.CheckConstraint("state IN ('queued','running','done','stopped')", name=op.f("ck_parts_state")),
        sa.CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name=op.f("ck_parts_lease")),
        sa.CheckConstraint("(lease_token IS NULL) = (lease_expires IS NULL)", name=op.f("ck_parts_expiry")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_parts_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_parts")),
    )
    live = sa.text("state IN ('queued','running')")
    op.create_index("ix_parts_live", "parts", ["state"], unique=False, postgresql_where=live)
    op.create_table(
        "realized_ex_post",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("amount", sa.Numeric(38, 0), nullable=False),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_realized_ex_post_not_negative")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_realized_ex_post_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_realized_ex_post")),
    )
    op.execute(_MOVE)
    op.drop_constraint(op.f("ck_jobs_lease"), "jobs", type_="check")
    for name in ("lease_token", "lease_expires", "worker", "progress_done", "progress_total"):
        op.drop_column("jobs", name)
    op.add_column("outbox", sa.Column("part", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    """Refused by the database while a job of several parts runs."""
    op.drop_column("outbox", "part")
    op.add_column("jobs", sa.Column("lease_token", sa.Uuid(), nullable=True))
    op.add_column("jobs", sa.Column("lease_expires", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("worker", sa.Text(), nullable=True))
    for name in ("progress_done", "progress_total"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.execute(_MOVE_BACK)
    op.create_check_constraint(
        op.f("ck_jobs_lease"), "jobs", "(state IN ('running','settling')) = (lease_token IS NOT NULL)"
    )
    op.drop_table("realized_ex_post")
    op.drop_table("parts")
