"""Guessing is slow for every client and every name; nothing tells whether the name is known."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from accountant.database import connect
from accountant.identities import sign_ins
from accountant.identities.sessions import Origin
from tests.web.browsers import PASSWORD, Pages

pytestmark = pytest.mark.slow

WRONG = "certainly not the password"


@pytest.fixture(autouse=True)
def an_address_of_ones_own(site):
    """Each test guesses from nowhere yet: the addresses of other tests' failures are forgotten."""
    forget(site)


def forget(site, where="true"):
    with site.engine.begin() as connection:
        connection.execute(text(f"DELETE FROM sign_in_limits WHERE {where}"))


def pass_time(site, minutes):
    """As if the failures lay so far back."""
    with site.engine.begin() as connection:
        by = f"interval '{minutes} minutes'"
        connection.execute(
            text(
                f"UPDATE sign_in_limits SET last_at = last_at - {by}, locked_until = locked_until "
                f"- {by}"
            )
        )


def by_api(site, name, password=WRONG):
    return site.app.test_client().post("/api/v1/session", json={"name": name, "password": password})


def by_page(site, name, password=WRONG):
    return Pages(site.app).sign_in(name, password)


@pytest.mark.parametrize("attempt", [by_api, by_page])
@pytest.mark.parametrize("known", [True, False])
def test_after_five_failures_one_waits_known_or_not(site, attempt, known):
    name = site.actor("analyst").name if known else "there-is-nobody-like-this"
    for _ in range(sign_ins.FREE_FAILURES):
        assert attempt(site, name).status_code == 401
    answer = attempt(site, name, PASSWORD)
    assert answer.status_code == 429
    assert 25 <= int(answer.headers["Retry-After"]) <= 30
    if attempt is by_api:
        assert answer.mimetype == "application/problem+json"
        assert answer.json["code"] == "too-many-requests"
        assert "ask an administrator" in answer.json["detail"]
    else:
        assert 'role="alert"' in answer.text


def test_pages_and_programs_count_together(site):
    name = site.actor("analyst").name
    for attempt in (by_api, by_page, by_api, by_page, by_api):
        assert attempt(site, name).status_code == 401
    assert by_api(site, name).status_code == 429
    assert by_page(site, name).status_code == 429


def test_waits_double_up_to_an_hour_and_end(site):
    name = site.actor("analyst").name
    waits = []
    for _ in range(sign_ins.FREE_FAILURES - 1):
        by_api(site, name)
    for _ in range(9):
        assert by_api(site, name).status_code == 401
        waits.append(round(int(by_api(site, name).headers["Retry-After"]) / 30))
        pass_time(site, waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 64, 120, 120]
    assert by_api(site, name, PASSWORD).status_code == 201
    assert by_api(site, name).status_code == 401  # the count began anew
    assert by_api(site, name).status_code == 401


def test_a_right_password_in_time_begins_anew(site):
    name = site.actor("analyst").name
    for _ in range(3):
        for _ in range(sign_ins.FREE_FAILURES - 1):
            assert by_api(site, name).status_code == 401
        assert by_api(site, name, PASSWORD).status_code == 201


def test_a_day_without_failures_is_forgotten(site):
    name = site.actor("analyst").name
    for _ in range(sign_ins.FREE_FAILURES - 1):
        by_api(site, name)
    pass_time(site, 25 * 60)
    for _ in range(sign_ins.FREE_FAILURES - 1):
        assert by_api(site, name).status_code == 401


def test_after_a_hundred_only_an_administrator_helps(site):
    name = site.actor("analyst").name
    for _ in range(2):
        by_api(site, name)
    with site.engine.begin() as connection:
        connection.execute(text("UPDATE sign_in_limits SET failures = 99 WHERE key LIKE 'name:%'"))
    assert by_api(site, name).status_code == 401  # the hundredth
    pass_time(site, 30 * 24 * 60)
    assert by_api(site, name, PASSWORD).status_code == 429
    assert by_api(site, "somebody-else-altogether").status_code == 401  # whose rows are swept
    assert by_api(site, name, PASSWORD).status_code == 429
    admin = site.pages("administrator")
    page = admin.get(f"/people/{name}").text
    assert "until you unlock" in page
    assert admin.post(f"/people/{name}/unlock", f"/people/{name}").status_code == 303
    assert by_api(site, name, PASSWORD).status_code == 201


def test_of_any_number_at_once_no_more_than_allowed_are_looked_at(site, database_url, monkeypatch):
    """Twenty guesses at the same moment, over connections of their own."""
    name = site.actor("analyst").name
    engine = connect(database_url, pool_size=20)
    meet = threading.Barrier(20)
    came = Origin("api", "192.0.2.7", "a test")

    def guess(_):
        meet.wait()
        return sign_ins.admit(engine, name, came)

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(guess, range(20)))
    engine.dispose()
    assert found.count(None) == sign_ins.FREE_FAILURES


def test_one_address_tries_fifty_names_and_then_one_a_minute(site):
    came = Origin("api", "198.51.100.9", "a test")
    admitted = [
        sign_ins.admit(site.engine, f"name-{i}", came) for i in range(sign_ins.ADDRESS_FAILURES + 5)
    ]
    assert admitted.count(None) == sign_ins.ADDRESS_FAILURES
    assert all(0 < wait.total_seconds() <= 60 for wait in admitted[-5:])
    assert sign_ins.admit(site.engine, "name-0", Origin("api", "198.51.100.10", "")) is None
    pass_time(site, 1)
    assert sign_ins.admit(site.engine, "another", came) is None
    assert sign_ins.admit(site.engine, "another-one", came) is not None


def test_an_ipv6_customer_is_one_address(site):
    addresses = [f"2001:db8:1:2::{i:x}" for i in range(1, sign_ins.ADDRESS_FAILURES + 2)]
    found = [
        sign_ins.admit(site.engine, f"n-{i}", Origin("api", a, "")) for i, a in enumerate(addresses)
    ]
    assert found[-2] is None
    assert found[-1] is not None
    assert sign_ins.admit(site.engine, "n", Origin("api", "2001:db8:1:3::1", "")) is None


def test_signing_in_well_costs_an_address_nothing(site):
    who = site.actor("analyst")
    came = Origin("api", "203.0.113.5", "")
    for _ in range(sign_ins.ADDRESS_FAILURES + 10):
        assert sign_ins.admit(site.engine, who.name, came) is None
        sign_ins.succeeded(site.engine, who.name, who.id, came)


def test_a_lock_holds_after_a_restart(site, tmp_path):
    from accountant.settings import Settings
    from web.app import create_app

    name = site.actor("analyst").name
    for _ in range(sign_ins.FREE_FAILURES):
        by_api(site, name)
    url = site.engine.url.render_as_string(hide_password=False)
    again = create_app(Settings(home=tmp_path, DATABASE_URL=url)).test_client()
    body = {"name": name, "password": PASSWORD}
    assert again.post("/api/v1/session", json=body).status_code == 429


def test_answers_do_not_tell_a_name(site, monkeypatch):
    """Same status, headers and body, the same number of queries, and one look at one hash each."""
    from sqlalchemy import event

    import web.auth

    def trial(name):
        forget(site)
        seen, hashed = [], []
        note = lambda *args: seen.append(args[2].split()[0])  # noqa: E731
        verify = web.auth.verify_password
        monkeypatch.setattr(
            "web.auth.verify_password", lambda s, p: hashed.append(s) or verify(s, p)
        )
        event.listen(served, "before_cursor_execute", note)
        answers = [by_api(site, name) for _ in range(7)]
        event.remove(served, "before_cursor_execute", note)
        monkeypatch.setattr("web.auth.verify_password", verify)
        for each in answers:
            each.headers.pop("X-Request-ID")  # drawn anew for each request
        facts = [(each.status_code, sorted(each.headers), each.json) for each in answers]
        return facts, seen, len(hashed), {each.rsplit("$", 2)[0] for each in hashed}

    served = site.app.extensions["exchequer"]["engine"]
    closed = site.actor("analyst-closed")
    with site.engine.begin() as connection:
        connection.execute(
            text("UPDATE users SET active = false WHERE id = :id"), {"id": closed.id}
        )
    known, unknown = trial(site.actor("analyst").name), trial("there-is-nobody-like-this")
    assert known == unknown
    assert trial(closed.name) == unknown


def test_every_try_is_in_the_log_and_no_password_is(site):
    name = site.actor("analyst").name
    by_page(site, name)
    by_api(site, name, PASSWORD)
    by_page(site, "My Secret Passphrase!", "x")
    for _ in range(9):
        by_api(site, "ghost")
    rows = site.api("auditor").get("/sign-ins?limit=20").json["sign_ins"]
    mine = [each for each in rows if each["name"] == name]
    assert [each["outcome"] for each in mine[:2]] == ["signed in", "wrong password"]
    assert [each["method"] for each in mine[:2]] == ["api", "page"]
    assert mine[0]["address"] == "127.0.0.1"
    assert "secret" not in str(rows).lower()
    # What is refused at the door is logged once for each lock: a log must not be filled by asking.
    ghost = [each["outcome"] for each in rows if each["name"] == "ghost"]
    assert ghost == ["too many failures", *["unknown name"] * 5]


def test_the_log_is_for_auditors_and_administrators_in_pages_by_key(site):
    name = site.actor("analyst").name
    for _ in range(3):
        by_api(site, name)
    auditor = site.api("auditor")
    first = auditor.get(f"/sign-ins?name={name}&limit=2").json
    second = auditor.get(f"/sign-ins?name={name}&limit=2&cursor={first['next']}").json
    ids = [each["id"] for each in first["sign_ins"] + second["sign_ins"]]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == 3
    assert second["next"] is None
    own = site.api("steward").get("/sign-ins").json["sign_ins"]
    assert {each["name"] for each in own} <= {site.actor("steward").name}
    assert name in site.pages("auditor").get("/sign-ins").text
    assert (
        name
        in site.pages("administrator").get(f"/sign-ins?name={name}&outcome=wrong password").text
    )
    for role in ("steward", "analyst"):
        assert site.pages(role).get("/sign-ins").status_code == 403


def test_the_application_can_not_rewrite_the_log(site):
    from sqlalchemy.exc import DBAPIError

    for statement in (
        "UPDATE sign_ins SET name = 'x'",
        "DELETE FROM sign_ins",
        "UPDATE activity SET action = 'x'",
    ):
        with (
            site.engine.connect() as connection,
            pytest.raises(DBAPIError, match=r"permission denied|keeps rows for 90 days"),
        ):
            connection.execute(text(statement))


def test_nor_can_its_owner_by_accident(site, owner):
    from sqlalchemy.exc import DBAPIError

    by_api(site, site.actor("analyst").name)
    for statement in (
        "UPDATE sign_ins SET name = 'x'",
        "DELETE FROM sign_ins",
        "TRUNCATE sign_ins",
    ):
        with (
            owner.connect() as connection,
            pytest.raises(DBAPIError, match=r"append-only|keeps rows for 90 days"),
        ):
            connection.execute(text(statement))


def test_an_address_counts_as_the_proxy_says_only_where_one_is_trusted(site, tmp_path):
    from accountant.settings import Settings
    from web.app import create_app

    url = site.engine.url.render_as_string(hide_password=False)
    body = {"name": f"from-{time.monotonic_ns()}", "password": WRONG}
    claimed = {"X-Forwarded-For": "203.0.113.77"}
    for hops, expected in ((0, "127.0.0.1"), (1, "203.0.113.77")):
        app = create_app(Settings(home=tmp_path, DATABASE_URL=url, trusted_proxies=hops))
        app.test_client().post("/api/v1/session", json=body, headers=claimed)
        newest = site.api("auditor").get(f"/sign-ins?name={body['name']}").json["sign_ins"][0]
        assert newest["address"] == expected


# --- nobody is locked out from elsewhere
# -----------------------------------------------------------


def from_address(site, name, address, password=WRONG):
    client = site.app.test_client()
    client.environ_base["REMOTE_ADDR"] = address
    return client.post("/api/v1/session", json={"name": name, "password": password})


def test_a_stranger_locks_nobody_out_from_elsewhere(site):
    """The attack: wrong passwords under a steward's name, from one address, as many as are let
    through.
    """
    name = site.actor("steward").name
    for _ in range(30):
        from_address(site, name, "203.0.113.9")
        pass_time(site, 60)
    from_address(site, name, "203.0.113.9")
    assert from_address(site, name, "203.0.113.9", PASSWORD).status_code == 429
    assert from_address(site, name, "198.51.100.7", PASSWORD).status_code == 201


def test_a_device_that_signed_in_is_counted_for_itself(site):
    """Even behind the address that guesses: its cookie tells it apart, for its own name alone."""
    name, other = site.actor("steward").name, site.actor("analyst").name
    browser = Pages(site.app)
    assert browser.sign_in(name).status_code == 303
    name_of_cookie = site.app.config["SESSION_COOKIE_NAME"]
    cookie = browser.client.get_cookie(f"{name_of_cookie}_device")
    assert cookie.http_only
    assert cookie.same_site == "Lax"
    for _ in range(sign_ins.FREE_FAILURES + 1):
        by_page(site, name)
        by_page(site, other)
    assert by_page(site, name, PASSWORD).status_code == 429
    browser.client.delete_cookie(name_of_cookie)
    assert browser.sign_in(name).status_code == 303
    browser.client.delete_cookie(name_of_cookie)
    assert browser.sign_in(other).status_code == 429
    forged = Pages(site.app)
    forged.client.set_cookie(f"{name_of_cookie}_device", cookie.value[:-4] + "AAAA")
    assert forged.sign_in(name).status_code == 429
    for _ in range(sign_ins.FREE_FAILURES):
        assert browser.sign_in(name, WRONG).status_code == 401
    assert browser.sign_in(name).status_code == 429  # guessing with the cookie is slow too


def test_many_addresses_together_close_a_name_to_unknown_ones_alone(site):
    name, home = site.actor("steward").name, "198.51.100.20"
    assert from_address(site, name, home, PASSWORD).status_code == 201
    for each in range(sign_ins.MOST_FAILURES // sign_ins.FREE_FAILURES):
        for _ in range(sign_ins.FREE_FAILURES):
            assert from_address(site, name, f"203.0.113.{each}").status_code == 401
    assert from_address(site, name, "192.0.2.1", PASSWORD).status_code == 429
    assert from_address(site, name, home, PASSWORD).status_code == 201
    assert (
        site.pages("administrator").post(f"/people/{name}/unlock", f"/people/{name}").status_code
        == 303
    )
    assert from_address(site, name, "192.0.2.1", PASSWORD).status_code == 201
