CREATE TABLE external_accounts (
    issuer text NOT NULL,
    subject text NOT NULL,
    user_id uuid NOT NULL CONSTRAINT uq_external_accounts_user_id UNIQUE,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    confirmed_at timestamptz,
    refresh_token bytea,
    asked_at timestamptz,
    CONSTRAINT pk_external_accounts PRIMARY KEY (issuer, subject),
    CONSTRAINT fk_external_accounts_user_id FOREIGN KEY (user_id) REFERENCES users
);
