CREATE TABLE job_keys (
    job_id uuid NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT pk_job_keys PRIMARY KEY (job_id),
    CONSTRAINT fk_job_keys_job_id FOREIGN KEY (job_id) REFERENCES jobs(id)
);
ALTER TABLE job_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY leased ON job_keys USING (((( SELECT calling_process()) <> 'worker')
    OR (job_id IN ( SELECT leased_jobs()))));
