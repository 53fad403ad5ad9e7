"""Sessions end when they should, wherever their cookie still lies; a one-time password opens one
page.
"""

import pytest
from sqlalchemy import text

from accountant.identities import credentials, people
from tests.web.browsers import PASSWORD, Pages
from web.passwords import hash_password

pytestmark = pytest.mark.slow

NEW = "another passphrase altogether"


def age(site, who, column, minutes):
    """As if a session had begun, or was last used, so long ago."""
    query = (
        f"UPDATE sessions SET {column} = {column} - make_interval(mins => :m) WHERE user_id = :id"
    )
    with site.engine.begin() as connection:
        connection.execute(text(query), {"m": minutes, "id": site.actor(who).id})


def seen(site, who):
    query = "SELECT max(seen_at) FROM sessions WHERE user_id = :id"
    with site.engine.connect() as connection:
        return connection.execute(text(query), {"id": site.actor(who).id}).scalar_one()


def cookie(browser):
    return browser.client.get_cookie(browser.client.application.config["SESSION_COOKIE_NAME"]).value


def with_cookie(site, value):
    other = Pages(site.app)
    other.client.set_cookie(site.app.config["SESSION_COOKIE_NAME"], value)
    return other


def test_a_session_ends_after_its_time_though_it_is_used(site):
    browser = site.pages("analyst")
    age(site, "analyst", "created_at", 12 * 60 - 1)
    assert browser.get("/").status_code == 200
    age(site, "analyst", "created_at", 1)
    assert browser.get("/").status_code == 303


def test_a_session_ends_when_it_is_not_used(site):
    browser = site.pages("analyst")
    age(site, "analyst", "seen_at", 59)
    assert browser.get("/").status_code == 200
    age(site, "analyst", "seen_at", 59)  # its use was noted
    assert browser.get("/").status_code == 200
    age(site, "analyst", "seen_at", 60)
    assert browser.get("/").status_code == 303


def test_what_a_page_asks_for_by_itself_is_no_use(site):
    browser = site.pages("steward")
    age(site, "steward", "seen_at", 30)
    before = seen(site, "steward")
    polled = browser.client.get("/inbox/changes", headers={"HX-Request": "true"})
    assert polled.status_code == 200
    assert seen(site, "steward") == before
    browser.get("/inbox")
    assert seen(site, "steward") > before


def test_signing_out_ends_the_session_and_not_just_the_cookie(site):
    browser = site.pages("analyst")
    kept = cookie(browser)
    assert with_cookie(site, kept).get("/").status_code == 200
    assert browser.post("/sign-out", "/").status_code == 303
    assert with_cookie(site, kept).get("/").status_code == 303


def test_signing_in_renews_the_session_and_its_csrf_token(site):
    """Fixation: what somebody planted in a browser before is worth nothing after."""
    browser = Pages(site.app)
    planted = browser.token("/sign-in")
    before = cookie(browser)
    browser.sign_in(site.actor("analyst").name)
    assert cookie(browser) != before
    assert with_cookie(site, before).get("/").status_code == 303
    old = browser.client.post("/account/sign-out-everywhere", data={"csrf_token": planted})
    assert old.status_code == 400
    first = cookie(browser)
    fresh = Pages(site.app)
    fresh.client.set_cookie(site.app.config["SESSION_COOKIE_NAME"], first)
    fresh.post("/sign-in", "/account", name=site.actor("analyst").name, password=PASSWORD)
    # signing in again ended the one before
    assert with_cookie(site, first).get("/").status_code == 303


def test_sign_out_everywhere_ends_every_session_and_the_tokens_of_signing_in(site):
    one, two = site.pages("analyst"), site.pages("analyst")
    name = site.actor("analyst").name
    body = {"name": name, "password": PASSWORD}
    signed_in = site.app.test_client().post("/api/v1/session", json=body).json["token"]
    made = (
        site.api("analyst")
        .post("/me/tokens", {"name": "kept", "scopes": ["read"], "days": 1})
        .json["token"]
    )
    assert one.post("/account/sign-out-everywhere", "/account").status_code == 303
    assert one.get("/").status_code == 303
    assert two.get("/").status_code == 303
    assert _me(site, signed_in) == 401
    assert _me(site, made) == 200


def _me(site, token):
    headers = {"Authorization": f"Bearer {token}"}
    return site.app.test_client().get("/api/v1/me", headers=headers).status_code


def test_another_password_ends_all_sessions_but_the_one_that_set_it(site):
    one, two = site.pages("analyst"), site.pages("analyst")
    before = cookie(one)
    answer = one.post(
        "/account/password", "/account/password", current=PASSWORD, new=NEW, again=NEW
    )
    assert answer.status_code == 303, answer.text
    assert one.get("/account").status_code == 200
    assert two.get("/").status_code == 303
    assert with_cookie(site, before).get("/").status_code == 303
    name = site.actor("analyst").name
    assert Pages(site.app).sign_in(name, PASSWORD).status_code == 401
    assert Pages(site.app).sign_in(name, NEW).status_code == 303


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"current": "not the password"}, "current"),
        ({"new": "short", "again": "short"}, "new"),
        ({"new": "passwordpassword", "again": "passwordpassword"}, "new"),
        ({"again": "something else entirely"}, "again"),
    ],
)
def test_a_password_form_names_its_field_and_repeats_no_password(site, typed, field):
    values = {"current": PASSWORD, "new": NEW, "again": NEW} | typed
    answer = site.pages("analyst").post("/account/password", "/account/password", **values)
    assert answer.status_code == 422
    assert f'id="problem-{field}"' in answer.text
    assert not any(value in answer.text for value in values.values() if len(value) > 10)


def test_the_password_form_can_not_be_used_to_guess(site):
    browser = site.pages("analyst")
    for _ in range(5):
        answer = browser.post(
            "/account/password", "/account/password", current="a guess", new=NEW, again=NEW
        )
        assert answer.status_code == 422
    answer = browser.post(
        "/account/password", "/account/password", current=PASSWORD, new=NEW, again=NEW
    )
    assert answer.status_code == 429


def test_programs_change_passwords_too(site):
    api = site.api("analyst")
    assert (
        api.post("/me/password", {"current": "x", "new": NEW}).json["problems"][0]["field"]
        == "current"
    )
    answer = api.post("/me/password", {"current": PASSWORD, "new": "short"})
    assert answer.json["problems"][0]["field"] == "new"
    assert api.post("/me/password", {"current": PASSWORD, "new": NEW}).status_code == 200
    body = {"name": site.actor("analyst").name, "password": NEW}
    assert site.app.test_client().post("/api/v1/session", json=body).status_code == 201


def admin_of(site):
    return site.actor("administrator")


def test_other_roles_end_sessions_and_work_at_once(site):
    browser, api = site.pages("steward"), site.api("steward")
    name = site.actor("steward").name
    people.set_roles(site.engine, admin_of(site), name, ["analyst"])
    assert browser.get("/").status_code == 303
    assert api.get("/me").json["roles"] == ["analyst"]
    answer = api.post("/datasets", {"name": "x", "uri": "/x.csv"})
    assert answer.status_code == 403


def test_a_closed_account_ends_everything_for_good(site):
    browser, api = site.pages("analyst"), site.api("analyst")
    name, kept = site.actor("analyst").name, None
    kept = cookie(browser)
    people.deactivate(site.engine, admin_of(site), name)
    assert browser.get("/").status_code == 303
    assert api.get("/me").status_code == 401
    assert Pages(site.app).sign_in(name).status_code == 401
    people.activate(site.engine, admin_of(site), name)
    assert with_cookie(site, kept).get("/").status_code == 303
    assert api.get("/me").status_code == 401
    assert Pages(site.app).sign_in(name).status_code == 303


def test_a_one_time_password_opens_the_page_that_replaces_it(site):
    admin, name = site.pages("administrator"), site.actor("analyst").name
    old = site.pages("analyst")
    answer = admin.post(f"/people/{name}/password", f"/people/{name}")
    assert answer.status_code == 201
    once = answer.text.split('<code class="once">')[1].split("<")[0]
    assert once not in admin.get(f"/people/{name}").text  # shown this once
    assert old.get("/").status_code == 303
    assert Pages(site.app).sign_in(name).status_code == 401
    body = {"name": name, "password": once}
    refused = site.app.test_client().post("/api/v1/session", json=body)
    assert refused.status_code == 403
    assert "one-time password" in refused.json["detail"]
    browser = Pages(site.app)
    assert browser.sign_in(name, once).status_code == 303
    for path in ("/", "/jobs", "/account", "/account/tokens"):
        assert browser.get(path).headers["Location"] == "/account/password", path
    page = "/account/password"
    assert browser.post(page, page, current=once, new=NEW, again=NEW).status_code == 303
    assert browser.get("/").status_code == 200
    assert Pages(site.app).sign_in(name, once).status_code == 401


def test_a_one_time_password_runs_out(site):
    api, name = site.api("administrator"), site.actor("analyst").name
    once = api.post(f"/users/{name}/reset-password").json["password"]
    with site.engine.begin() as connection:
        late = "UPDATE users SET password_expires = now() - interval '1 s' WHERE name = :name"
        connection.execute(text(late), {"name": name})
    assert Pages(site.app).sign_in(name, once).status_code == 401
    newest = site.api("auditor").get(f"/sign-ins?name={name}").json["sign_ins"][0]
    assert newest["outcome"] == "password expired"


def test_the_account_page_shows_ones_sessions_and_tries(site):
    one, two = site.pages("analyst"), site.pages("analyst")
    Pages(site.app).sign_in(site.actor("analyst").name, "a wrong guess of it")
    page = one.get("/account").text
    assert page.count('<td class="when"') >= 4
    assert page.count(">this one<") == 1
    assert "wrong password" in page
    assert two.get("/account").status_code == 200


def test_passwords_and_accounts_at_a_provider(site):
    people.add_external(
        site.engine, "https://issuer.example", "s", [f"ext-{site.bench.dataset}"], ["analyst"]
    )
    api, name = site.api("administrator"), f"ext-{site.bench.dataset}"
    answer = api.post(f"/users/{name}/reset-password")
    assert answer.status_code == 409
    assert "https://issuer.example" in answer.json["detail"]
    assert credentials.find_user(site.engine, name=name).password_hash is None


@pytest.fixture
def meanwhile(site, monkeypatch):
    """Something that happens while a password is compared: after its hash was read, before the
    answer.
    """
    from web import auth

    verify = auth.verify_password

    def during(act):
        def slow(stored, password):
            monkeypatch.setattr(auth, "verify_password", verify)
            act()
            return verify(stored, password)

        monkeypatch.setattr(auth, "verify_password", slow)

    return during


@pytest.mark.parametrize("way", ["page", "api"])
@pytest.mark.parametrize("act", ["reset", "closed"])
def test_a_password_that_is_being_checked_opens_nothing_once_it_is_another(
    site, meanwhile, way, act
):
    who = f"analyst-{act}-{way}"
    name, administrator = site.actor(who).name, site.actor("administrator")

    def taken_away():
        if act == "reset":
            people.reset_password(site.engine, administrator, name, site.password_hash[:-2] + "xx")
        else:
            people.deactivate(site.engine, administrator, name)

    meanwhile(taken_away)
    if way == "page":
        browser = Pages(site.app)
        assert browser.sign_in(name).status_code == 401
        kept = sessions_and_tokens(site, name)
    else:
        answer = site.app.test_client().post(
            "/api/v1/session", json={"name": name, "password": PASSWORD}
        )
        assert answer.status_code == 401
        kept = sessions_and_tokens(site, name)
    assert kept == 0


def sessions_and_tokens(site, name):
    query = (
        "SELECT (SELECT count(*) FROM sessions s WHERE s.user_id = u.id AND ended_at IS NULL) + "
        "(SELECT count(*) FROM api_tokens t WHERE t.user_id = u.id AND revoked_at IS NULL) "
        "FROM users u WHERE name = :name"
    )
    with site.engine.connect() as connection:
        return connection.execute(text(query), {"name": name}).scalar_one()


@pytest.mark.parametrize("way", ["page", "api"])
def test_whoever_is_changing_a_password_does_not_undo_its_reset(site, meanwhile, way):
    """Somebody who has the old password must not keep the account by changing it at that moment."""
    who = f"analyst-undo-{way}"
    name = site.actor(who).name
    reset = hash_password("what the administrator made")
    browser, program = site.pages(who), site.api(who)
    token = browser.token("/account/password")
    meanwhile(lambda: people.reset_password(site.engine, site.actor("administrator"), name, reset))
    if way == "page":
        typed = {"csrf_token": token, "current": PASSWORD, "new": NEW, "again": NEW}
        answer = browser.client.post("/account/password", data=typed)
    else:
        answer = program.post("/me/password", {"current": PASSWORD, "new": NEW})
    assert answer.status_code == 422, answer.text
    assert credentials.find_user(site.engine, name=name).password_hash == reset


def test_a_one_time_password_is_typed_once(site):
    """Just after the sign-in that it was typed for nobody asks for it again; later somebody may sit
    there.
    """
    name = site.actor("analyst").name
    once = site.api("administrator").post(f"/users/{name}/reset-password").json["password"]
    page, browser = "/account/password", Pages(site.app)
    assert browser.sign_in(name, once).status_code == 303
    assert 'name="current"' not in browser.get(page).text
    age = "UPDATE sessions SET created_at = created_at - interval '11 min' WHERE ended_at IS NULL"
    with site.engine.begin() as connection:
        connection.execute(text(age))
    assert 'name="current"' in browser.get(page).text
    assert browser.post(page, page, new=NEW, again=NEW).status_code == 422
    again = Pages(site.app)
    assert again.sign_in(name, once).status_code == 303
    assert again.post(page, page, new=NEW, again=NEW).status_code == 303
    assert Pages(site.app).sign_in(name, NEW).status_code == 303
    # its own is asked for
    assert again.post(page, page, new=f"{NEW} 2", again=f"{NEW} 2").status_code == 422
