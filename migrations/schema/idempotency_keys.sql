CREATE TABLE idempotency_keys (
    person_id uuid NOT NULL,
    key text NOT NULL,
    request_sha256 text NOT NULL,
    made uuid NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT ck_idempotency_keys_length CHECK (((length(key) >= 1) AND (length(key) <= 200))),
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (person_id, key),
    CONSTRAINT fk_idempotency_keys_person_id FOREIGN KEY (person_id) REFERENCES users(id)
);
