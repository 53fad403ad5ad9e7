CREATE TABLE live_workers (
    worker text CONSTRAINT pk_live_workers PRIMARY KEY,
    classes text[] NOT NULL,
    at timestamptz NOT NULL
);
