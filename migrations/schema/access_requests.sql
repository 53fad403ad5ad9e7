CREATE TABLE access_requests (
    id uuid NOT NULL,
    dataset_id uuid NOT NULL,
    person_id uuid NOT NULL,
    reason text NOT NULL,
    state text DEFAULT 'open' NOT NULL,
    answer text,
    decided_by uuid,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    decided_at timestamptz,
    CONSTRAINT ck_access_requests_decided CHECK ((((state = 'open') = (decided_by IS NULL))
        AND ((state = 'open') = (answer IS NULL)))),
    CONSTRAINT ck_access_requests_reason CHECK (((length(reason) >= 1) AND (length(reason) <= 2000))),
    CONSTRAINT ck_access_requests_state CHECK ((state = ANY (ARRAY['open', 'granted', 'refused']))),
    CONSTRAINT pk_access_requests PRIMARY KEY (id),
    CONSTRAINT fk_access_requests_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id),
    CONSTRAINT fk_access_requests_decided_by FOREIGN KEY (decided_by) REFERENCES users(id),
    CONSTRAINT fk_access_requests_person_id FOREIGN KEY (person_id) REFERENCES users(id)
);
CREATE INDEX ix_access_requests_person ON access_requests (person_id, created_at);
CREATE UNIQUE INDEX uq_access_requests_open ON access_requests (dataset_id, person_id)
    WHERE (state = 'open');
