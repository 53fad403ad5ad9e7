CREATE TABLE checkpoint_requests (
    dataset_id uuid NOT NULL CONSTRAINT fk_checkpoint_requests_dataset_id REFERENCES datasets,
    seq bigint NOT NULL CONSTRAINT ck_checkpoint_requests_seq CHECK (seq >= 0),
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_checkpoint_requests PRIMARY KEY (dataset_id, seq)
);
