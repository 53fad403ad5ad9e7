CREATE TABLE fingerprints (
    fingerprint bytea NOT NULL,
    dataset_id uuid NOT NULL,
    is_unit boolean NOT NULL,
    CONSTRAINT ck_fingerprints_length CHECK ((octet_length(fingerprint) = 16)),
    CONSTRAINT pk_fingerprints PRIMARY KEY (fingerprint, dataset_id),
    CONSTRAINT fk_fingerprints_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id)
);
CREATE UNIQUE INDEX uq_fingerprints_unit ON fingerprints (fingerprint) WHERE is_unit;
