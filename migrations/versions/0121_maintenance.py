"""An administrator stops admissions for a while: a row that all processes see."""

from alembic import op

revision = "0121"
down_revision = "0120"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE maintenance (
            one boolean DEFAULT true NOT NULL,
            reason text NOT NULL,
            by text NOT NULL,
            since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT pk_maintenance PRIMARY KEY (one),
            CONSTRAINT ck_maintenance_one CHECK (one)
        )
        """
    )
