"""A corpus is ready when the worker that looks at data says so, and nobody else."""

from alembic import op

revision = "0115"
down_revision = "0114"


def upgrade() -> None:
    op.execute(
        """
        CREATE FUNCTION guard_corpus() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER
            SET search_path TO 'public', 'pg_temp'
            AS $$
        BEGIN
            IF calling_process() = 'web' AND NEW.state <> 'checking' THEN
                PERFORM refuse_act('nobody has looked at the corpus yet');
            END IF;
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER corpora_look AFTER INSERT ON corpora "
        "FOR EACH ROW EXECUTE FUNCTION guard_corpus()"
    )
