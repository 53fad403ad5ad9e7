-- Accounts, jobs, the ledger's entries, checkpoints, proposals and offers.

CREATE TABLE accounts (
    dataset_id uuid CONSTRAINT pk_accounts PRIMARY KEY CONSTRAINT fk_accounts_dataset_id REFERENCES datasets,
    epsilon numeric(38), delta numeric(38),
    renyi_share text, renyi_order text, renyi_limit numeric(38) NOT NULL DEFAULT '0',
    renyi_spent numeric(38) NOT NULL DEFAULT '0', renyi_reserved numeric(38) NOT NULL DEFAULT '0',
    renyi_closed integer NOT NULL DEFAULT 0,
    gaussian_share text, gaussian_order text, gaussian_limit numeric(38) NOT NULL DEFAULT '0',
    gaussian_spent numeric(38) NOT NULL DEFAULT '0', gaussian_reserved numeric(38) NOT NULL DEFAULT '0',
    gaussian_closed integer NOT NULL DEFAULT 0,
    renyi2_share text, renyi2_order text, renyi2_limit numeric(38) NOT NULL DEFAULT '0',
    renyi2_spent numeric(38) NOT NULL DEFAULT '0', renyi2_reserved numeric(38) NOT NULL DEFAULT '0',
    renyi2_closed integer NOT NULL DEFAULT 0,
    basic_share text, basic_order text, basic_limit numeric(38) NOT NULL DEFAULT '0',
    basic_spent numeric(38) NOT NULL DEFAULT '0', basic_reserved numeric(38) NOT NULL DEFAULT '0',
    basic_closed integer NOT NULL DEFAULT 0,
    basic_delta_limit numeric(38) NOT NULL DEFAULT '0', basic_delta_spent numeric(38) NOT NULL DEFAULT '0',
    basic_delta_reserved numeric(38) NOT NULL DEFAULT '0', basic_step_delta numeric(38) NOT NULL DEFAULT '0',
    ex_post_limit numeric(38) NOT NULL DEFAULT '0', ex_post_spent numeric(38) NOT NULL DEFAULT '0',
    ex_post_reserved numeric(38) NOT NULL DEFAULT '0',
    secret_limit numeric(38) NOT NULL DEFAULT '0', secret_spent numeric(38) NOT NULL DEFAULT '0',
    secret_reserved numeric(38) NOT NULL DEFAULT '0',
    ex_post_settlement text NOT NULL DEFAULT 'planned',
    secret jsonb, secret_jobs integer NOT NULL DEFAULT 0,
    largest_epsilon numeric(38) NOT NULL DEFAULT '0', largest_delta numeric(38) NOT NULL DEFAULT '0',
    largest_bound double precision NOT NULL DEFAULT '0',
    raises_after_release integer NOT NULL DEFAULT 0, job_count integer NOT NULL DEFAULT 0,
    ex_post_job_count integer NOT NULL DEFAULT 0,
    secret_job_count integer NOT NULL DEFAULT 0,
    failure_count integer NOT NULL DEFAULT 0, overdrawn boolean NOT NULL DEFAULT false,
    chain_seq bigint NOT NULL DEFAULT '0', chain_head text NOT NULL,
    CONSTRAINT ck_accounts_not_negative
        CHECK (renyi_limit >= 0 AND renyi_spent >= 0 AND renyi_reserved >= 0 AND renyi_closed >= 0
        AND gaussian_limit >= 0 AND gaussian_spent >= 0 AND gaussian_reserved >= 0 AND gaussian_closed >= 0
        AND renyi2_limit >= 0 AND renyi2_spent >= 0 AND renyi2_reserved >= 0 AND renyi2_closed >= 0
        AND basic_limit >= 0 AND basic_spent >= 0 AND basic_reserved >= 0 AND basic_closed >= 0
        AND basic_delta_limit >= 0 AND basic_delta_spent >= 0 AND basic_delta_reserved >= 0),
    CONSTRAINT ck_accounts_others_not_negative
        CHECK (basic_step_delta >= 0
        AND ex_post_limit >= 0 AND ex_post_spent >= 0 AND ex_post_reserved >= 0
        AND secret_limit >= 0 AND secret_spent >= 0 AND secret_reserved >= 0 AND secret_jobs >= 0
        AND largest_epsilon >= 0 AND largest_delta >= 0 AND raises_after_release >= 0
        AND job_count >= 0 AND ex_post_job_count >= 0 AND secret_job_count >= 0 AND failure_count >= 0),
    CONSTRAINT ck_accounts_a_filter_holds
        CHECK (overdrawn
        OR (renyi_closed = 0 AND renyi_spent + renyi_reserved <= renyi_limit)
        OR (gaussian_closed = 0 AND gaussian_spent + gaussian_reserved <= gaussian_limit)
        OR (renyi2_closed = 0 AND renyi2_spent + renyi2_reserved <= renyi2_limit)
        OR (basic_closed = 0 AND basic_spent + basic_reserved <= basic_limit
            AND basic_delta_spent + basic_delta_reserved <= basic_delta_limit)),
    CONSTRAINT ck_accounts_ex_post_settlement CHECK (ex_post_settlement IN ('planned','realized')),
    CONSTRAINT ck_accounts_ex_post_fits
        CHECK (overdrawn OR ex_post_settlement = 'realized'
        OR ex_post_spent + ex_post_reserved <= ex_post_limit),
    CONSTRAINT ck_accounts_secret_fits CHECK (overdrawn OR secret_spent + secret_reserved <= secret_limit),
    CONSTRAINT ck_accounts_no_secret CHECK (secret IS NOT NULL OR (secret_limit = 0 AND secret_jobs = 0)),
    CONSTRAINT ck_accounts_secret_kind CHECK (secret IS NULL OR secret ->> 'kind' IN ('one','many')),
    CONSTRAINT ck_accounts_one_secret_job
        CHECK (overdrawn OR secret IS NULL OR secret ->> 'kind' <> 'one' OR secret_jobs <= 1)
);

CREATE TABLE usage (
    dataset_id uuid NOT NULL CONSTRAINT fk_usage_dataset_id REFERENCES datasets,
    kind text NOT NULL,
    holder text NOT NULL,
    spent numeric(38) NOT NULL DEFAULT '0',
    reserved numeric(38) NOT NULL DEFAULT '0',
    cap numeric(38),
    CONSTRAINT pk_usage PRIMARY KEY (dataset_id, kind, holder),
    CONSTRAINT ck_usage_kind CHECK (kind IN ('analyst','project')),
    CONSTRAINT ck_usage_not_negative CHECK (spent >= 0 AND reserved >= 0),
    CONSTRAINT ck_usage_fits CHECK (cap IS NULL OR spent + reserved <= cap)
);

CREATE TABLE jobs (
    id uuid CONSTRAINT pk_jobs PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_jobs_dataset_id REFERENCES datasets,
    version_id uuid NOT NULL CONSTRAINT fk_jobs_version_id REFERENCES dataset_versions,
    model_id uuid CONSTRAINT fk_jobs_model_id REFERENCES models,
    analyst_id uuid NOT NULL CONSTRAINT fk_jobs_analyst_id REFERENCES users,
    mechanism text NOT NULL,
    parameters jsonb NOT NULL,
    terms jsonb NOT NULL,
    resources jsonb NOT NULL DEFAULT '{}',
    event jsonb,
    epsilon_alone double precision,
    breakdown jsonb NOT NULL,
    purpose text NOT NULL,
    project text,
    idempotency_key text,
    request_sha256 text NOT NULL,
    state text NOT NULL,
    refusal jsonb,
    decided_by uuid CONSTRAINT fk_jobs_decided_by REFERENCES users,
    decision_reason text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    approval_expires timestamptz,
    decided_at timestamptz,
    queued_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    reading_began_at timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    output_uri text,
    output_sha256 text,
    failure text,
    source_job_id uuid CONSTRAINT fk_jobs_source_job_id REFERENCES jobs,
    CONSTRAINT uq_jobs_analyst_id_idempotency_key UNIQUE (analyst_id, idempotency_key),
    CONSTRAINT ck_jobs_state
        CHECK (state IN ('submitted','awaiting_approval','refused','expired','queued','running','settling',
        'succeeded','failed','cancelled')),
    CONSTRAINT ck_jobs_event CHECK ((event IS NULL) = (epsilon_alone IS NULL)),
    CONSTRAINT ck_jobs_refusal CHECK ((state = 'refused') = (refusal IS NOT NULL)),
    CONSTRAINT ck_jobs_output CHECK ((state = 'succeeded') = (output_uri IS NOT NULL)),
    CONSTRAINT ck_jobs_reads_no_records CHECK (source_job_id IS NULL OR reading_began_at IS NULL)
);
CREATE INDEX ix_jobs_analyst_id_jobs_created_at ON jobs (analyst_id, created_at);
CREATE INDEX ix_jobs_approval_expires ON jobs (approval_expires) WHERE state = 'awaiting_approval';
CREATE INDEX ix_jobs_created_at ON jobs (created_at, id);
CREATE INDEX ix_jobs_dataset_id_jobs_created_at ON jobs (dataset_id, created_at);
CREATE INDEX ix_jobs_decided_at ON jobs (decided_at, id, dataset_id) WHERE decided_by IS NOT NULL;
CREATE INDEX ix_jobs_decided_by ON jobs (decided_by, decided_at) WHERE decided_by IS NOT NULL;
CREATE INDEX ix_jobs_live ON jobs (state) WHERE state IN ('queued','running','settling');
CREATE INDEX ix_jobs_mechanism ON jobs (mechanism, created_at);
CREATE INDEX ix_jobs_refused ON jobs (finished_at, id, dataset_id, analyst_id) WHERE state = 'refused';
CREATE INDEX ix_jobs_state ON jobs (state, created_at);

CREATE TABLE parts (
    job_id uuid NOT NULL CONSTRAINT fk_parts_job_id REFERENCES jobs,
    number integer NOT NULL,
    state text NOT NULL,
    attempt integer NOT NULL,
    lease_token uuid,
    lease_expires timestamptz,
    worker text,
    progress_done bigint NOT NULL DEFAULT '0',
    progress_total bigint NOT NULL DEFAULT '0',
    staged_uri text,
    staged_sha256 text,
    realized jsonb,
    realized_ex_post numeric(38),
    ex_post_curve jsonb,
    CONSTRAINT pk_parts PRIMARY KEY (job_id, number),
    CONSTRAINT ck_parts_number CHECK (number >= 0),
    CONSTRAINT ck_parts_state CHECK (state IN ('queued','running','done','stopped')),
    CONSTRAINT ck_parts_lease CHECK ((state = 'running') = (lease_token IS NOT NULL)),
    CONSTRAINT ck_parts_expiry CHECK ((lease_token IS NULL) = (lease_expires IS NULL))
);
CREATE INDEX ix_parts_live ON parts (state) WHERE state IN ('queued','running');

CREATE TABLE realized_ex_post (
    job_id uuid CONSTRAINT pk_realized_ex_post PRIMARY KEY
        CONSTRAINT fk_realized_ex_post_job_id REFERENCES jobs,
    amount numeric(38) NOT NULL,
    curve jsonb,
    CONSTRAINT ck_realized_ex_post_not_negative CHECK (amount >= 0)
);

CREATE TABLE artifacts (
    job_id uuid NOT NULL CONSTRAINT fk_artifacts_job_id REFERENCES jobs,
    name text NOT NULL,
    kind text NOT NULL,
    media_type text NOT NULL,
    sha256 text NOT NULL,
    size bigint NOT NULL,
    uri text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_artifacts PRIMARY KEY (job_id, name),
    CONSTRAINT ck_artifacts_size CHECK (size >= 0),
    CONSTRAINT ck_artifacts_sha256 CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT ck_artifacts_media_type
        CHECK (media_type IN ('application/json','application/x-safetensors','text/html'))
);
CREATE INDEX ix_artifacts_sha256 ON artifacts (sha256);

CREATE TABLE entries (
    dataset_id uuid NOT NULL CONSTRAINT fk_entries_dataset_id REFERENCES datasets,
    seq bigint NOT NULL,
    kind text NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    job_id uuid CONSTRAINT fk_entries_job_id REFERENCES jobs,
    document text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT pk_entries PRIMARY KEY (dataset_id, seq),
    CONSTRAINT uq_entries_dataset_id_previous UNIQUE (dataset_id, previous),
    CONSTRAINT ck_entries_kind CHECK (kind IN ('ALLOW','RESERVE','COMMIT','VOID','REVERSAL')),
    CONSTRAINT ck_entries_job CHECK ((kind = 'ALLOW') = (job_id IS NULL)),
    CONSTRAINT ck_entries_seq CHECK (seq >= 1)
);
CREATE INDEX ix_entries_actor ON entries (actor, at, dataset_id, seq, kind);
CREATE INDEX ix_entries_allow ON entries (dataset_id, seq) WHERE kind = 'ALLOW';
CREATE INDEX ix_entries_at ON entries (at, dataset_id, seq, kind);
CREATE INDEX ix_entries_job_id ON entries (job_id, seq);
CREATE INDEX ix_entries_rare ON entries (kind, at, dataset_id, seq) WHERE kind IN ('ALLOW','VOID','REVERSAL');
CREATE UNIQUE INDEX uq_entries_reserved_once ON entries (job_id) WHERE kind = 'RESERVE';
CREATE UNIQUE INDEX uq_entries_resolved_once ON entries (job_id) WHERE kind IN ('COMMIT','VOID');

CREATE TABLE standings (
    dataset_id uuid NOT NULL CONSTRAINT fk_standings_dataset_id REFERENCES datasets,
    seq bigint NOT NULL,
    account jsonb NOT NULL,
    CONSTRAINT pk_standings PRIMARY KEY (dataset_id, seq)
);

CREATE TABLE signing_keys (
    id text CONSTRAINT pk_signing_keys PRIMARY KEY,
    introduced_by text NOT NULL CONSTRAINT uq_signing_keys_introduced_by UNIQUE,
    introduced_at timestamptz NOT NULL,
    document jsonb NOT NULL
);

CREATE TABLE checkpoints (
    dataset_id uuid NOT NULL CONSTRAINT fk_checkpoints_dataset_id REFERENCES datasets,
    seq bigint NOT NULL,
    key_id text NOT NULL CONSTRAINT fk_checkpoints_key_id REFERENCES signing_keys,
    at timestamptz NOT NULL,
    document text NOT NULL,
    CONSTRAINT pk_checkpoints PRIMARY KEY (dataset_id, seq, key_id),
    CONSTRAINT ck_checkpoints_seq CHECK (seq >= 0)
);
CREATE INDEX ix_checkpoints_at ON checkpoints (at, dataset_id, seq, key_id);

CREATE TABLE spending (
    dataset_id uuid NOT NULL CONSTRAINT fk_spending_dataset_id REFERENCES datasets,
    day date NOT NULL,
    analyst_id uuid NOT NULL CONSTRAINT fk_spending_analyst_id REFERENCES users,
    mechanism text NOT NULL,
    renyi numeric(38) NOT NULL DEFAULT '0',
    gaussian numeric(38) NOT NULL DEFAULT '0',
    renyi2 numeric(38) NOT NULL DEFAULT '0',
    basic numeric(38) NOT NULL DEFAULT '0',
    basic_delta numeric(38) NOT NULL DEFAULT '0',
    ex_post numeric(38) NOT NULL DEFAULT '0',
    secret numeric(38) NOT NULL DEFAULT '0',
    jobs integer NOT NULL DEFAULT 0,
    CONSTRAINT pk_spending PRIMARY KEY (dataset_id, day, analyst_id, mechanism)
);

CREATE TABLE spending_marks (
    dataset_id uuid CONSTRAINT pk_spending_marks PRIMARY KEY
        CONSTRAINT fk_spending_marks_dataset_id REFERENCES datasets,
    through bigint NOT NULL DEFAULT '0',
    CONSTRAINT ck_spending_marks_through CHECK (through >= 0)
);

CREATE TABLE proposals (
    id uuid CONSTRAINT pk_proposals PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_proposals_dataset_id REFERENCES datasets,
    kind text NOT NULL,
    job_id uuid CONSTRAINT fk_proposals_job_id REFERENCES jobs,
    asked jsonb NOT NULL,
    basis_seq bigint,
    reason text NOT NULL,
    state text NOT NULL DEFAULT 'open',
    proposed_by uuid NOT NULL CONSTRAINT fk_proposals_proposed_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    decided_by uuid CONSTRAINT fk_proposals_decided_by REFERENCES users,
    decided_at timestamptz,
    decision_reason text,
    entry_seq bigint,
    CONSTRAINT ck_proposals_kind CHECK (kind IN ('allowance','correction','policy')),
    CONSTRAINT ck_proposals_job CHECK ((kind = 'correction') = (job_id IS NOT NULL)),
    CONSTRAINT ck_proposals_state CHECK (state IN ('open','confirmed','withdrawn','expired')),
    CONSTRAINT ck_proposals_basis CHECK ((kind = 'policy') = (basis_seq IS NULL)),
    CONSTRAINT ck_proposals_entry
        CHECK ((state = 'confirmed' AND kind <> 'policy') = (entry_seq IS NOT NULL)),
    CONSTRAINT ck_proposals_two_people CHECK (state <> 'confirmed' OR decided_by <> proposed_by)
);
CREATE INDEX ix_proposals_open ON proposals (expires_at) WHERE state = 'open';

CREATE TABLE offers (
    id uuid CONSTRAINT pk_offers PRIMARY KEY,
    job_id uuid NOT NULL CONSTRAINT uq_offers_job_id UNIQUE CONSTRAINT fk_offers_job_id REFERENCES jobs,
    parameters jsonb NOT NULL,
    terms jsonb NOT NULL,
    epsilon_alone double precision,
    breakdown jsonb NOT NULL,
    reason text NOT NULL,
    state text NOT NULL DEFAULT 'open',
    offered_by uuid NOT NULL CONSTRAINT fk_offers_offered_by REFERENCES users,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    decided_by uuid CONSTRAINT fk_offers_decided_by REFERENCES users,
    decided_at timestamptz,
    decision_reason text,
    accepted_job_id uuid CONSTRAINT fk_offers_accepted_job_id REFERENCES jobs,
    CONSTRAINT ck_offers_state CHECK (state IN ('open','accepted','declined','withdrawn','expired')),
    CONSTRAINT ck_offers_job CHECK ((state = 'accepted') = (accepted_job_id IS NOT NULL))
);
CREATE INDEX ix_offers_open ON offers (expires_at) WHERE state = 'open';

CREATE TABLE outbox (
    id bigint GENERATED BY DEFAULT AS IDENTITY CONSTRAINT pk_outbox PRIMARY KEY,
    task text NOT NULL,
    subject uuid NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    part integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at timestamptz,
    CONSTRAINT ck_outbox_task
        CHECK (task IN ('generate','probe','check_dataset','check_model','check_corpus'))
);
CREATE INDEX ix_outbox_subject ON outbox (subject, id);
CREATE INDEX ix_outbox_unsent ON outbox (id) WHERE sent_at IS NULL;

-- Entries are append-only for everybody, the owner included: rows by one trigger, TRUNCATE by another.
CREATE FUNCTION entries_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger entries are append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER entries_rows BEFORE UPDATE OR DELETE ON entries
    FOR EACH ROW EXECUTE FUNCTION entries_are_append_only();
CREATE TRIGGER entries_truncate BEFORE TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION entries_are_append_only();

CREATE FUNCTION rows_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;
DO $$
DECLARE kept text;
BEGIN
    FOREACH kept IN ARRAY ARRAY['signing_keys','checkpoints','standings','activity','sign_ins'] LOOP
        EXECUTE format('CREATE TRIGGER %1$I BEFORE UPDATE OR DELETE ON %2$I '
            'FOR EACH ROW EXECUTE FUNCTION rows_are_append_only()', kept || '_rows', kept);
        EXECUTE format('CREATE TRIGGER %1$I BEFORE TRUNCATE ON %2$I '
            'FOR EACH STATEMENT EXECUTE FUNCTION rows_are_append_only()', kept || '_truncate', kept);
    END LOOP;
END $$;

-- Keeps a row of standings when an account passes a multiple of 256 entries. As the owner: the application
-- may not write what its pages then show as what stood.
CREATE FUNCTION keep_standing() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO standings VALUES (NEW.dataset_id, NEW.chain_seq, to_jsonb(NEW)) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER accounts_standing AFTER UPDATE ON accounts FOR EACH ROW
    WHEN (NEW.chain_seq / 256 > OLD.chain_seq / 256) EXECUTE FUNCTION keep_standing();
