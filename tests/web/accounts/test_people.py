"""Administrators manage accounts; the last of them stays; everything is in a log that auditors
read.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from accountant.core.errors import Conflict, NotPermitted
from accountant.database import connect
from accountant.identities import activity_log, credentials, people
from tests.support import person
from tests.web.browsers import Pages

pytestmark = pytest.mark.slow


@pytest.fixture
def alone(site):
    """The only open administrator here."""
    with site.engine.begin() as connection:
        connection.execute(
            text("UPDATE users SET active = false WHERE 'administrator' = ANY(roles)")
        )
    site.people.pop("administrator", None)
    return site


def test_adding_a_person_by_form_shows_a_one_time_password_once(site):
    browser, name = site.pages("administrator"), f"new-{site.bench.dataset}"
    answer = browser.post("/people", "/people", name=name, roles="analyst")
    assert answer.status_code == 201
    once = answer.text.split('<code class="once">')[1].split("<")[0]
    assert Pages(site.app).sign_in(name, once).status_code == 303
    assert once not in browser.get("/people").text
    assert credentials.find_user(site.engine, name=name).roles == ["analyst"]
    again = browser.post("/people", "/people", name=name, roles="analyst")
    assert again.status_code == 409
    assert "already" in again.text
    wrong = browser.post("/people", "/people", name="No Name", roles="analyst")
    assert wrong.status_code == 422
    assert 'id="problem-name"' in wrong.text
    assert 'value="No Name"' in wrong.text
    assert 'id="problem-roles"' in browser.post("/people", "/people", name="fine").text


def test_adding_a_person_by_api(site):
    api, name = site.api("administrator"), f"api-{site.bench.dataset}"
    answer = api.post("/users", {"name": name, "roles": ["auditor"]})
    assert answer.status_code == 201
    assert len(answer.json["password"]) >= 20
    given = api.post(
        "/users", {"name": f"{name}-2", "roles": ["auditor"], "password": "a raven in the cellar"}
    )
    assert "password" not in given.json
    own = {"name": f"{name}-3", "roles": ["auditor"], "password": f"{name}-3-{name}-3"}
    assert "first that somebody" in api.post("/users", own).json["problems"][0]["problem"]


ACTS = ["roles", "deactivate", "activate", "unlock", "sign-out", "revoke-tokens", "password"]


@pytest.mark.parametrize("role", ["steward", "analyst", "auditor"])
def test_only_administrators(site, role):
    name = site.actor("analyst").name
    browser, api = site.pages(role), site.api(role)
    assert browser.get("/people").status_code == 403
    assert browser.get(f"/people/{name}").status_code == 403
    for act in ACTS:
        assert (
            browser.post(f"/people/{name}/{act}", "/account", roles="administrator").status_code
            == 403
        ), act
    assert browser.post("/people", "/account", name="x", roles="analyst").status_code == 403
    assert api.get("/users").status_code == 403
    assert api.get(f"/users/{name}").status_code == 403
    assert api.get(f"/users/{name}/tokens").status_code == 403
    assert api.put(f"/users/{name}/roles", {"roles": ["administrator"]}).status_code == 403
    for act in ("deactivate", "activate", "reset-password", "unlock"):
        assert api.post(f"/users/{name}/{act}").status_code == 403, act
    other = site.actor("administrator").name
    assert api.post(f"/users/{other}/sign-out").status_code == 403
    assert api.post(f"/users/{other}/revoke-tokens").status_code == 403


def test_nobody_gives_themselves_roles(site):
    actor = site.actor("analyst")
    with pytest.raises(NotPermitted):
        people.set_roles(site.engine, actor, actor.name, ["administrator"])


def test_the_last_administrator_stays(alone):
    browser = alone.pages("administrator")
    name = alone.actor("administrator").name
    page = f"/people/{name}"
    for act, values in (("deactivate", {}), ("roles", {"roles": "analyst"})):
        answer = browser.post(f"{page}/{act}", page, **values)
        assert answer.status_code == 409
        assert "is the last administrator" in answer.text
    api = alone.api("administrator")
    assert api.post(f"/users/{name}/deactivate").status_code == 409
    assert api.put(f"/users/{name}/roles", {"roles": ["steward"]}).status_code == 409
    assert (
        api.put(f"/users/{name}/roles", {"roles": ["steward", "administrator"]}).status_code == 200
    )
    second = person(alone.engine, "administrator")
    assert api.post(f"/users/{second.name}/deactivate").status_code == 200


def test_two_administrators_who_close_each_other_leave_one(alone, database_url):
    """Raced over two connections: without the lock both would see the other still there."""
    engine = connect(database_url)
    for round_ in range(8):
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE users SET active = false WHERE 'administrator' = ANY(roles)")
            )
        two = [person(engine, "administrator") for _ in range(2)]
        meet = threading.Barrier(2)

        def close(actor, other, meet=meet, by_closing=round_ % 2):
            meet.wait()
            try:
                if by_closing:
                    people.deactivate(engine, actor, other.name)
                else:
                    people.set_roles(engine, actor, other.name, ["analyst"])
                return True
            except Conflict:
                return False

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(close, two, two[::-1]))
        assert sorted(done) == [False, True]
    engine.dispose()


def test_accounts_in_pages_by_key_with_filters_in_the_address(site):
    prefix = f"zz-{site.bench.dataset}"
    for number in range(3):
        credentials.add_user(site.engine, f"{prefix}-{number}", None, ["auditor"])
    api = site.api("administrator")
    first = api.get(f"/users?name={prefix}&limit=2").json
    assert [each["name"] for each in first["users"]] == [f"{prefix}-0", f"{prefix}-1"]
    second = api.get(f"/users?name={prefix}&limit=2&cursor={first['next']}").json
    assert [each["name"] for each in second["users"]] == [f"{prefix}-2"]
    assert second["next"] is None
    assert api.get(f"/users?name={prefix}&role=steward").json["users"] == []
    assert api.get("/users?name=%25").json["users"] == []
    page = site.pages("administrator").get(f"/people?name={prefix}&role=auditor&state=open").text
    assert f"{prefix}-1" in page
    assert f'value="{prefix}"' in page


def test_a_list_of_people_makes_no_query_per_row(site):
    from sqlalchemy import event

    def queries(limit):
        count = []
        served = site.app.extensions["exchequer"]["engine"]
        note = lambda *args: count.append(1)  # noqa: E731
        event.listen(served, "before_cursor_execute", note)
        api.get(f"/users?limit={limit}")
        event.remove(served, "before_cursor_execute", note)
        return len(count)

    api = site.api("administrator")
    api.get("/users")
    assert queries(1) == queries(50)


def test_who_did_what_is_in_a_log_for_auditors(site):
    admin, name = site.api("administrator"), site.actor("analyst").name
    admin.put(f"/users/{name}/roles", {"roles": ["analyst", "auditor"]})
    admin.post(f"/users/{name}/reset-password")
    admin.post(f"/users/{name}/unlock")
    admin.post(f"/users/{name}/sign-out")
    admin.post(f"/users/{name}/revoke-tokens")
    admin.post(f"/users/{name}/deactivate")
    admin.post(f"/users/{name}/activate")
    rows = activity_log.listing(site.engine, site.actor("auditor"), kind="account", object_id=name)
    assert [each["action"] for each in rows[::-1]][-7:] == [
        "roles changed",
        "password reset",
        "account unlocked",
        "signed out everywhere",
        "tokens revoked",
        "account closed",
        "account opened",
    ]
    changed = next(each for each in rows if each["action"] == "roles changed")
    assert changed["actor"] == site.actor("administrator").name
    assert changed["detail"] == {"before": ["analyst"], "after": ["analyst", "auditor"]}
    assert "argon2" not in str(rows)
    page = site.pages("administrator").get(f"/people/{name}").text
    assert "from analyst to analyst, auditor" in page
    for role in ("steward", "analyst"):
        with pytest.raises(NotPermitted):
            activity_log.listing(
                site.engine, site.bench.steward if role == "steward" else site.bench.analyst
            )


def test_registrations_and_policies_are_in_the_log_without_addresses(site):
    rows = activity_log.listing(
        site.engine, site.actor("auditor"), kind="dataset", object_id=site.bench.dataset
    )
    assert [each["action"] for each in rows] == ["dataset registered"]
    site.api("steward").put(f"/datasets/{site.bench.dataset}/policy", {"auto_approve_epsilon": "1"})
    rows = activity_log.listing(
        site.engine, site.actor("auditor"), actor=site.actor("steward").name, action="policy set"
    )
    assert rows[0]["detail"]["policy"]["auto_approve_epsilon"] == "1"
    everything = activity_log.listing(site.engine, site.actor("auditor"), limit=200)
    assert "/nowhere" not in str(everything)


def test_the_log_comes_in_pages_by_key(site):
    auditor = site.actor("auditor")
    first = activity_log.listing(site.engine, auditor, limit=2)
    second = activity_log.listing(site.engine, auditor, limit=2, after=[first[-1]["id"]])
    ids = [each["id"] for each in first + second]
    assert ids == sorted(set(ids), reverse=True)
    assert len(ids) == 4


def test_a_note_stands_only_where_what_it_tells_does(site):
    admin = site.actor("administrator")
    taken = site.actor("analyst").name
    before = activity_log.listing(site.engine, admin, limit=1)[0]["id"]
    with pytest.raises(Conflict):
        credentials.add_user(site.engine, taken, None, ["analyst"], actor=admin)
    assert activity_log.listing(site.engine, admin, limit=1)[0]["id"] == before


def test_what_is_not_there_is_not_found(site):
    api = site.api("administrator")
    for path in ("nobody-here", "nobody-here/tokens"):
        assert api.get(f"/users/{path}").status_code == 404
    for act in ("deactivate", "activate", "reset-password", "unlock", "sign-out", "revoke-tokens"):
        assert api.post(f"/users/nobody-here/{act}").status_code == 404, act
    assert api.put("/users/nobody-here/roles", {"roles": ["analyst"]}).status_code == 404
    assert site.pages("administrator").get("/people/nobody-here").status_code == 404


def test_phone_users_may_type_a_capital(site):
    name = site.actor("analyst").name
    assert Pages(site.app).sign_in(f" {name.capitalize()} ").status_code == 303
