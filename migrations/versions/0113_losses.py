"""Two people say in the ledger that entries are lost: the entry LOSS, and the decision before it.

Only the owner of the tables posts one (`guard_account` knows no other charge without a job), and
asks for one: the command that settles a loss.
"""

from alembic import op

revision = "0113"
down_revision = "0112"

ROWS = """
ALTER TABLE entries DROP CONSTRAINT ck_entries_kind, DROP CONSTRAINT ck_entries_job;
ALTER TABLE entries ADD CONSTRAINT ck_entries_kind CHECK (
        kind IN ('ALLOW','RESERVE','COMMIT','VOID','REVERSAL','REGISTER','POLICY','LOSS')),
    ADD CONSTRAINT ck_entries_job CHECK (
        (kind IN ('ALLOW','REGISTER','POLICY','LOSS')) = (job_id IS NULL));
DROP INDEX ix_entries_rare;
CREATE INDEX ix_entries_rare ON entries (kind, at, dataset_id, seq)
    WHERE (kind IN ('ALLOW','VOID','REVERSAL','REGISTER','POLICY','LOSS'));

ALTER TABLE decisions DROP CONSTRAINT ck_decisions_kind, DROP CONSTRAINT ck_decisions_entry;
ALTER TABLE decisions ADD CONSTRAINT ck_decisions_kind CHECK (
        kind IN ('offer','allowance','correction','policy','access','loss')),
    ADD CONSTRAINT ck_decisions_entry CHECK (
        (state = 'accepted' AND kind IN ('allowance','correction','loss')) = (entry_seq IS NOT NULL));
CREATE UNIQUE INDEX uq_decisions_loss ON decisions (dataset_id) WHERE (kind = 'loss' AND state = 'open');

ALTER TABLE accounts ADD COLUMN loss_count integer DEFAULT 0 NOT NULL,
    ADD CONSTRAINT ck_accounts_loss_count CHECK (loss_count >= 0);
ALTER TABLE standings DISABLE TRIGGER USER;
UPDATE standings SET account = account || '{"loss_count": 0}';
ALTER TABLE standings ENABLE TRIGGER USER;
"""

GUARDS = """
CREATE FUNCTION guard_loss() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF calling_process() <> 'owner' THEN
        PERFORM refuse_act('that entries are lost is said by two people, to the command that settles it');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER accounts_loss AFTER UPDATE ON accounts FOR EACH ROW
    WHEN ((new.loss_count IS DISTINCT FROM old.loss_count)) EXECUTE FUNCTION guard_loss();
CREATE TRIGGER decisions_loss AFTER INSERT OR UPDATE ON decisions FOR EACH ROW
    WHEN ((new.kind = 'loss' AND new.state IN ('open','accepted'))) EXECUTE FUNCTION guard_loss();
"""


def upgrade() -> None:
    connection = op.get_bind()
    for statements in (ROWS, GUARDS):
        # As it stands: neither ":name" nor "%" in it is a parameter.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
