CREATE TABLE corpora (
    id uuid CONSTRAINT pk_corpora PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_corpora_name UNIQUE,
    uri text NOT NULL,
    text_template text NOT NULL,
    label_column text,
    declaration text NOT NULL CONSTRAINT ck_corpora_declaration CHECK (declaration IN ('public', 'consented')),
    statement text NOT NULL,
    state text NOT NULL CONSTRAINT ck_corpora_state CHECK (state IN ('checking', 'ready', 'invalid')),
    error text,
    facts jsonb,
    created_by uuid NOT NULL CONSTRAINT fk_corpora_created_by REFERENCES users,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    shared_with jsonb,
    CONSTRAINT ck_corpora_facts_when_ready CHECK ((state = 'ready') = (facts IS NOT NULL))
);

-- A corpus is ready when the worker that looks at data says so, and nobody else.
CREATE FUNCTION guard_corpus() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() = 'web' AND NEW.state <> 'checking' THEN
        PERFORM refuse_act('nobody has looked at the corpus yet');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER corpora_look AFTER INSERT ON corpora FOR EACH ROW EXECUTE FUNCTION guard_corpus();
