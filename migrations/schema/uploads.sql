CREATE TABLE uploads (
    sha256 text CONSTRAINT pk_uploads PRIMARY KEY,
    address text NOT NULL,
    format text NOT NULL CONSTRAINT ck_uploads_format CHECK (format IN ('csv', 'jsonl', 'parquet')),
    compression text,
    bytes bigint NOT NULL CONSTRAINT ck_uploads_bytes CHECK (bytes >= 1),
    uncompressed_bytes bigint NOT NULL,
    columns jsonb NOT NULL,
    uploaded_by uuid NOT NULL CONSTRAINT fk_uploads_uploaded_by REFERENCES users,
    uploaded_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    removed_at timestamptz,
    name text,
    CONSTRAINT ck_uploads_sha256 CHECK (sha256 ~ '^[0-9a-f]{64}$')
);
