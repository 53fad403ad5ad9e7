CREATE TABLE fingerprints (
    fingerprint bytea NOT NULL CONSTRAINT ck_fingerprints_length CHECK (octet_length(fingerprint) = 16),
    dataset_id uuid NOT NULL CONSTRAINT fk_fingerprints_dataset_id REFERENCES datasets,
    is_unit boolean NOT NULL,
    CONSTRAINT pk_fingerprints PRIMARY KEY (fingerprint, dataset_id)
);
CREATE UNIQUE INDEX uq_fingerprints_unit ON fingerprints (fingerprint) WHERE is_unit;
