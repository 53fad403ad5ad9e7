CREATE TABLE artifacts (
    job_id uuid NOT NULL CONSTRAINT fk_artifacts_job_id REFERENCES jobs,
    name text NOT NULL,
    kind text NOT NULL,
    media_type text NOT NULL,
    sha256 text NOT NULL CONSTRAINT ck_artifacts_sha256 CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    size bigint NOT NULL CONSTRAINT ck_artifacts_size CHECK (size >= 0),
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT ck_artifacts_media_type CHECK (media_type IN ('application/json', 'application/x-safetensors',
        'text/html')),
    CONSTRAINT pk_artifacts PRIMARY KEY (job_id, name)
);
CREATE INDEX ix_artifacts_sha256 ON artifacts (sha256);

CREATE TRIGGER artifacts_lease AFTER INSERT ON artifacts FOR EACH ROW EXECUTE FUNCTION guard_lease();
