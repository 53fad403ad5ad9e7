CREATE TABLE passkeys (
    id uuid CONSTRAINT pk_passkeys PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT fk_passkeys_user_id REFERENCES users,
    name text NOT NULL CONSTRAINT ck_passkeys_name CHECK (length(name) >= 1 AND length(name) <= 100),
    credential_id bytea NOT NULL CONSTRAINT uq_passkeys_credential_id UNIQUE,
    public_key bytea NOT NULL,
    signer text NOT NULL,
    sign_count bigint NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    last_used_at timestamptz,
    removed_at timestamptz
);
CREATE INDEX ix_passkeys_user_id ON passkeys (user_id, created_at);
