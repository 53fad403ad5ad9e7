CREATE TABLE idempotency_keys (
    person_id uuid NOT NULL CONSTRAINT fk_idempotency_keys_person_id REFERENCES users,
    key text NOT NULL CONSTRAINT ck_idempotency_keys_length CHECK (length(key) >= 1 AND length(key) <= 200),
    request_sha256 text NOT NULL,
    made uuid NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (person_id, key)
);
