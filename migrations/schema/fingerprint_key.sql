CREATE TABLE fingerprint_key (
    single boolean DEFAULT true NOT NULL,
    proof bytea NOT NULL,
    CONSTRAINT ck_fingerprint_key_one_row CHECK (single),
    CONSTRAINT pk_fingerprint_key PRIMARY KEY (single)
);
