"""A job keeps its place in its dataset: to count the jobs before it, all of them were read."""

import sqlalchemy as sa
from alembic import op

revision = "0129"
down_revision = "0128"
branch_labels = None
depends_on = None

PLACED = """
UPDATE jobs SET place = placed.place FROM (
    SELECT id, row_number() OVER (PARTITION BY dataset_id ORDER BY created_at, id) AS place
    FROM jobs
) AS placed WHERE placed.id = jobs.id
"""
# Whoever adds a job holds the dataset's account, so nobody takes the same place.
PLACE_JOB = """
CREATE FUNCTION place_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.place := 1 + COALESCE(
        (SELECT place FROM jobs WHERE dataset_id = NEW.dataset_id ORDER BY place DESC LIMIT 1), 0
    );
    RETURN NEW;
END $$
"""


def upgrade() -> None:
    op.add_column("jobs", sa.Column("place", sa.Integer))
    op.execute("ALTER TABLE jobs DISABLE TRIGGER USER")  # no job changes by it
    op.execute(PLACED)
    op.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
    op.alter_column("jobs", "place", nullable=False)
    op.create_unique_constraint("uq_jobs_place", "jobs", ["dataset_id", "place"])
    op.execute(PLACE_JOB)
    op.execute(
        "CREATE TRIGGER jobs_place BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION place_job()"
    )
