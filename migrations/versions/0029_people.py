"""Owners of datasets hear of them alone; who shares data with whom is kept for the owners concerned."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_ANNOUNCE = """
CREATE OR REPLACE FUNCTION hook_announce(event text, analyst uuid, facts jsonb) RETURNS void LANGUAGE sql AS $$
    INSERT INTO hook_deliveries (id, hook_id, event, analyst_id, facts)
    SELECT gen_random_uuid(), h.id, event, analyst, facts
    FROM hooks h JOIN users u ON u.id = h.owner_id
    WHERE h.active AND u.active AND event = ANY (h.events)
    AND (h.owner_id = analyst OR {overseer})
$$
"""
_ANY = "u.roles && ARRAY['steward','auditor']"
# Said as accountant.transactions.owners.overseen says it.
_OWNERS = " OR ".join(
    f"""'{role}' = ANY (u.roles) AND EXISTS (SELECT FROM datasets d WHERE d.name = facts ->> 'dataset'
        AND (coalesce(jsonb_array_length(d.policy -> '{field}'), 0) = 0 OR d.policy -> '{field}' ? u.name))"""
    for role, field in (("steward", "stewards"), ("auditor", "auditors"))
)


def upgrade() -> None:
    op.execute(_ANNOUNCE.format(overseer=_OWNERS))
    for table in ("dataset_versions", "corpora"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN shared_with jsonb")
    # What each corpus holds, so that new data is compared with it where the data is checked, and not by every job.
    op.execute(
        "CREATE TABLE corpus_fingerprints ("
        " corpus_id uuid NOT NULL CONSTRAINT fk_corpus_fingerprints_corpus_id REFERENCES corpora,"
        " fingerprint bytea NOT NULL,"
        " CONSTRAINT pk_corpus_fingerprints PRIMARY KEY (fingerprint, corpus_id),"
        " CONSTRAINT ck_corpus_fingerprints_length CHECK (octet_length(fingerprint) = 16))"
    )
    # Those that are there are read once more, and ready again after it.
    op.execute(
        "INSERT INTO outbox (task, subject) SELECT 'check_corpus', id FROM corpora WHERE state = 'ready'"
    )
    op.execute("UPDATE corpora SET state = 'checking', facts = NULL WHERE state = 'ready'")


def downgrade() -> None:
    op.execute("DROP TABLE corpus_fingerprints")
    for table in ("corpora", "dataset_versions"):
        op.execute(f"ALTER TABLE {table} DROP COLUMN shared_with")
    op.execute(_ANNOUNCE.format(overseer=_ANY))
