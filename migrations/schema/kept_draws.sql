CREATE TABLE kept_draws (
    job_id uuid NOT NULL,
    part integer NOT NULL,
    number bigint NOT NULL CONSTRAINT ck_kept_draws_number CHECK (number >= 0),
    sealed bytea NOT NULL,
    CONSTRAINT pk_kept_draws PRIMARY KEY (job_id, part, number),
    CONSTRAINT fk_kept_draws_job_id_part FOREIGN KEY (job_id, part) REFERENCES parts(job_id, number)
);
ALTER TABLE kept_draws ENABLE ROW LEVEL SECURITY;
CREATE POLICY leased ON kept_draws
    USING ((SELECT calling_process()) <> 'worker' OR job_id IN (SELECT leased_jobs()));
