"""How units are told apart, records without one, and the files that a version of data is."""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE datasets
    ADD COLUMN unit_spelling text NOT NULL DEFAULT 'refuse',
    ADD COLUMN missing_units text NOT NULL DEFAULT 'refuse',
    ADD CONSTRAINT ck_datasets_unit_spelling CHECK (unit_spelling IN ('refuse','merge','keep')),
    ADD CONSTRAINT ck_datasets_missing_units CHECK (missing_units IN ('refuse','separate'));
ALTER TABLE dataset_versions ADD COLUMN data jsonb;
"""

_DOWN = """
ALTER TABLE dataset_versions DROP COLUMN data;
ALTER TABLE datasets DROP COLUMN unit_spelling, DROP COLUMN missing_units;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
