"""Accounts carry all three currencies, the basic filter's step of delta, and what statements mention."""

import json
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UNITS = (
    "basic_step_delta",
    "ex_post_limit",
    "ex_post_spent",
    "ex_post_reserved",
    "secret_limit",
    "secret_spent",
    "secret_reserved",
    "largest_epsilon",
    "largest_delta",
)
COUNTS = (
    "secret_jobs",
    "raises_after_release",
    "job_count",
    "ex_post_job_count",
    "secret_job_count",
    "failure_count",
)
CHECKS = {
    "others_not_negative": "basic_step_delta >= 0 AND ex_post_limit >= 0 AND ex_post_spent >= 0 AND ex_post_reserved >= 0 AND secret_limit >= 0 AND secret_spent >= 0 AND secret_reserved >= 0 AND secret_jobs >= 0 AND largest_epsilon >= 0 AND largest_delta >= 0 AND raises_after_release >= 0 AND job_count >= 0 AND ex_post_job_count >= 0 AND secret_job_count >= 0 AND failure_count >= 0",
    "ex_post_settlement": "ex_post_settlement IN ('planned','realized')",
    "ex_post_fits": "ex_post_settlement = 'realized' OR ex_post_spent + ex_post_reserved <= ex_post_limit",
    "secret_fits": "secret_spent + secret_reserved <= secret_limit",
    "no_secret": "secret IS NOT NULL OR (secret_limit = 0 AND secret_jobs = 0)",
    "secret_kind": "secret IS NULL OR secret ->> 'kind' IN ('one','many')",
    "one_secret_job": "secret IS NULL OR secret ->> 'kind' <> 'one' OR secret_jobs <= 1",
}


def upgrade() -> None:
    for name in UNITS:
        op.add_column("accounts", sa.Column(name, sa.Numeric(38, 0), server_default="0", nullable=False))
    for name in COUNTS:
        op.add_column("accounts", sa.Column(name, sa.Integer(), server_default="0", nullable=False))
    op.add_column("accounts", sa.Column("largest_bound", sa.Double(), server_default="0", nullable=False))
    op.add_column(
        "accounts", sa.Column("ex_post_settlement", sa.Text(), server_default="planned", nullable=False)
    )
    op.add_column("accounts", sa.Column("secret", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    fill_history(op.get_bind())
    for name, condition in CHECKS.items():
        op.create_check_constraint(op.f(f"ck_accounts_{name}"), "accounts", condition)
    op.alter_column("jobs", "event", existing_type=postgresql.JSONB(), nullable=True)
    op.alter_column("jobs", "epsilon_alone", existing_type=sa.Double(), nullable=True)
    op.create_check_constraint(op.f("ck_jobs_event"), "jobs", "(event IS NULL) = (epsilon_alone IS NULL)")


def fill_history(connection: Any) -> None:
    """What the entries so far say: largest allowances, raises after a release, jobs and failures.

    Entries of version 0001 know one currency, and each of their jobs releases something. They state no
    step of delta, so 0 is what they mean.
    """
    totals: dict[Any, dict[str, int]] = {}
    query = sa.text("SELECT dataset_id, kind, document FROM entries ORDER BY dataset_id, seq")
    for dataset_id, kind, document in connection.execute(query):
        found = totals.setdefault(
            dataset_id, dict.fromkeys(("epsilon", "delta", "raises", "jobs", "failures"), 0)
        )
        body = json.loads(document)["body"]
        if kind == "ALLOW":
            epsilon = int(Decimal(body["epsilon"]).scaleb(9))
            delta = int(Decimal(body["delta"]).scaleb(21))
            raised = epsilon > found["epsilon"] or delta > found["delta"]
            found["raises"] += raised and found["jobs"] > 0
            found["epsilon"], found["delta"] = max(epsilon, found["epsilon"]), max(delta, found["delta"])
        found["jobs"] += (kind == "RESERVE") - (kind == "VOID")
        found["failures"] += kind == "COMMIT" and body["outcome"] in ("failed", "cancelled")
    change = sa.text(
        "UPDATE accounts SET largest_epsilon = :epsilon, largest_delta = :delta, "
        "raises_after_release = :raises, job_count = :jobs, failure_count = :failures "
        "WHERE dataset_id = :dataset_id"
    )
    for dataset_id, found in totals.items():
        connection.execute(change, {"dataset_id": dataset_id, **found})


def downgrade() -> None:
    """Refused by the database where a job without an (epsilon, delta) price exists."""
    op.drop_constraint(op.f("ck_jobs_event"), "jobs", type_="check")
    op.alter_column("jobs", "epsilon_alone", existing_type=sa.Double(), nullable=False)
    op.alter_column("jobs", "event", existing_type=postgresql.JSONB(), nullable=False)
    for name in CHECKS:
        op.drop_constraint(op.f(f"ck_accounts_{name}"), "accounts", type_="check")
    for name in (*UNITS, *COUNTS, "largest_bound", "ex_post_settlement", "secret"):
        op.drop_column("accounts", name)
