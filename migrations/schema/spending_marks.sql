CREATE TABLE spending_marks (
    dataset_id uuid CONSTRAINT pk_spending_marks PRIMARY KEY,
    through bigint DEFAULT '0' NOT NULL CONSTRAINT ck_spending_marks_through CHECK (through >= 0),
    CONSTRAINT fk_spending_marks_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets
);
