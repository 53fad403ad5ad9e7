CREATE TABLE uploads (
    sha256 text NOT NULL,
    address text NOT NULL,
    format text NOT NULL,
    compression text,
    bytes bigint NOT NULL,
    uncompressed_bytes bigint NOT NULL,
    columns jsonb NOT NULL,
    uploaded_by uuid NOT NULL,
    uploaded_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    removed_at timestamptz,
    name text,
    CONSTRAINT ck_uploads_bytes CHECK ((bytes >= 1)),
    CONSTRAINT ck_uploads_format CHECK ((format = ANY (ARRAY['csv', 'jsonl', 'parquet']))),
    CONSTRAINT ck_uploads_sha256 CHECK ((sha256 ~ '^[0-9a-f]{64}$')),
    CONSTRAINT pk_uploads PRIMARY KEY (sha256),
    CONSTRAINT fk_uploads_uploaded_by FOREIGN KEY (uploaded_by) REFERENCES users(id)
);
