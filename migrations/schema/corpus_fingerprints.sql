CREATE TABLE corpus_fingerprints (
    corpus_id uuid NOT NULL CONSTRAINT fk_corpus_fingerprints_corpus_id REFERENCES corpora,
    fingerprint bytea NOT NULL CONSTRAINT ck_corpus_fingerprints_length CHECK (octet_length(fingerprint) = 16),
    CONSTRAINT pk_corpus_fingerprints PRIMARY KEY (fingerprint, corpus_id)
);
