"""REGISTER and POLICY: the rules of a dataset are entries of its ledger."""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_BEFORE = ("ALLOW", "RESERVE", "COMMIT", "VOID", "REVERSAL")
_JOBLESS = ("ALLOW", "REGISTER", "POLICY")
_RARE_BEFORE = ("ALLOW", "VOID", "REVERSAL")


def _listed(kinds: tuple[str, ...]) -> str:
    return "kind IN (" + ",".join(f"'{each}'" for each in kinds) + ")"


def _replace(kinds: str, jobless: str, rare: str) -> None:
    for name, check in (("kind", kinds), ("job", f"({jobless}) = (job_id IS NULL)")):
        op.execute(f"ALTER TABLE entries DROP CONSTRAINT ck_entries_{name}")
        op.execute(f"ALTER TABLE entries ADD CONSTRAINT ck_entries_{name} CHECK ({check}) NOT VALID")
        op.execute(f"ALTER TABLE entries VALIDATE CONSTRAINT ck_entries_{name}")
    op.execute("DROP INDEX ix_entries_rare")
    op.execute(f"CREATE INDEX ix_entries_rare ON entries (kind, at, dataset_id, seq) WHERE {rare}")


def upgrade() -> None:
    rules = ("REGISTER", "POLICY")
    _replace(_listed(_BEFORE + rules), _listed(_JOBLESS), _listed(_RARE_BEFORE + rules))


def downgrade() -> None:
    # Entries are never deleted: where a ledger holds rules, the CHECK below fails and nothing is changed.
    _replace(_listed(_BEFORE), "kind = 'ALLOW'", _listed(_RARE_BEFORE))
