CREATE TABLE comments (
    id uuid CONSTRAINT pk_comments PRIMARY KEY,
    job_id uuid NOT NULL CONSTRAINT fk_comments_job_id REFERENCES jobs,
    author_id uuid NOT NULL CONSTRAINT fk_comments_author_id REFERENCES users,
    kind text NOT NULL CONSTRAINT ck_comments_kind CHECK (kind IN ('comment', 'question', 'answer')),
    text text NOT NULL CONSTRAINT ck_comments_text CHECK (length(text) >= 1 AND length(text) <= 2000),
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL
);
CREATE INDEX ix_comments_job_id ON comments (job_id, created_at, id);

CREATE FUNCTION hook_comment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- That somebody asked, not what: people's words stay here.
    IF NEW.kind <> 'comment' AND EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce(
            CASE NEW.kind WHEN 'question' THEN 'job.asked_back' ELSE 'job.answered' END, j.analyst_id,
            jsonb_build_object('job', j.id, 'dataset', d.name, 'mechanism', j.mechanism, 'analyst', u.name,
                'state', j.state))
        FROM jobs j JOIN datasets d ON d.id = j.dataset_id JOIN users u ON u.id = j.analyst_id
        WHERE j.id = NEW.job_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hook_comment AFTER INSERT ON comments FOR EACH ROW EXECUTE FUNCTION hook_comment();
