"""Endpoints beside models, jobs that read public things only, several sources of a job, groups and secrets."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("endpoint", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.drop_constraint(op.f("ck_models_kind"), "models", type_="check")
    op.create_check_constraint(
        op.f("ck_models_kind"), "models", "kind IN ('language','embedding','endpoint')"
    )
    op.create_check_constraint(
        op.f("ck_models_endpoint"), "models", "(kind = 'endpoint') = (endpoint IS NOT NULL)"
    )
    op.add_column(
        "jobs",
        sa.Column(
            "sources", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    op.add_column(
        "jobs", sa.Column("reads_records", sa.Boolean(), server_default=sa.text("true"), nullable=False)
    )
    op.execute("UPDATE jobs SET reads_records = false WHERE source_job_id IS NOT NULL")
    op.drop_constraint(op.f("ck_jobs_reads_no_records"), "jobs", type_="check")
    op.create_check_constraint(
        op.f("ck_jobs_reads_no_records"), "jobs", "reads_records OR reading_began_at IS NULL"
    )
    op.create_check_constraint(op.f("ck_jobs_source"), "jobs", "source_job_id IS NULL OR NOT reads_records")
    for name in ("groups", "secret_patterns", "secret_terms"):
        op.add_column(
            "datasets",
            sa.Column(
                name, postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
            ),
        )
    for name in ("group_column", "secret_column"):
        op.add_column("dataset_versions", sa.Column(name, sa.Text(), nullable=True))


def downgrade() -> None:
    for name in ("group_column", "secret_column"):
        op.drop_column("dataset_versions", name)
    for name in ("groups", "secret_patterns", "secret_terms"):
        op.drop_column("datasets", name)
    op.drop_constraint(op.f("ck_jobs_source"), "jobs", type_="check")
    op.drop_constraint(op.f("ck_jobs_reads_no_records"), "jobs", type_="check")
    op.create_check_constraint(
        op.f("ck_jobs_reads_no_records"), "jobs", "source_job_id IS NULL OR reading_began_at IS NULL"
    )
    op.drop_column("jobs", "reads_records")
    op.drop_column("jobs", "sources")
    op.drop_constraint(op.f("ck_models_endpoint"), "models", type_="check")
    op.drop_constraint(op.f("ck_models_kind"), "models", type_="check")
    op.create_check_constraint(op.f("ck_models_kind"), "models", "kind IN ('language','embedding')")
    op.drop_column("models", "endpoint")
