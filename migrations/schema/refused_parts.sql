CREATE TABLE refused_parts (
    job_id uuid NOT NULL CONSTRAINT fk_refused_parts_job_id REFERENCES jobs,
    number integer NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_refused_parts PRIMARY KEY (job_id, number)
);
