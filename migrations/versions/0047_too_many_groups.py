"""The log of sign-ins tells a provider that left out who somebody is with from one that gives no role."""

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

OUTCOME = ", 'too many groups'::text"


def upgrade() -> None:
    _restate("])", f"{OUTCOME}])")


def downgrade() -> None:
    _restate(OUTCOME, "")


def _restate(before: str, after: str) -> None:
    """Replace a piece of the constraint, whatever other outcomes it has."""
    query = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'ck_sign_ins_outcome'"
    definition = op.get_bind().exec_driver_sql(query).scalar_one()
    assert before in definition
    op.execute("ALTER TABLE sign_ins DROP CONSTRAINT ck_sign_ins_outcome")
    op.execute(
        f"ALTER TABLE sign_ins ADD CONSTRAINT ck_sign_ins_outcome {definition.replace(before, after, 1)}"
    )
