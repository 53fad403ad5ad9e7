"""Corrections, proposals that two people decide on, caps on people and projects, approvals that expire."""

import math
from fractions import Fraction
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

HOLDS = (
    "(renyi_closed = 0 AND renyi_spent + renyi_reserved <= renyi_limit) OR "
    "(gaussian_closed = 0 AND gaussian_spent + gaussian_reserved <= gaussian_limit) OR "
    "(renyi2_closed = 0 AND renyi2_spent + renyi2_reserved <= renyi2_limit) OR "
    "(basic_closed = 0 AND basic_spent + basic_reserved <= basic_limit AND "
    "basic_delta_spent + basic_delta_reserved <= basic_delta_limit)"
)
LIMITS = {
    "a_filter_holds": HOLDS,
    "ex_post_fits": "ex_post_settlement = 'realized' OR ex_post_spent + ex_post_reserved <= ex_post_limit",
    "secret_fits": "secret_spent + secret_reserved <= secret_limit",
    "one_secret_job": "secret IS NULL OR secret ->> 'kind' <> 'one' OR secret_jobs <= 1",
}
UNITS = sa.Numeric(38, 0)
KINDS = "kind IN ('ALLOW','RESERVE','COMMIT','VOID'{})"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("project", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("approval_expires", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_jobs_approval_expires",
        "jobs",
        ["approval_expires"],
        postgresql_where=sa.text("state = 'awaiting_approval'"),
    )
    op.add_column(
        "accounts", sa.Column("overdrawn", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    for name, condition in LIMITS.items():
        op.drop_constraint(op.f(f"ck_accounts_{name}"), "accounts", type_="check")
        op.create_check_constraint(op.f(f"ck_accounts_{name}"), "accounts", f"overdrawn OR {condition}")
    op.drop_constraint(op.f("ck_entries_kind"), "entries", type_="check")
    op.create_check_constraint(op.f("ck_entries_kind"), "entries", KINDS.format(",'REVERSAL'"))
    create_usage()
    create_proposals()
    fill_usage(op.get_bind())


def create_usage() -> None:
    op.create_table(
        "usage",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("spent", UNITS, server_default="0", nullable=False),
        sa.Column("reserved", UNITS, server_default="0", nullable=False),
        sa.Column("cap", UNITS, nullable=True),
        sa.CheckConstraint("kind IN ('analyst','project')", name=op.f("ck_usage_kind")),
        sa.CheckConstraint("spent >= 0 AND reserved >= 0", name=op.f("ck_usage_not_negative")),
        sa.CheckConstraint("cap IS NULL OR spent + reserved <= cap", name=op.f("ck_usage_fits")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_usage_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", "kind", "holder", name=op.f("pk_usage")),
    )


def create_proposals() -> None:
    op.create_table(
        "proposals",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("asked", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("basis_seq", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("proposed_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_by", sa.Uuid(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decision_reason", sa.Text(), nullable=True),
        sa.Column("entry_seq", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('allowance','correction')", name=op.f("ck_proposals_kind")),
        sa.CheckConstraint("(kind = 'correction') = (job_id IS NOT NULL)", name=op.f("ck_proposals_job")),
        sa.CheckConstraint(
            "state IN ('open','confirmed','withdrawn','expired')", name=op.f("ck_proposals_state")
        ),
        sa.CheckConstraint(
            "(state = 'confirmed') = (entry_seq IS NOT NULL)", name=op.f("ck_proposals_entry")
        ),
        sa.CheckConstraint(
            "state <> 'confirmed' OR decided_by <> proposed_by", name=op.f("ck_proposals_two_people")
        ),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_proposals_dataset_id")),
        sa.ForeignKeyConstraint(["decided_by"], ["users.id"], name=op.f("fk_proposals_decided_by")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_proposals_job_id")),
        sa.ForeignKeyConstraint(["proposed_by"], ["users.id"], name=op.f("fk_proposals_proposed_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proposals")),
    )
    op.create_index(
        "ix_proposals_open", "proposals", ["expires_at"], postgresql_where=sa.text("state = 'open'")
    )


def fill_usage(connection: Any) -> None:
    """What people used so far: the stand-alone epsilon of every job that is reserved or charged.

    The same arithmetic as core.caps: a measured figure, moved up by its error, in 10^-9 rounded up.
    """
    query = sa.text(
        "SELECT DISTINCT ON (e.job_id) j.dataset_id, j.analyst_id, j.epsilon_alone, e.kind "
        "FROM entries e JOIN jobs j ON j.id = e.job_id ORDER BY e.job_id, e.seq DESC"
    )
    sums: dict[tuple[Any, str], list[int]] = {}
    for row in connection.execute(query):
        alone = Fraction(row.epsilon_alone or 0) * (1 + Fraction(1, 10**12))
        held = sums.setdefault((row.dataset_id, str(row.analyst_id)), [0, 0])
        if row.kind != "VOID":
            held[row.kind == "RESERVE"] += math.ceil(alone * 10**9)
    add = sa.text(
        "INSERT INTO usage (dataset_id, kind, holder, spent, reserved) "
        "VALUES (:dataset, 'analyst', :holder, :spent, :reserved)"
    )
    for (dataset, holder), (spent, reserved) in sums.items():
        values = {"dataset": dataset, "holder": holder, "spent": spent, "reserved": reserved}
        connection.execute(add, values)


def downgrade() -> None:
    """Refused by the database where a correction was made."""
    op.drop_table("proposals")
    op.drop_table("usage")
    op.drop_constraint(op.f("ck_entries_kind"), "entries", type_="check")
    op.create_check_constraint(op.f("ck_entries_kind"), "entries", KINDS.format(""))
    for name, condition in LIMITS.items():
        op.drop_constraint(op.f(f"ck_accounts_{name}"), "accounts", type_="check")
        op.create_check_constraint(op.f(f"ck_accounts_{name}"), "accounts", condition)
    op.drop_column("accounts", "overdrawn")
    op.drop_index("ix_jobs_approval_expires", "jobs", postgresql_where=sa.text("state = 'awaiting_approval'"))
    op.drop_column("jobs", "approval_expires")
    op.drop_column("jobs", "project")
