"""Who did what, who signed in, sessions, limits on guessing, scopes of tokens, accounts at a provider."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SCOPES = "ARRAY['read','jobs:submit','budget:approve','data:manage','admin']"
APPEND_ONLY = ("activity", "sign_ins")


def moment(name: str, *, default: bool = False, nullable: bool = False) -> sa.Column:
    given = sa.text("clock_timestamp()") if default else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=given, nullable=nullable)


def upgrade() -> None:
    create_activity()
    create_sign_ins()
    create_sessions()
    op.create_table(
        "sign_in_limits",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        moment("last_at"),
        moment("locked_until", nullable=True),
        sa.Column("refusal_logged", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint("failures >= 0", name=op.f("ck_sign_in_limits_failures")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_sign_in_limits")),
    )
    op.create_index("ix_sign_in_limits_last_at", "sign_in_limits", ["last_at"])
    op.create_table(
        "external_accounts",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        moment("created_at", default=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_external_accounts_user_id")),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("pk_external_accounts")),
        sa.UniqueConstraint("user_id", name=op.f("uq_external_accounts_user_id")),
    )
    op.add_column("users", moment("password_expires", nullable=True))
    # What was made before scopes were: everything that its owner may do.
    texts = postgresql.ARRAY(sa.Text())
    op.add_column("api_tokens", sa.Column("scopes", texts, nullable=False, server_default=sa.text(SCOPES)))
    op.alter_column("api_tokens", "scopes", existing_type=texts, server_default=None)
    op.create_check_constraint(
        op.f("ck_api_tokens_known_scopes"), "api_tokens", f"scopes <@ {SCOPES} AND cardinality(scopes) > 0"
    )
    op.add_column(
        "api_tokens", sa.Column("by_sign_in", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.execute("UPDATE api_tokens SET by_sign_in = true WHERE name IN ('session', 'command line')")
    op.add_column("api_tokens", moment("last_used_at", nullable=True))
    op.create_index("ix_api_tokens_user_id", "api_tokens", ["user_id", "created_at"])
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_rows BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION rows_are_append_only()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rows_are_append_only()"
        )


def create_activity() -> None:
    op.create_table(
        "activity",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        moment("at", default=True),
        sa.Column("actor_id", sa.Uuid(), nullable=True),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["actor_id"], ["users.id"], name=op.f("fk_activity_actor_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activity")),
    )
    op.create_index("ix_activity_actor_name_id", "activity", ["actor_name", "id"])
    op.create_index("ix_activity_action_id", "activity", ["action", "id"])
    op.create_index("ix_activity_object", "activity", ["object_kind", "object_id", "id"])


def create_sign_ins() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        moment("at", default=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.CheckConstraint("method IN ('page','api','provider')", name=op.f("ck_sign_ins_method")),
        sa.CheckConstraint(
            "outcome IN ('signed in','wrong password','unknown name','password expired',"
            "'password to be changed','password confirmed','too many failures',"
            "'no role','account closed','provider refused')",
            name=op.f("ck_sign_ins_outcome"),
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sign_ins_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_ins")),
    )
    op.create_index("ix_sign_ins_name_id", "sign_ins", ["name", "id"])
    op.create_index("ix_sign_ins_outcome_id", "sign_ins", ["outcome", "id"])


def create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        moment("created_at", default=True),
        moment("seen_at", default=True),
        moment("ended_at", nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_sessions_token_sha256")),
    )
    op.create_index("ix_sessions_open", "sessions", ["user_id"], postgresql_where=sa.text("ended_at IS NULL"))


def downgrade() -> None:
    """Tokens of few scopes would become tokens of all: they are revoked."""
    op.execute("UPDATE api_tokens SET revoked_at = clock_timestamp() WHERE cardinality(scopes) < 5")
    op.drop_index("ix_api_tokens_user_id", "api_tokens")
    op.drop_constraint(op.f("ck_api_tokens_known_scopes"), "api_tokens", type_="check")
    for name in ("last_used_at", "by_sign_in", "scopes"):
        op.drop_column("api_tokens", name)
    op.drop_column("users", "password_expires")
    for table in ("external_accounts", "sign_in_limits", "sessions", *APPEND_ONLY):
        op.drop_table(table)
