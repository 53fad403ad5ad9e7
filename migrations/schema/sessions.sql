CREATE TABLE sessions (
    id uuid NOT NULL,
    token_sha256 bytea NOT NULL,
    user_id uuid NOT NULL,
    method text NOT NULL,
    address text NOT NULL,
    user_agent text NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamptz,
    confirmed_at timestamptz,
    provider_session text,
    id_token bytea,
    CONSTRAINT pk_sessions PRIMARY KEY (id),
    CONSTRAINT uq_sessions_token_sha256 UNIQUE (token_sha256),
    CONSTRAINT fk_sessions_user_id FOREIGN KEY (user_id) REFERENCES users(id)
);
CREATE INDEX ix_sessions_open ON sessions (user_id) WHERE (ended_at IS NULL);
