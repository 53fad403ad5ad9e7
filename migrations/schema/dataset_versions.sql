CREATE TABLE dataset_versions (
    id uuid CONSTRAINT pk_dataset_versions PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_dataset_versions_dataset_id REFERENCES datasets,
    number integer NOT NULL,
    uri text,
    text_template text NOT NULL,
    unit_column text,
    label_column text,
    state text NOT NULL CONSTRAINT ck_dataset_versions_state CHECK (state IN ('checking', 'ready', 'invalid')),
    error text,
    created_by uuid NOT NULL CONSTRAINT fk_dataset_versions_created_by REFERENCES users,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    group_column text,
    secret_column text,
    shared_with jsonb,
    data jsonb,
    -- Data that never comes here has no address, and no files.
    CONSTRAINT ck_dataset_versions_no_data CHECK (uri IS NOT NULL OR state = 'ready' AND data IS NULL),
    CONSTRAINT uq_dataset_versions_dataset_id_number UNIQUE (dataset_id, number)
);

CREATE FUNCTION hook_version() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce('version.' || NEW.state, NULL,
            jsonb_build_object('dataset', d.name, 'version', NEW.number, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hook_version AFTER UPDATE ON dataset_versions FOR EACH ROW
    WHEN (old.state IS DISTINCT FROM new.state) EXECUTE FUNCTION hook_version();
