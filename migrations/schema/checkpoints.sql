CREATE TABLE checkpoints (
    dataset_id uuid NOT NULL CONSTRAINT fk_checkpoints_dataset_id REFERENCES datasets,
    seq bigint NOT NULL CONSTRAINT ck_checkpoints_seq CHECK (seq >= 0),
    key_id text NOT NULL CONSTRAINT fk_checkpoints_key_id REFERENCES signing_keys,
    at timestamptz NOT NULL,
    document text NOT NULL,
    CONSTRAINT pk_checkpoints PRIMARY KEY (dataset_id, seq, key_id)
);
CREATE INDEX ix_checkpoints_at ON checkpoints (at, dataset_id, seq, key_id);

CREATE FUNCTION hook_checkpoint() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce('checkpoint.made', NULL,
            jsonb_build_object('dataset', d.name, 'entry', NEW.seq, 'key', NEW.key_id))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER checkpoints_rows BEFORE DELETE OR UPDATE ON checkpoints FOR EACH ROW
    EXECUTE FUNCTION rows_are_append_only();
CREATE TRIGGER checkpoints_truncate BEFORE TRUNCATE ON checkpoints FOR EACH STATEMENT
    EXECUTE FUNCTION rows_are_append_only();
CREATE TRIGGER hook_checkpoint AFTER INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION hook_checkpoint();
