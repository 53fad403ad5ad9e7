CREATE TABLE hook_deliveries (
    id uuid NOT NULL,
    hook_id uuid NOT NULL,
    event text NOT NULL,
    analyst_id uuid,
    facts jsonb NOT NULL,
    occurred_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    claim uuid,
    CONSTRAINT ck_hook_deliveries_attempts CHECK ((attempts >= 0)),
    CONSTRAINT pk_hook_deliveries PRIMARY KEY (id),
    CONSTRAINT fk_hook_deliveries_hook_id FOREIGN KEY (hook_id) REFERENCES hooks(id) ON DELETE CASCADE
);
CREATE INDEX ix_hook_deliveries_due ON hook_deliveries (hook_id, due_at);
