CREATE TABLE standings (
    dataset_id uuid NOT NULL CONSTRAINT fk_standings_dataset_id REFERENCES datasets,
    seq bigint NOT NULL,
    account jsonb NOT NULL,
    CONSTRAINT pk_standings PRIMARY KEY (dataset_id, seq)
);

CREATE TRIGGER standings_rows BEFORE DELETE OR UPDATE ON standings FOR EACH ROW
    EXECUTE FUNCTION rows_are_append_only();
CREATE TRIGGER standings_truncate BEFORE TRUNCATE ON standings FOR EACH STATEMENT
    EXECUTE FUNCTION rows_are_append_only();
