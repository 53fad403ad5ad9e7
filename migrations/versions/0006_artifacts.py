"""Artifacts with their lineage, and jobs that read an earlier job's instead of records."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("size >= 0", name=op.f("ck_artifacts_size")),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_artifacts_sha256")),
        sa.CheckConstraint(
            "media_type IN ('application/json','application/x-safetensors')",
            name=op.f("ck_artifacts_media_type"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id")),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_sha256", "artifacts", ["sha256"])
    op.add_column("jobs", sa.Column("source_job_id", sa.Uuid(), nullable=True))
    op.create_foreign_key(op.f("fk_jobs_source_job_id"), "jobs", "jobs", ["source_job_id"], ["id"])
    op.create_check_constraint(
        op.f("ck_jobs_reads_no_records"), "jobs", "source_job_id IS NULL OR reading_began_at IS NULL"
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_jobs_reads_no_records"), "jobs", type_="check")
    op.drop_constraint(op.f("fk_jobs_source_job_id"), "jobs", type_="foreignkey")
    op.drop_column("jobs", "source_job_id")
    op.drop_table("artifacts")
