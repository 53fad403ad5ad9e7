CREATE TABLE signing_keys (
    id text CONSTRAINT pk_signing_keys PRIMARY KEY,
    introduced_by text NOT NULL CONSTRAINT uq_signing_keys_introduced_by UNIQUE,
    introduced_at timestamptz NOT NULL,
    document jsonb NOT NULL
);

CREATE TRIGGER signing_keys_rows BEFORE DELETE OR UPDATE ON signing_keys FOR EACH ROW
    EXECUTE FUNCTION rows_are_append_only();
CREATE TRIGGER signing_keys_truncate BEFORE TRUNCATE ON signing_keys FOR EACH STATEMENT
    EXECUTE FUNCTION rows_are_append_only();
