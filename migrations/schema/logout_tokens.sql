CREATE TABLE logout_tokens (
    issuer text NOT NULL,
    token_id text NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_logout_tokens PRIMARY KEY (issuer, token_id)
);
