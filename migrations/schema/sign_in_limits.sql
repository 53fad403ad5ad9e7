CREATE TABLE sign_in_limits (
    key text CONSTRAINT pk_sign_in_limits PRIMARY KEY,
    failures integer DEFAULT 0 NOT NULL CONSTRAINT ck_sign_in_limits_failures CHECK (failures >= 0),
    last_at timestamptz NOT NULL,
    locked_until timestamptz,
    refusal_logged boolean DEFAULT false NOT NULL
);
CREATE INDEX ix_sign_in_limits_last_at ON sign_in_limits (last_at);
