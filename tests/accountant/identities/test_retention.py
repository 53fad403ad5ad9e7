"""Sessions and the logs of people end by the settings, and young rows by nobody."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.database import connect
from accountant.identities import activity_log
from accountant.settings import Settings
from tests.conftest import as_process
from tests.support import person


def write(owner, days: int, name: str) -> None:
    """A session that ended, a try to sign in and an act, so many days ago."""
    with owner.begin() as connection:
        values = {"ago": f"{days} days", "name": name}
        for statement in (
            "INSERT INTO sessions "
            "(id, token_sha256, user_id, method, address, user_agent, created_at, ended_at) "
            "SELECT gen_random_uuid(), decode(md5(random()::text), 'hex'), id, 'page', '', :name, "
            "now() - CAST(:ago AS interval), now() - CAST(:ago AS interval) FROM users LIMIT 1",
            "INSERT INTO sign_ins (at, name, method, address, user_agent, outcome) "
            "VALUES (now() - CAST(:ago AS interval), :name, 'page', '', '', 'unknown name')",
            "INSERT INTO activity (at, actor_name, action, object_kind, object_id, detail) "
            "VALUES (now() - CAST(:ago AS interval), :name, 'test', 'user', :name, '{}')",
        ):
            connection.execute(text(statement), values)


def left(engine) -> dict[str, set[str]]:
    names = {"sessions": "user_agent", "sign_ins": "name", "activity": "actor_name"}
    with engine.connect() as connection:
        return {
            table: {
                each
                for each in connection.execute(text(f"SELECT {name} FROM {table}")).scalars()
                if each in NAMES
            }
            for table, name in names.items()
        }


NAMES = {"old", "middle", "young"}


def test_each_log_is_kept_for_as_long_as_its_setting_says(engine, owner, owner_url):
    person(engine, "analyst")
    relay = connect(as_process(owner_url, "relay"))  # with the rights of the process that does it
    for name, days in (("old", 500), ("middle", 100), ("young", 10)):
        write(owner, days, name)
    activity_log.prune(relay, Settings(session_log_days=0, sign_in_log_days=0, activity_log_days=0))
    assert left(engine) == dict.fromkeys(("sessions", "sign_ins", "activity"), NAMES)
    assert activity_log.prune(relay, Settings()) == {"sessions": 2, "sign_ins": 1}
    assert left(engine) == {
        "sessions": {"young"},
        "sign_ins": {"middle", "young"},
        "activity": NAMES,
    }
    # less than the least is the least, so that nothing is asked for that the trigger refuses
    activity_log.prune(relay, Settings(sign_in_log_days=1, activity_log_days=1))
    assert left(engine) == {"sessions": {"young"}, "sign_ins": {"young"}, "activity": {"young"}}
    relay.dispose()


@pytest.mark.parametrize("table", ["sign_ins", "activity"])
@pytest.mark.parametrize(
    "act", ["DELETE FROM {}", "UPDATE {} SET at = at - interval '1 year'", "TRUNCATE {}"]
)
def test_young_rows_stay_as_they_are_even_for_the_owner_of_the_tables(owner, table, act):
    write(owner, 80, "young")
    with pytest.raises(DBAPIError, match=r"23001|refused"), owner.begin() as connection:
        connection.execute(text(act.format(table)))
