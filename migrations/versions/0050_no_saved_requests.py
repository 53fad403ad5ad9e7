"""Requests are started from earlier jobs: saved ones are deleted."""

from alembic import op

revision = "0050"
down_revision = "0048"
branch_labels = None
depends_on = None

_DOWN = """
CREATE TABLE request_templates (
    id uuid CONSTRAINT pk_request_templates PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_request_templates_dataset_id REFERENCES datasets,
    owner_id uuid NOT NULL CONSTRAINT fk_request_templates_owner_id REFERENCES users,
    name text NOT NULL,
    mechanism text NOT NULL,
    model text,
    parameters jsonb NOT NULL,
    shared boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT uq_request_templates_dataset_id_owner_id_name UNIQUE (dataset_id, owner_id, name),
    CONSTRAINT ck_request_templates_name CHECK (length(name) BETWEEN 1 AND 80),
    CONSTRAINT ck_request_templates_parameters CHECK (length(parameters::text) <= 50000)
);
"""


def upgrade() -> None:
    op.execute("DROP TABLE request_templates")


def downgrade() -> None:
    op.execute(_DOWN)
