CREATE TABLE hooks (
    id uuid NOT NULL,
    owner_id uuid NOT NULL,
    url text NOT NULL,
    events text[] NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    kind text NOT NULL,
    CONSTRAINT ck_hooks_events CHECK ((cardinality(events) >= 1)),
    CONSTRAINT ck_hooks_kind CHECK ((kind = ANY (ARRAY['mail', 'chat', 'teams', 'json']))),
    CONSTRAINT pk_hooks PRIMARY KEY (id),
    CONSTRAINT fk_hooks_owner_id FOREIGN KEY (owner_id) REFERENCES users(id)
);
CREATE INDEX ix_hooks_owner_id ON hooks (owner_id);
