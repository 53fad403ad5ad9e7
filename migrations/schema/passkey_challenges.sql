CREATE TABLE passkey_challenges (
    id uuid NOT NULL,
    user_id uuid,
    purpose text NOT NULL,
    challenge bytea NOT NULL,
    nonce text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT ck_passkey_challenges_purpose CHECK ((purpose = ANY (ARRAY['register', 'sign in', 'confirm', 'act']))),
    CONSTRAINT pk_passkey_challenges PRIMARY KEY (id),
    CONSTRAINT fk_passkey_challenges_user_id FOREIGN KEY (user_id) REFERENCES users(id)
);
CREATE INDEX ix_passkey_challenges_expires_at ON passkey_challenges (expires_at);
