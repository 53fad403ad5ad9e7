CREATE TABLE api_tokens (
    id uuid CONSTRAINT pk_api_tokens PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT fk_api_tokens_user_id REFERENCES users,
    name text NOT NULL,
    token_sha256 bytea NOT NULL CONSTRAINT uq_api_tokens_token_sha256 UNIQUE,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    scopes text[] NOT NULL,
    by_sign_in boolean DEFAULT false NOT NULL,
    last_used_at timestamptz,
    CONSTRAINT ck_api_tokens_known_scopes CHECK (scopes <@ ARRAY['read', 'jobs:submit', 'budget:approve',
        'data:manage', 'admin'] AND cardinality(scopes) > 0)
);
CREATE INDEX ix_api_tokens_user_id ON api_tokens (user_id, created_at);
