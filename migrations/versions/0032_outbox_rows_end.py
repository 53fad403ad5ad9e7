"""A message has one row however often it is sent, and its row ends; so do old rows of the two logs."""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

#: Younger rows of the two logs can't be taken away by whoever holds the service's own role.
_KEPT_DAYS = 90
_LOGS = ("sign_ins", "activity")


def upgrade() -> None:
    # The relay writes what still waits anew when it starts.
    op.execute("DELETE FROM outbox WHERE sent_at IS NOT NULL")
    op.execute("ALTER TABLE outbox ADD COLUMN first_sent_at TIMESTAMP WITH TIME ZONE")
    op.execute("ALTER TABLE outbox ADD COLUMN sends INTEGER DEFAULT '0' NOT NULL")
    op.execute(
        f"""
        CREATE FUNCTION logs_end_by_age() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'DELETE' THEN
                IF OLD.at < clock_timestamp() - interval '{_KEPT_DAYS} days' THEN
                    RETURN OLD;
                END IF;
            END IF;
            RAISE EXCEPTION '% keeps rows for {_KEPT_DAYS} days as they are: % refused', TG_TABLE_NAME, TG_OP
                USING ERRCODE = 'restrict_violation';
        END $$
        """
    )
    for table in _LOGS:
        op.execute(f"DROP TRIGGER {table}_rows ON {table}")
        op.execute(
            f"CREATE TRIGGER {table}_rows BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION logs_end_by_age()"
        )


def downgrade() -> None:
    for table in _LOGS:
        op.execute(f"DROP TRIGGER {table}_rows ON {table}")
        op.execute(
            f"CREATE TRIGGER {table}_rows BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION rows_are_append_only()"
        )
    op.execute("DROP FUNCTION logs_end_by_age()")
    op.execute("ALTER TABLE outbox DROP COLUMN sends")
    op.execute("ALTER TABLE outbox DROP COLUMN first_sent_at")
