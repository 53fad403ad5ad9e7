CREATE TABLE stopped_workers (
    worker text CONSTRAINT pk_stopped_workers PRIMARY KEY,
    why text NOT NULL,
    at timestamptz NOT NULL
);
