CREATE TABLE spending (
    dataset_id uuid NOT NULL,
    day date NOT NULL,
    analyst_id uuid NOT NULL,
    mechanism text NOT NULL,
    renyi numeric(38,0) DEFAULT '0' NOT NULL,
    gaussian numeric(38,0) DEFAULT '0' NOT NULL,
    renyi2 numeric(38,0) DEFAULT '0' NOT NULL,
    basic numeric(38,0) DEFAULT '0' NOT NULL,
    basic_delta numeric(38,0) DEFAULT '0' NOT NULL,
    ex_post numeric(38,0) DEFAULT '0' NOT NULL,
    secret numeric(38,0) DEFAULT '0' NOT NULL,
    jobs integer DEFAULT 0 NOT NULL,
    CONSTRAINT pk_spending PRIMARY KEY (dataset_id, day, analyst_id, mechanism),
    CONSTRAINT fk_spending_analyst_id FOREIGN KEY (analyst_id) REFERENCES users(id),
    CONSTRAINT fk_spending_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id)
);
