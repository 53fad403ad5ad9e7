CREATE TABLE checkpoint_requests (
    dataset_id uuid NOT NULL,
    seq bigint NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT ck_checkpoint_requests_seq CHECK ((seq >= 0)),
    CONSTRAINT pk_checkpoint_requests PRIMARY KEY (dataset_id, seq),
    CONSTRAINT fk_checkpoint_requests_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id)
);
