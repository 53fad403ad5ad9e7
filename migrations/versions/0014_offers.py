"""Offers of smaller jobs, and sums of what an allowance went on."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

UNITS = sa.Numeric(38, 0)
SUMS = ("renyi", "gaussian", "renyi2", "basic", "basic_delta", "ex_post", "secret")


def upgrade() -> None:
    create_spending()
    create_offers()
    for kind, column in (("ALLOW", "seq"), ("REVERSAL", "job_id")):
        op.create_index(
            f"ix_entries_{kind.lower()}",
            "entries",
            ["dataset_id", "seq"] if column == "seq" else ["job_id"],
            postgresql_where=sa.text(f"kind = '{kind}'"),
        )


def create_spending() -> None:
    op.create_table(
        "spending",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("analyst_id", sa.Uuid(), nullable=False),
        sa.Column("mechanism", sa.Text(), nullable=False),
        *(sa.Column(name, UNITS, server_default="0", nullable=False) for name in SUMS),
        sa.Column("jobs", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_spending_dataset_id")),
        sa.ForeignKeyConstraint(["analyst_id"], ["users.id"], name=op.f("fk_spending_analyst_id")),
        sa.PrimaryKeyConstraint("dataset_id", "day", "analyst_id", "mechanism", name=op.f("pk_spending")),
    )
    op.create_table(
        "spending_marks",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("through", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("through >= 0", name=op.f("ck_spending_marks_through")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_spending_marks_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_spending_marks")),
    )


def create_offers() -> None:
    moment = sa.DateTime(timezone=True)
    now = sa.text("clock_timestamp()")
    op.create_table(
        "offers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("parameters", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("terms", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("epsilon_alone", sa.Double(), nullable=True),
        sa.Column("breakdown", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("offered_by", sa.Uuid(), nullable=False),
        sa.Column("created_at", moment, server_default=now, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.Column("decided_by", sa.Uuid(), nullable=True),
        sa.Column("decided_at", moment, nullable=True),
        sa.Column("decision_reason", sa.Text(), nullable=True),
        sa.Column("accepted_job_id", sa.Uuid(), nullable=True),
        sa.CheckConstraint(
            "state IN ('open','accepted','declined','withdrawn','expired')", name=op.f("ck_offers_state")
        ),
        sa.CheckConstraint(
            "(state = 'accepted') = (accepted_job_id IS NOT NULL)", name=op.f("ck_offers_job")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_offers_job_id")),
        sa.ForeignKeyConstraint(["accepted_job_id"], ["jobs.id"], name=op.f("fk_offers_accepted_job_id")),
        sa.ForeignKeyConstraint(["offered_by"], ["users.id"], name=op.f("fk_offers_offered_by")),
        sa.ForeignKeyConstraint(["decided_by"], ["users.id"], name=op.f("fk_offers_decided_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offers")),
        sa.UniqueConstraint("job_id", name=op.f("uq_offers_job_id")),
    )
    op.create_index("ix_offers_open", "offers", ["expires_at"], postgresql_where=sa.text("state = 'open'"))


def downgrade() -> None:
    for kind in ("ALLOW", "REVERSAL"):
        op.drop_index(f"ix_entries_{kind.lower()}", "entries")
    for table in ("offers", "spending_marks", "spending"):
        op.drop_table(table)
