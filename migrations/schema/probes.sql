CREATE TABLE probes (
    key text NOT NULL,
    facts jsonb NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_probes PRIMARY KEY (key)
);
