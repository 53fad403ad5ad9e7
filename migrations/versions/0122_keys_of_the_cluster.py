"""The database holds what each shared key makes of a public text."""

import sqlalchemy as sa
from alembic import op

revision = "0122"
down_revision = "0121"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "key_checks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("proof", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("octet_length(proof) = 32", name="length"),
    )
    op.execute(
        """
        CREATE FUNCTION guard_key_checks() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER
            SET search_path TO 'public', 'pg_temp'
            AS $$
        BEGIN
            IF calling_process() = 'web' AND NEW.name <> 'session'
                OR calling_process() = 'worker' AND NEW.name <> 'units'
            THEN
                PERFORM refuse_act('the key is another process''s');
            END IF;
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER key_checks_owner AFTER INSERT ON key_checks "
        "FOR EACH ROW EXECUTE FUNCTION guard_key_checks()"
    )
