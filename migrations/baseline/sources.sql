-- Datasets and their versions, uploads, fingerprints of privacy units, models and public corpora.

CREATE TABLE datasets (
    id uuid CONSTRAINT pk_datasets PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_datasets_name UNIQUE,
    description text NOT NULL DEFAULT '',
    neighbours text NOT NULL,
    unit_column text,
    max_records_per_unit integer NOT NULL,
    public_size bigint,
    labels jsonb NOT NULL,
    policy jsonb NOT NULL,
    created_by uuid NOT NULL CONSTRAINT fk_datasets_created_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ck_datasets_neighbours CHECK (neighbours IN ('add-remove','replace-one')),
    CONSTRAINT ck_datasets_bound CHECK (max_records_per_unit >= 1),
    CONSTRAINT ck_datasets_record_bound CHECK (unit_column IS NOT NULL OR max_records_per_unit = 1),
    CONSTRAINT ck_datasets_public_size CHECK (public_size IS NULL OR public_size >= 1)
);

CREATE TABLE dataset_versions (
    id uuid CONSTRAINT pk_dataset_versions PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_dataset_versions_dataset_id REFERENCES datasets,
    number integer NOT NULL,
    uri text NOT NULL,
    text_template text NOT NULL,
    unit_column text,
    label_column text,
    state text NOT NULL,
    error text,
    created_by uuid NOT NULL CONSTRAINT fk_dataset_versions_created_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT uq_dataset_versions_dataset_id_number UNIQUE (dataset_id, number),
    CONSTRAINT ck_dataset_versions_state CHECK (state IN ('checking','ready','invalid'))
);

CREATE TABLE uploads (
    sha256 text CONSTRAINT pk_uploads PRIMARY KEY,
    address text NOT NULL,
    format text NOT NULL,
    compression text,
    bytes bigint NOT NULL,
    uncompressed_bytes bigint NOT NULL,
    columns jsonb NOT NULL,
    uploaded_by uuid NOT NULL CONSTRAINT fk_uploads_uploaded_by REFERENCES users,
    uploaded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at timestamptz,
    CONSTRAINT ck_uploads_sha256 CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT ck_uploads_format CHECK (format IN ('csv','jsonl','parquet')),
    CONSTRAINT ck_uploads_bytes CHECK (bytes >= 1)
);

CREATE TABLE fingerprints (
    fingerprint bytea NOT NULL,
    dataset_id uuid NOT NULL CONSTRAINT fk_fingerprints_dataset_id REFERENCES datasets,
    is_unit boolean NOT NULL,
    CONSTRAINT pk_fingerprints PRIMARY KEY (fingerprint, dataset_id),
    CONSTRAINT ck_fingerprints_length CHECK (octet_length(fingerprint) = 16)
);
CREATE UNIQUE INDEX uq_fingerprints_unit ON fingerprints (fingerprint) WHERE is_unit;

CREATE TABLE fingerprint_key (
    single boolean DEFAULT true CONSTRAINT pk_fingerprint_key PRIMARY KEY,
    proof bytea NOT NULL,
    CONSTRAINT ck_fingerprint_key_one_row CHECK (single)
);

CREATE TABLE models (
    id uuid CONSTRAINT pk_models PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_models_name UNIQUE,
    kind text NOT NULL DEFAULT 'language',
    path text NOT NULL,
    trained_on text NOT NULL,
    state text NOT NULL,
    error text,
    facts jsonb,
    created_by uuid NOT NULL CONSTRAINT fk_models_created_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ck_models_state CHECK (state IN ('checking','ready','invalid')),
    CONSTRAINT ck_models_facts_when_ready CHECK ((state = 'ready') = (facts IS NOT NULL)),
    CONSTRAINT ck_models_kind CHECK (kind IN ('language','embedding'))
);

CREATE TABLE corpora (
    id uuid CONSTRAINT pk_corpora PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_corpora_name UNIQUE,
    uri text NOT NULL,
    text_template text NOT NULL,
    label_column text,
    declaration text NOT NULL,
    statement text NOT NULL,
    state text NOT NULL,
    error text,
    facts jsonb,
    created_by uuid NOT NULL CONSTRAINT fk_corpora_created_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ck_corpora_declaration CHECK (declaration IN ('public','consented')),
    CONSTRAINT ck_corpora_state CHECK (state IN ('checking','ready','invalid')),
    CONSTRAINT ck_corpora_facts_when_ready CHECK ((state = 'ready') = (facts IS NOT NULL))
);

CREATE TABLE probes (
    key text CONSTRAINT pk_probes PRIMARY KEY,
    facts jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
