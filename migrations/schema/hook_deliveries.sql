CREATE TABLE hook_deliveries (
    id uuid CONSTRAINT pk_hook_deliveries PRIMARY KEY,
    hook_id uuid NOT NULL CONSTRAINT fk_hook_deliveries_hook_id REFERENCES hooks ON DELETE CASCADE,
    event text NOT NULL,
    analyst_id uuid,
    facts jsonb NOT NULL,
    occurred_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL CONSTRAINT ck_hook_deliveries_attempts CHECK (attempts >= 0),
    due_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    claim uuid
);
CREATE INDEX ix_hook_deliveries_due ON hook_deliveries (hook_id, due_at);
