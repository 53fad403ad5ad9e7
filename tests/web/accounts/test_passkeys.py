"""Answers of passkeys that are not right change nothing, and sensitive acts ask who is there."""

import html
import json
import re
from typing import Any

import pytest

from accountant.core.ledger.signatures import decoded, encoded
from accountant.identities import credentials, passkeys, sign_ins
from tests.passkeys import Passkey
from tests.web.browsers import PASSWORD, Pages, Site

HOST = "ledger.example"


@pytest.fixture
def here(app, monkeypatch) -> Any:
    """A service at a host name; `here(minutes)` sets after how many minutes it asks who is
    there.
    """
    held = app.extensions["exchequer"]
    plain = held["settings"].model_copy(update={"public_url": f"https://{HOST}"})

    def set_minutes(minutes: float) -> None:
        monkeypatch.setitem(held, "settings", plain.model_copy(update={"fresh_minutes": minutes}))

    set_minutes(15)
    return set_minutes


def added(site: Site, who: str) -> Passkey:
    actor, key = site.actor(who), Passkey(site.actor(who).name, HOST)
    passkeys.add(site.engine, actor, "laptop", key.signer.key.encode(), key.cose, key.signer, 0)
    return key


def asked(page: Any) -> tuple[str, bytes]:
    """The id and the challenge of a page that asks for a passkey."""
    options = re.search(r'data-options="([^"]+)"', page.text)
    kept = re.search(r'name="passkey_id" value="([^"]+)"', page.text)
    assert options is not None
    assert kept is not None
    return kept[1], decoded(json.loads(html.unescape(options[1]))["challenge"])


def answer(key: Passkey, challenge: bytes, **how: Any) -> str:
    made = key.answer(challenge, **how)
    identity = encoded(key.signer.key.encode())
    response = {
        "clientDataJSON": made["client_data"],
        "authenticatorData": made["authenticator_data"],
        "signature": made["signature"],
    }
    return json.dumps(
        {"id": identity, "rawId": identity, "type": "public-key", "response": response}
    )


WRONG = {
    "another relying party": {"host": "elsewhere.example"},
    "another page": {"client": {"origin": "https://elsewhere.example"}},
    "nobody there": {"flags": 0x04},
    "nobody verified": {"flags": 0x01},
    "a registration": {"client": {"type": "webauthn.create"}},
}


def test_a_passkey_signs_in_once_for_each_time_it_was_asked(site, here):
    key, browser = added(site, "steward"), Pages(site.app)
    for name, how in WRONG.items():
        kept, challenge = asked(browser.post("/sign-in/passkey", "/sign-in"))
        sent = {"passkey_id": kept, "passkey": answer(key, challenge, **how)}
        assert browser.post("/sign-in/passkey", "/sign-in", **sent).status_code == 401, name
    kept, challenge = asked(browser.post("/sign-in/passkey", "/sign-in"))
    stranger = {"passkey_id": kept, "passkey": answer(Passkey("steward", HOST), challenge)}
    assert browser.post("/sign-in/passkey", "/sign-in", **stranger).status_code == 401
    for junk in ("", "{", "[]", '{"response": 1}', '{"response": {}}', '{"id": 7, "response": {}}'):
        kept, _ = asked(browser.post("/sign-in/passkey", "/sign-in"))
        sent = {"passkey_id": kept, "passkey": junk}
        assert browser.post("/sign-in/passkey", "/sign-in", **sent).status_code == 401, junk
    kept, challenge = asked(browser.post("/sign-in/passkey", "/sign-in"))
    right = {"passkey_id": kept, "passkey": answer(key, challenge)}
    assert browser.post("/sign-in/passkey", "/sign-in", **right).status_code == 303
    assert browser.get("/account").status_code == 200
    assert Pages(site.app).post("/sign-in/passkey", "/sign-in", **right).status_code == 401  # taken
    logged = [
        each["outcome"]
        for each in sign_ins.listing(site.engine, site.actor("auditor"), method="passkey")
    ]
    assert logged.count("signed in") == 1
    assert "wrong passkey" in logged


def test_where_it_is_a_second_factor_a_password_opens_nothing_without_it(
    app, site, here, monkeypatch
):
    held = app.extensions["exchequer"]
    asking = held["settings"].model_copy(update={"second_factor": True})
    monkeypatch.setitem(held, "settings", asking)
    assert Pages(app).sign_in(site.actor("steward").name).status_code == 303  # who has none
    key, browser, name = added(site, "steward"), Pages(app), site.actor("steward").name
    page = browser.sign_in(name)
    assert page.status_code == 200
    assert PASSWORD not in page.text
    assert browser.get("/account").status_code == 303
    credentials_ = {"name": name, "password": PASSWORD}
    refused = app.test_client().post("/api/v1/session", json=credentials_)
    assert (refused.status_code, "make a token on the page" in refused.json["detail"]) == (
        403,
        True,
    )
    tries = sign_ins.listing(site.engine, site.actor("auditor"), name=name, limit=2)
    assert [each["outcome"] for each in tries] == ["password confirmed", "password confirmed"]
    kept, challenge = asked(page)
    sent = {"passkey_id": kept, "passkey": answer(key, challenge)}
    assert browser.post("/sign-in/passkey", "/sign-in", **sent).status_code == 303
    assert browser.get("/account").status_code == 200


def test_a_sensitive_act_long_after_the_sign_in_asks_who_is_there(site, here):
    browser, page = site.pages("steward"), f"{site.dataset}/policy"
    form = {
        "policy.auto_approve_epsilon": "2",
        "policy_version": browser.token(page, "policy_version"),
    }

    def send(**more: str) -> Any:
        return browser.post(page, page, **form, **more)

    here(1e-9)
    refused = send()
    assert refused.status_code == 403
    assert "Is it still you?" in refused.text
    # it is sent again by itself
    assert 'name="policy.auto_approve_epsilon" value="2"' in refused.text
    assert "not your password" in send(confirm_password="wrong").text
    allowance = {"epsilon": "11", "delta": "1e-6", "reason": "more"}
    assert browser.post(f"{site.dataset}/allowance", page, **allowance).status_code == 403
    junk = {"passkey": "{}", "passkey_id": "x"}
    assert (
        browser.post("/account/passkeys", "/account", passkey_name="mine", **junk).status_code
        == 403
    )
    assert site.api("steward").get(f"{site.dataset}/policy").json["auto_approve_epsilon"] == "0"

    key, other = added(site, "steward"), added(site, "steward-other")
    kept, challenge = asked(send())
    sent = {"passkey_id": kept, "confirming": "1"}
    assert send(**sent, passkey=answer(other, challenge)).status_code == 403
    kept, challenge = asked(send())
    sent = {"passkey_id": kept, "confirming": "1", "passkey": answer(key, challenge)}
    assert send(**sent).status_code == 303
    assert site.api("steward").get(f"{site.dataset}/policy").json["auto_approve_epsilon"] == "2"
    form["policy_version"] = browser.token(page, "policy_version")
    assert send(confirm_password=PASSWORD).status_code == 303
    here(15)  # it was just shown
    form["policy_version"] = browser.token(page, "policy_version")
    assert send().status_code == 303

    here(1e-9)
    wanted = site.pages("analyst-2")
    closed = site.api("steward").get(page).json | {"analysts": [site.actor("analyst").name]}
    assert site.api("steward").put(page, closed).status_code == 200
    wanted.post(f"{site.dataset}/access", site.dataset, reason="a study")
    (access,) = site.api("analyst-2").get("/decisions").json["decisions"]
    granting = {"answer": "yes", "reason": "welcome", **junk}
    assert browser.post(f"/decisions/{access['id']}", page, **granting).status_code == 403
    assert site.api("analyst-2").get("/decisions").json["decisions"][0]["state"] == "open"


def test_who_finds_an_administrators_session_open_makes_nobody_and_changes_no_roles(site, here):
    browser, name = site.pages("administrator"), site.actor("analyst").name
    here(1e-9)
    acts = {
        "/people": {"name": "mallory", "roles": "steward"},
        f"/people/{name}/roles": {"roles": "steward"},
        f"/people/{name}/password": {},
    }
    for where, form in acts.items():
        refused = browser.post(where, "/people", **form)
        assert (refused.status_code, "Is it still you?" in refused.text) == (403, True), where
    assert credentials.find_user(site.engine, name="mallory") is None
    assert credentials.find_user(site.engine, name=name).roles == ["analyst"]
    here(15)
    assert browser.post("/people", "/people", **acts["/people"]).status_code == 201


def test_a_session_alone_takes_no_passkey_away(site, here):
    """However fresh it is; the password counts only for somebody who may have lost their only
    passkey.
    """
    key, actor = added(site, "steward"), site.actor("steward")
    other = Passkey(actor.name, HOST)
    passkeys.add(
        site.engine, actor, "phone", other.signer.key.encode(), other.cose, other.signer, 0
    )  # fmt: skip
    browser = site.pages("steward")
    first, second = (each["id"] for each in passkeys.of(site.engine, actor.id))

    def remove(which: str, **form: str) -> Any:
        return browser.post(f"/account/passkeys/{which}/remove", "/account", **form)

    assert remove(first).status_code == 403
    assert remove(first, confirm_password=PASSWORD).status_code == 403
    kept, challenge = asked(remove(first))
    stranger = Passkey("mallory", HOST)
    sent = {"passkey_id": kept, "confirming": "1"}
    assert remove(first, **sent, passkey=answer(stranger, challenge)).status_code == 403
    assert len(passkeys.of(site.engine, actor.id)) == 2
    kept, challenge = asked(remove(first))
    sent = {"passkey_id": kept, "confirming": "1", "passkey": answer(key, challenge)}
    assert remove(first, **sent).status_code == 303
    assert [each["id"] for each in passkeys.of(site.engine, actor.id)] == [second]
    assert remove(second).status_code == 403
    assert remove(second, confirm_password="not this one").status_code == 403
    assert remove(second, confirm_password=PASSWORD).status_code == 303
    assert passkeys.of(site.engine, actor.id) == []
