"""A policy may be proposed: switching off that raises take two stewards takes two stewards."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

#: The checks on proposals, by name: before and after.
CHECKS = {
    "kind": ("kind IN ('allowance','correction')", "kind IN ('allowance','correction','policy')"),
    "entry": (
        "(state = 'confirmed') = (entry_seq IS NOT NULL)",
        "(state = 'confirmed' AND kind <> 'policy') = (entry_seq IS NOT NULL)",
    ),
}


def upgrade() -> None:
    op.alter_column("proposals", "basis_seq", existing_type=sa.BigInteger(), nullable=True)
    for name, (_, after) in CHECKS.items():
        replace_check(name, after)
    op.create_check_constraint(
        op.f("ck_proposals_basis"), "proposals", "(kind = 'policy') = (basis_seq IS NULL)"
    )


def replace_check(name: str, condition: str) -> None:
    op.drop_constraint(op.f(f"ck_proposals_{name}"), "proposals", type_="check")
    op.create_check_constraint(op.f(f"ck_proposals_{name}"), "proposals", condition)


def downgrade() -> None:
    op.execute("DELETE FROM proposals WHERE kind = 'policy'")
    op.drop_constraint(op.f("ck_proposals_basis"), "proposals", type_="check")
    for name, (before, _) in CHECKS.items():
        replace_check(name, before)
    op.alter_column("proposals", "basis_seq", existing_type=sa.BigInteger(), nullable=False)
