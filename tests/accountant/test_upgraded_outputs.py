"""A database with data goes through the revisions that bound costs and name outputs by their
SHA-256.
"""

from collections.abc import Iterator

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import IntegrityError

from accountant.database import MIGRATIONS, connect
from tests.conftest import as_superuser, create

DATA = """
INSERT INTO users (id, name, roles) VALUES (gen_random_uuid(), 'ada', '{steward}');
INSERT INTO datasets (id, name, neighbours, max_records_per_unit, labels, policy, created_by)
    SELECT gen_random_uuid(), 'letters', 'add-remove', 1, '[]', '{}', id FROM users;
INSERT INTO dataset_versions (id, dataset_id, number, uri, text_template, state, created_by)
    SELECT gen_random_uuid(), id, 1, '/data.csv', '{text}', 'ready', created_by FROM datasets;
INSERT INTO accounts (dataset_id, chain_head, renyi_limit, renyi_spent)
    SELECT id, 'x', 9, 4 FROM datasets;
INSERT INTO usage (dataset_id, kind, holder, spent) SELECT id, 'analyst', 'ada', 4 FROM datasets;
INSERT INTO jobs (id, dataset_id, version_id, analyst_id, mechanism, parameters, terms, breakdown,
    purpose, request_sha256, state, output_uri, output_sha256)
    SELECT gen_random_uuid(), dataset_id, id, created_by, 'private-prediction', '{}', '{}', '[]',
        'x', 'x', 'succeeded', '/results/x/y.jsonl', repeat('a', 64) FROM dataset_versions;
INSERT INTO parts (job_id, number, state, attempt) SELECT id, 0, 'stopped', 1 FROM jobs;
INSERT INTO artifacts (job_id, name, kind, media_type, sha256, size, uri)
    SELECT id, 'vectors', 'vectors', 'application/json', repeat('b', 64), 7, '/results/x/z.json'
    FROM jobs;
INSERT INTO corpora (id, name, uri, text_template, declaration, statement, state, facts, created_by)
    SELECT gen_random_uuid(), 'news', '/news.csv', '{text}', 'public', 'x', 'ready', '{}', id
    FROM users;
INSERT INTO realized_ex_post (job_id, amount) SELECT id, 3 FROM jobs;
"""


@pytest.fixture
def upgraded(servers) -> Iterator[Engine]:
    """A database that had data at the first revision."""
    name = "test_upgraded_outputs"
    url = make_url(servers.owner_url).set(database=name)
    with as_superuser(servers) as admin:
        create(admin, name, url.username)
    config = Config(str(MIGRATIONS / "alembic.ini"))
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = url.render_as_string(hide_password=False)
    command.upgrade(config, "0100")
    engine = connect(config.attributes["url"])
    with engine.begin() as connection:
        connection.exec_driver_sql(DATA)
    command.upgrade(config, "head")
    yield engine
    engine.dispose()
    with as_superuser(servers) as admin:
        admin.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def test_data_survives_and_no_balance_is_nan_from_then_on(upgraded):
    with upgraded.begin() as connection:
        assert connection.execute(text("SELECT renyi_spent FROM accounts")).scalar_one() == 4
        assert connection.execute(text("SELECT state FROM corpora")).scalar_one() == "ready"
    for table, column in (
        ("accounts", "renyi_spent"),
        ("usage", "spent"),
        ("realized_ex_post", "amount"),
    ):
        with (
            pytest.raises(IntegrityError, match=f"ck_{table}_numbers"),
            upgraded.begin() as connection,
        ):
            connection.execute(text(f"UPDATE {table} SET {column} = 'NaN'"))
