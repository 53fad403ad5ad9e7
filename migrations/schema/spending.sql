CREATE TABLE spending (
    dataset_id uuid NOT NULL CONSTRAINT fk_spending_dataset_id REFERENCES datasets,
    day date NOT NULL,
    analyst_id uuid NOT NULL CONSTRAINT fk_spending_analyst_id REFERENCES users,
    mechanism text NOT NULL,
    renyi numeric(38,0) DEFAULT '0' NOT NULL,
    gaussian numeric(38,0) DEFAULT '0' NOT NULL,
    renyi2 numeric(38,0) DEFAULT '0' NOT NULL,
    basic numeric(38,0) DEFAULT '0' NOT NULL,
    basic_delta numeric(38,0) DEFAULT '0' NOT NULL,
    ex_post numeric(38,0) DEFAULT '0' NOT NULL,
    secret numeric(38,0) DEFAULT '0' NOT NULL,
    jobs integer DEFAULT 0 NOT NULL,
    CONSTRAINT pk_spending PRIMARY KEY (dataset_id, day, analyst_id, mechanism)
);
