CREATE TABLE standings (
    dataset_id uuid NOT NULL,
    seq bigint NOT NULL,
    account jsonb NOT NULL,
    CONSTRAINT pk_standings PRIMARY KEY (dataset_id, seq),
    CONSTRAINT fk_standings_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id)
);

CREATE TRIGGER standings_rows BEFORE DELETE OR UPDATE ON standings FOR EACH ROW
    EXECUTE FUNCTION rows_are_append_only();
CREATE TRIGGER standings_truncate BEFORE TRUNCATE ON standings FOR EACH STATEMENT
    EXECUTE FUNCTION rows_are_append_only();
