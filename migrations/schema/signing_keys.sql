CREATE TABLE signing_keys (
    id text NOT NULL,
    introduced_by text NOT NULL,
    introduced_at timestamptz NOT NULL,
    document jsonb NOT NULL,
    CONSTRAINT pk_signing_keys PRIMARY KEY (id),
    CONSTRAINT uq_signing_keys_introduced_by UNIQUE (introduced_by)
);

CREATE TRIGGER signing_keys_rows BEFORE DELETE OR UPDATE ON signing_keys FOR EACH ROW
    EXECUTE FUNCTION rows_are_append_only();
CREATE TRIGGER signing_keys_truncate BEFORE TRUNCATE ON signing_keys FOR EACH STATEMENT
    EXECUTE FUNCTION rows_are_append_only();
