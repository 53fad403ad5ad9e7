CREATE TABLE dataset_versions (
    id uuid NOT NULL,
    dataset_id uuid NOT NULL,
    number integer NOT NULL,
    uri text NOT NULL,
    text_template text NOT NULL,
    unit_column text,
    label_column text,
    state text NOT NULL,
    error text,
    created_by uuid NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    group_column text,
    secret_column text,
    shared_with jsonb,
    data jsonb,
    CONSTRAINT ck_dataset_versions_state CHECK ((state = ANY (ARRAY['checking', 'ready', 'invalid']))),
    CONSTRAINT pk_dataset_versions PRIMARY KEY (id),
    CONSTRAINT uq_dataset_versions_dataset_id_number UNIQUE (dataset_id, number),
    CONSTRAINT fk_dataset_versions_created_by FOREIGN KEY (created_by) REFERENCES users(id),
    CONSTRAINT fk_dataset_versions_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id)
);

CREATE FUNCTION hook_version() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce('version.' || NEW.state, NULL,
            jsonb_build_object('dataset', d.name, 'version', NEW.number, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hook_version AFTER UPDATE ON dataset_versions FOR EACH ROW
    WHEN ((old.state IS DISTINCT FROM new.state)) EXECUTE FUNCTION hook_version();
