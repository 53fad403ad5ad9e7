"""Comments on requests, questions back among them; webhooks that are chats or addresses for mail."""

from alembic import op

revision = "0031"
down_revision = "0029"
branch_labels = None
depends_on = None

_UP = """
CREATE TABLE comments (
    id uuid CONSTRAINT pk_comments PRIMARY KEY,
    job_id uuid NOT NULL CONSTRAINT fk_comments_job_id REFERENCES jobs,
    author_id uuid NOT NULL CONSTRAINT fk_comments_author_id REFERENCES users,
    kind text NOT NULL,
    text text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ck_comments_kind CHECK (kind IN ('comment','question','answer')),
    CONSTRAINT ck_comments_text CHECK (length(text) BETWEEN 1 AND 2000)
);
CREATE INDEX ix_comments_job_id ON comments (job_id, created_at, id);

CREATE FUNCTION hook_comment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- That somebody asked, not what: people's words stay here.
    IF NEW.kind <> 'comment' AND EXISTS (SELECT FROM hooks WHERE active) THEN
        PERFORM hook_announce(
            CASE NEW.kind WHEN 'question' THEN 'job.asked_back' ELSE 'job.answered' END, j.analyst_id,
            jsonb_build_object('job', j.id, 'dataset', d.name, 'mechanism', j.mechanism, 'analyst', u.name,
                'state', j.state))
        FROM jobs j JOIN datasets d ON d.id = j.dataset_id JOIN users u ON u.id = j.analyst_id
        WHERE j.id = NEW.job_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER hook_comment AFTER INSERT ON comments FOR EACH ROW EXECUTE FUNCTION hook_comment();

ALTER TABLE hooks ADD COLUMN kind text NOT NULL DEFAULT 'webhook';
ALTER TABLE hooks ADD CONSTRAINT ck_hooks_kind CHECK (kind IN ('webhook','chat','mail'));
"""

_DOWN = """
ALTER TABLE hooks DROP COLUMN kind;
DROP TABLE comments;
DROP FUNCTION hook_comment;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
