CREATE TABLE fingerprint_key (
    single boolean DEFAULT true CONSTRAINT pk_fingerprint_key PRIMARY KEY,
    proof bytea NOT NULL,
    CONSTRAINT ck_fingerprint_key_one_row CHECK (single)
);
