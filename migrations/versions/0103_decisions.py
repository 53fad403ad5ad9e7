"""What a second person answers is one table: proposals, offers and requests for access become decisions."""

from alembic import op

revision = "0103"
down_revision = "0102"

TABLE = """
CREATE TABLE decisions (
    id uuid NOT NULL,
    kind text NOT NULL,
    dataset_id uuid NOT NULL,
    job_id uuid,
    asked jsonb NOT NULL,
    basis_seq bigint,
    reason text NOT NULL,
    state text DEFAULT 'open' NOT NULL,
    asked_by uuid NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamptz,
    answered_by uuid,
    answered_at timestamptz,
    answer text,
    entry_seq bigint,
    made_job uuid,
    made_decision uuid,
    CONSTRAINT ck_decisions_kind CHECK (kind IN ('offer','allowance','correction','policy','access')),
    CONSTRAINT ck_decisions_state CHECK (state IN ('open','accepted','refused','withdrawn','expired')),
    CONSTRAINT ck_decisions_job CHECK ((kind IN ('offer','correction')) = (job_id IS NOT NULL)),
    CONSTRAINT ck_decisions_basis CHECK ((kind IN ('allowance','correction')) = (basis_seq IS NOT NULL)),
    CONSTRAINT ck_decisions_answered CHECK ((state IN ('open','expired')) = (answered_by IS NULL)),
    CONSTRAINT ck_decisions_two_people CHECK (
        state <> 'accepted' OR kind = 'offer' OR answered_by <> asked_by),
    CONSTRAINT ck_decisions_entry CHECK (
        (state = 'accepted' AND kind IN ('allowance','correction')) = (entry_seq IS NOT NULL)),
    CONSTRAINT ck_decisions_made_job CHECK ((state = 'accepted' AND kind = 'offer') = (made_job IS NOT NULL)),
    CONSTRAINT pk_decisions PRIMARY KEY (id),
    CONSTRAINT fk_decisions_answered_by FOREIGN KEY (answered_by) REFERENCES users(id),
    CONSTRAINT fk_decisions_asked_by FOREIGN KEY (asked_by) REFERENCES users(id),
    CONSTRAINT fk_decisions_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id),
    CONSTRAINT fk_decisions_job_id FOREIGN KEY (job_id) REFERENCES jobs(id),
    CONSTRAINT fk_decisions_made_decision FOREIGN KEY (made_decision) REFERENCES decisions(id),
    CONSTRAINT fk_decisions_made_job FOREIGN KEY (made_job) REFERENCES jobs(id)
);
CREATE INDEX ix_decisions_open ON decisions (created_at, id) WHERE (state = 'open');
CREATE INDEX ix_decisions_asked_by ON decisions (asked_by, created_at);
CREATE UNIQUE INDEX uq_decisions_access ON decisions (dataset_id, asked_by)
    WHERE (kind = 'access' AND state = 'open');
CREATE UNIQUE INDEX uq_decisions_offer ON decisions (job_id) WHERE (kind = 'offer');
"""

ROWS = """
INSERT INTO decisions (id, kind, dataset_id, job_id, asked, basis_seq, reason, state, asked_by, created_at,
    expires_at, answered_by, answered_at, answer, entry_seq)
SELECT id, kind, dataset_id, job_id, asked, basis_seq, reason,
    CASE state WHEN 'confirmed' THEN 'accepted' ELSE state END, proposed_by, created_at,
    expires_at, decided_by, decided_at, decision_reason, entry_seq
FROM proposals;

INSERT INTO decisions (id, kind, dataset_id, job_id, asked, reason, state, asked_by, created_at, expires_at,
    answered_by, answered_at, answer, made_job)
SELECT o.id, 'offer', j.dataset_id, o.job_id,
    jsonb_build_object('parameters', o.parameters, 'terms', o.terms, 'epsilon_alone', o.epsilon_alone,
        'breakdown', o.breakdown),
    o.reason, CASE o.state WHEN 'declined' THEN 'refused' ELSE o.state END, o.offered_by, o.created_at,
    o.expires_at, o.decided_by, o.decided_at, o.decision_reason, o.accepted_job_id
FROM offers o JOIN jobs j ON j.id = o.job_id;

INSERT INTO decisions (id, kind, dataset_id, asked, reason, state, asked_by, created_at, answered_by,
    answered_at, answer)
SELECT id, 'access', dataset_id, '{}', reason, CASE state WHEN 'granted' THEN 'accepted' ELSE state END,
    person_id, created_at, decided_by, decided_at, answer
FROM access_requests;

DROP TABLE proposals, offers, access_requests;
DROP FUNCTION hook_proposal();
"""

NOTICES = """
CREATE FUNCTION hook_decision() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce('decision.' || NEW.state, NULL, jsonb_build_object(
            'decision', NEW.id, 'kind', NEW.kind, 'dataset', d.name, 'job', NEW.job_id, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hook_new_decision AFTER INSERT ON decisions FOR EACH ROW EXECUTE FUNCTION hook_decision();
CREATE TRIGGER hook_decision AFTER UPDATE ON decisions FOR EACH ROW
    WHEN ((old.state IS DISTINCT FROM new.state)) EXECUTE FUNCTION hook_decision();

-- A refusal was told as a withdrawal.
UPDATE hooks SET events = events || ARRAY['decision.refused'] WHERE 'proposal.withdrawn' = ANY (events);
UPDATE hooks SET events = ARRAY(
    SELECT CASE event WHEN 'proposal.confirmed' THEN 'decision.accepted'
        ELSE regexp_replace(event, '^proposal[.]', 'decision.') END
    FROM unnest(events) WITH ORDINALITY AS named(event, place) ORDER BY place);
UPDATE hook_deliveries SET
    event = CASE event WHEN 'proposal.confirmed' THEN 'decision.accepted'
        ELSE regexp_replace(event, '^proposal[.]', 'decision.') END,
    facts = facts - 'proposal' || jsonb_build_object('decision', facts -> 'proposal', 'state',
        CASE facts ->> 'state' WHEN 'confirmed' THEN 'accepted' ELSE facts ->> 'state' END)
WHERE event LIKE 'proposal.%';
"""


def upgrade() -> None:
    connection = op.get_bind()
    for statements in (TABLE, ROWS, NOTICES):
        # As it stands: neither ":name" nor "%" in it is a parameter.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
