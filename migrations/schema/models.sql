CREATE TABLE models (
    id uuid CONSTRAINT pk_models PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_models_name UNIQUE,
    kind text DEFAULT 'language' NOT NULL,
    path text NOT NULL,
    trained_on text NOT NULL,
    state text NOT NULL CONSTRAINT ck_models_state CHECK (state IN ('checking', 'ready', 'invalid')),
    error text,
    facts jsonb,
    created_by uuid NOT NULL CONSTRAINT fk_models_created_by REFERENCES users,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    endpoint jsonb,
    CONSTRAINT ck_models_endpoint CHECK ((kind = 'endpoint') = (endpoint IS NOT NULL)),
    CONSTRAINT ck_models_facts_when_ready CHECK ((state = 'ready') = (facts IS NOT NULL)),
    CONSTRAINT ck_models_kind CHECK (kind IN ('language', 'embedding', 'endpoint'))
);
