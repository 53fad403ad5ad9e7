CREATE TABLE hooks (
    id uuid CONSTRAINT pk_hooks PRIMARY KEY,
    owner_id uuid NOT NULL CONSTRAINT fk_hooks_owner_id REFERENCES users,
    url text NOT NULL,
    events text[] NOT NULL CONSTRAINT ck_hooks_events CHECK (cardinality(events) >= 1),
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    kind text NOT NULL,
    CONSTRAINT ck_hooks_kind CHECK (kind IN ('mail', 'chat', 'teams', 'json', 'openlineage'))
);
CREATE INDEX ix_hooks_owner_id ON hooks (owner_id);
