CREATE TABLE probes (
    key text CONSTRAINT pk_probes PRIMARY KEY,
    facts jsonb NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL
);
