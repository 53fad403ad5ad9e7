"""People of a provider stand here while it confirms them; its sessions and logout tokens are known."""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def _moment(name: str) -> sa.Column:
    return sa.Column(name, sa.DateTime(timezone=True))


def upgrade() -> None:
    """Nobody has to sign in again for it within the hour."""
    op.add_column("external_accounts", _moment("confirmed_at"))
    op.add_column("external_accounts", sa.Column("refresh_token", sa.LargeBinary))
    op.add_column("external_accounts", _moment("asked_at"))
    op.execute("UPDATE external_accounts SET confirmed_at = clock_timestamp()")
    op.add_column("sessions", sa.Column("provider_session", sa.Text))
    op.add_column("sessions", sa.Column("id_token", sa.LargeBinary))
    op.create_table(
        "logout_tokens",
        sa.Column("issuer", sa.Text, primary_key=True),
        sa.Column("token_id", sa.Text, primary_key=True),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
    )


def downgrade() -> None:
    op.drop_table("logout_tokens")
    op.drop_column("sessions", "id_token")
    op.drop_column("sessions", "provider_session")
    for name in ("asked_at", "refresh_token", "confirmed_at"):
        op.drop_column("external_accounts", name)
