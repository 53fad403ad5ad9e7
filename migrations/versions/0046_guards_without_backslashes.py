"""A guard reads the same whatever a session says of backslashes (standard_conforming_strings)."""

from alembic import op

revision = "0046"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _restate(r"^\{", "^[{]")


def downgrade() -> None:
    _restate("^[{]", r"^\{")


def _restate(before: str, after: str) -> None:
    """Replace a piece of `published_text`, the one function of which a string holds a backslash."""
    query = "SELECT pg_get_functiondef('published_text(text)'::regprocedure)"
    definition = op.get_bind().exec_driver_sql(query).scalar_one()
    assert before in definition
    op.get_bind().exec_driver_sql(
        definition.replace(before, after), execution_options={"no_parameters": True}
    )
