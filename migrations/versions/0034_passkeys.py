"""Passkeys, what they are asked to sign, and when a session's owner last showed who they are."""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_OUTCOMES = (
    "'signed in','wrong password','unknown name','password expired','password to be changed',"
    "'password confirmed','too many failures','no role','account closed','provider refused'"
)
_TABLES = """
CREATE TABLE passkeys (
    id uuid CONSTRAINT pk_passkeys PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT fk_passkeys_user_id REFERENCES users,
    name text NOT NULL,
    credential_id bytea NOT NULL CONSTRAINT uq_passkeys_credential_id UNIQUE,
    public_key bytea NOT NULL,
    signer text NOT NULL,
    sign_count bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz,
    removed_at timestamptz,
    CONSTRAINT ck_passkeys_name CHECK (length(name) BETWEEN 1 AND 100)
);
CREATE INDEX ix_passkeys_user_id ON passkeys (user_id, created_at);

CREATE TABLE passkey_challenges (
    id uuid CONSTRAINT pk_passkey_challenges PRIMARY KEY,
    user_id uuid CONSTRAINT fk_passkey_challenges_user_id REFERENCES users,
    purpose text NOT NULL,
    challenge bytea NOT NULL,
    nonce text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT ck_passkey_challenges_purpose CHECK (purpose IN ('register','sign in','confirm','act'))
);
CREATE INDEX ix_passkey_challenges_expires_at ON passkey_challenges (expires_at);

ALTER TABLE sessions ADD COLUMN confirmed_at timestamptz;
"""


def upgrade() -> None:
    op.execute(_TABLES)
    _check("'page','api','provider','passkey'", f"{_OUTCOMES},'wrong passkey'")


def downgrade() -> None:
    # The log keeps its rows: what a passkey did stands there as a page's.
    op.execute("ALTER TABLE sign_ins DISABLE TRIGGER sign_ins_rows")
    op.execute("UPDATE sign_ins SET method = 'page' WHERE method = 'passkey'")
    op.execute("UPDATE sign_ins SET outcome = 'wrong password' WHERE outcome = 'wrong passkey'")
    op.execute("ALTER TABLE sign_ins ENABLE TRIGGER sign_ins_rows")
    _check("'page','api','provider'", _OUTCOMES)
    op.execute("ALTER TABLE sessions DROP COLUMN confirmed_at")
    op.execute("DROP TABLE passkey_challenges")
    op.execute("DROP TABLE passkeys")


def _check(methods: str, outcomes: str) -> None:
    for name, allowed in (("method", methods), ("outcome", outcomes)):
        op.execute(f"ALTER TABLE sign_ins DROP CONSTRAINT ck_sign_ins_{name}")
        op.execute(f"ALTER TABLE sign_ins ADD CONSTRAINT ck_sign_ins_{name} CHECK ({name} IN ({allowed}))")
