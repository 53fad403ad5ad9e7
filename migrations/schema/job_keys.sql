CREATE TABLE job_keys (
    job_id uuid CONSTRAINT pk_job_keys PRIMARY KEY CONSTRAINT fk_job_keys_job_id REFERENCES jobs,
    sealed bytea NOT NULL
);
ALTER TABLE job_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY leased ON job_keys
    USING ((SELECT calling_process()) <> 'worker' OR job_id IN (SELECT leased_jobs()));
