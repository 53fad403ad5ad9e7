"""Asking for access from a dataset's page, and the answer from the inbox."""

import re


def closed(site) -> None:
    """Only the bench's analyst may ask."""
    policy = {"analysts": [site.actor("analyst").name]}
    assert site.api("steward").put(f"{site.dataset}/policy", policy).status_code == 200


def test_a_request_for_access_from_page_to_answer(site):
    closed(site)
    asker, steward = site.pages("analyst-new"), site.pages("steward")
    name = site.actor("analyst-new").name
    page = asker.get(site.dataset).text
    assert "Ask for access" in page
    assert f'href="{site.dataset}/submit"' not in page
    assert "Ask for access" not in site.pages("analyst").get(site.dataset).text
    assert "Ask for access" not in site.pages("auditor").get(site.dataset).text
    empty = asker.post(f"{site.dataset}/access", site.dataset, reason=" ")
    assert empty.status_code == 422
    assert 'id="problem-reason"' in empty.text
    assert asker.post(f"{site.dataset}/access", site.dataset, reason="a study").status_code == 303
    assert "waits for the dataset" in asker.get(site.dataset).text
    again = asker.post(f"{site.dataset}/access", "/account/tokens", reason="a study")
    assert again.status_code == 409

    inbox = steward.get("/inbox").text
    assert f"{name} to <a" in inbox
    wanted = next(
        each for each in re.findall(r"<article.*?</article>", inbox, re.S) if f"{name} to" in each
    )
    where = re.search(r'action="(/decisions/[^"]+)"', wanted)[1]
    digits = where[: len("/decisions/") + 8]  # they name it to whoever may see it
    assert steward.get(digits).status_code == 200
    unseen = site.pages("analyst-2").get(digits)
    assert unseen.status_code == 404
    assert where.rpartition("/")[2] not in unseen.text
    unread = steward.post(where, "/inbox", answer="yes", reason="")
    assert unread.status_code == 422
    assert 'id="problem-reason"' in unread.text
    assert steward.post(where, "/inbox", answer="no", reason="not this one").status_code == 303
    assert "not this one" in asker.get(site.dataset).text
    asker.post(f"{site.dataset}/access", site.dataset, reason="a better reason")
    inbox = steward.get("/inbox").text
    wanted = next(
        each for each in re.findall(r"<article.*?</article>", inbox, re.S) if f"{name} to" in each
    )
    where = re.search(r'action="(/decisions/[^"]+)"', wanted)[1]
    steward.post(where, "/inbox", answer="yes", reason="welcome")
    assert f'href="{site.dataset}/submit"' in asker.get(site.dataset).text
    assert asker.get(f"{site.dataset}/submit").status_code == 200


def test_the_steward_of_another_dataset_sees_no_request(site):
    closed(site)
    other = site.actor("steward-other").name
    owned = {"analysts": [site.actor("analyst").name], "stewards": [site.bench.steward.name]}
    assert site.api("steward").put(f"{site.dataset}/policy", owned).status_code == 200
    asker = site.pages("analyst-new")
    assert asker.post(f"{site.dataset}/access", site.dataset, reason="a study").status_code == 303
    name = site.actor("analyst-new").name
    inbox = site.pages("steward").get("/inbox").text
    assert f"{name} to <a" in inbox
    where = re.search(r'action="(/decisions/[^"]+)"', inbox[inbox.index(f"{name} to <a") :])[1]
    stranger = site.pages("steward-other")
    assert other != site.bench.steward.name
    assert name not in stranger.get("/inbox").text
    assert stranger.post(where, "/account/tokens", answer="yes", reason="mine").status_code == 404
