"""The edition of an account's prices, and the epsilon against which a whole job's delta is chosen.

Accounts that stand keep the first edition, by which every entry so far was charged.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "accounts", sa.Column("price_edition", sa.Integer(), server_default=sa.text("1"), nullable=False)
    )
    op.add_column(
        "accounts",
        sa.Column("basic_whole_epsilon", sa.Numeric(38), server_default=sa.text("'0'"), nullable=False),
    )
    op.create_check_constraint(
        op.f("ck_accounts_price_edition"),
        "accounts",
        "price_edition >= 1 AND basic_whole_epsilon >= 0 AND (price_edition = 1) = (basic_whole_epsilon = 0)",
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_accounts_price_edition"), "accounts", type_="check")
    op.drop_column("accounts", "basic_whole_epsilon")
    op.drop_column("accounts", "price_edition")
