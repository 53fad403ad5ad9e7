"""A salt for each dataset, of the hash by which its REGISTER entries state what counts as a secret."""

from alembic import op

revision = "0105"
down_revision = "0104"


def upgrade() -> None:
    # The default is volatile: each dataset that is there gets a salt of its own.
    op.execute(
        "ALTER TABLE datasets ADD COLUMN secrets_salt text DEFAULT gen_random_uuid()::text NOT NULL"
    )
