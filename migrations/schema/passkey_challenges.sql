CREATE TABLE passkey_challenges (
    id uuid CONSTRAINT pk_passkey_challenges PRIMARY KEY,
    user_id uuid CONSTRAINT fk_passkey_challenges_user_id REFERENCES users,
    purpose text NOT NULL,
    challenge bytea NOT NULL,
    nonce text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT ck_passkey_challenges_purpose CHECK (purpose IN ('register', 'sign in', 'confirm', 'act'))
);
CREATE INDEX ix_passkey_challenges_expires_at ON passkey_challenges (expires_at);
