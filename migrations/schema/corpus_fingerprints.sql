CREATE TABLE corpus_fingerprints (
    corpus_id uuid NOT NULL,
    fingerprint bytea NOT NULL,
    CONSTRAINT ck_corpus_fingerprints_length CHECK ((octet_length(fingerprint) = 16)),
    CONSTRAINT pk_corpus_fingerprints PRIMARY KEY (fingerprint, corpus_id),
    CONSTRAINT fk_corpus_fingerprints_corpus_id FOREIGN KEY (corpus_id) REFERENCES corpora(id)
);
