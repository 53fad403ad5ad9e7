"""Saved requests that others start from, and requests for access to a dataset."""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_UP = """
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

CREATE TABLE access_requests (
    id uuid CONSTRAINT pk_access_requests PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_access_requests_dataset_id REFERENCES datasets,
    person_id uuid NOT NULL CONSTRAINT fk_access_requests_person_id REFERENCES users,
    reason text NOT NULL,
    state text NOT NULL DEFAULT 'open',
    answer text,
    decided_by uuid CONSTRAINT fk_access_requests_decided_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    decided_at timestamptz,
    CONSTRAINT ck_access_requests_state CHECK (state IN ('open','granted','refused')),
    CONSTRAINT ck_access_requests_reason CHECK (length(reason) BETWEEN 1 AND 2000),
    CONSTRAINT ck_access_requests_decided CHECK
        ((state = 'open') = (decided_by IS NULL) AND (state = 'open') = (answer IS NULL))
);
CREATE UNIQUE INDEX uq_access_requests_open ON access_requests (dataset_id, person_id) WHERE state = 'open';
CREATE INDEX ix_access_requests_person ON access_requests (person_id, created_at);
"""

_DOWN = "DROP TABLE access_requests; DROP TABLE request_templates;"


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
