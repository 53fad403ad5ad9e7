CREATE TABLE sessions (
    id uuid CONSTRAINT pk_sessions PRIMARY KEY,
    token_sha256 bytea NOT NULL CONSTRAINT uq_sessions_token_sha256 UNIQUE,
    user_id uuid NOT NULL CONSTRAINT fk_sessions_user_id REFERENCES users,
    method text NOT NULL,
    address text NOT NULL,
    user_agent text NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamptz,
    confirmed_at timestamptz,
    provider_session text,
    id_token bytea
);
CREATE INDEX ix_sessions_open ON sessions (user_id) WHERE ended_at IS NULL;
