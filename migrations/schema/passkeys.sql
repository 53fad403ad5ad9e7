CREATE TABLE passkeys (
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    name text NOT NULL,
    credential_id bytea NOT NULL,
    public_key bytea NOT NULL,
    signer text NOT NULL,
    sign_count bigint NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    last_used_at timestamptz,
    removed_at timestamptz,
    CONSTRAINT ck_passkeys_name CHECK (((length(name) >= 1) AND (length(name) <= 100))),
    CONSTRAINT pk_passkeys PRIMARY KEY (id),
    CONSTRAINT uq_passkeys_credential_id UNIQUE (credential_id),
    CONSTRAINT fk_passkeys_user_id FOREIGN KEY (user_id) REFERENCES users(id)
);
CREATE INDEX ix_passkeys_user_id ON passkeys (user_id, created_at);
