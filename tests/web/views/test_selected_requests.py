"""Several requests of the inbox answered together: each is decided as if it were alone, the oldest
first.
"""

import re

import pytest

from tests.web.browsers import Site

pytestmark = pytest.mark.slow

HERE = "/inbox/selected"


def states(site: Site, *jobs: str) -> list[str]:
    api = site.api("steward")
    return [api.get(f"/jobs/{job}").json["state"] for job in jobs]


def press(site: Site, decision: str, *jobs: str, where: str = HERE, reason: str = "fine"):
    browser = site.pages("steward")
    data = {
        "csrf_token": browser.token("/inbox"),
        "answer": decision,
        "reason": reason,
        "ids": list(jobs),
    }
    return browser.client.post(where, data=data)


def test_a_page_confirms_and_each_is_decided_like_one_alone(site):
    jobs = [site.submitted(tokens=tokens) for tokens in (150, 150, 150, 20)]  # room for 359
    confirmation = press(site, "yes", *reversed(jobs), where=f"{HERE}/confirm")
    assert confirmation.status_code == 200
    assert states(site, *jobs) == ["awaiting_approval"] * 4
    named = re.findall(r'name="ids" value="([^"]+)"', confirmation.text)
    assert named == jobs
    assert press(site, "yes", *named).status_code == 303
    assert states(site, *jobs) == ["queued", "queued", "refused", "queued"]
    page = site.pages("steward").get("/inbox").text
    assert "fine" in site.api("steward").get(f"/jobs/{jobs[0]}").text
    assert jobs[0] not in page


def test_one_that_cannot_be_decided_keeps_no_other_from_its_decision(site):
    gone, fine = site.submitted(), site.submitted(tokens=11)
    site.api("analyst").post(f"/jobs/{gone}/cancel")
    press(site, "no", gone, fine)
    assert states(site, gone, fine) == ["cancelled", "refused"]


@pytest.mark.parametrize("where", [HERE, f"{HERE}/confirm"])
@pytest.mark.parametrize(
    ("count", "reason", "field"), [(0, "fine", "ids"), (1, " ", "reason"), (21, "fine", "ids")]
)
def test_what_lacks_is_told_beside_its_field(site, where, count, reason, field):
    waiting = [site.submitted() for _ in range(2)]
    made_up = [f"00000000-0000-4000-8000-{number:012}" for number in range(count - 1)]
    jobs = [*waiting[:count], *made_up][:count]
    answer = press(site, "yes", *jobs, where=where, reason=reason)
    assert (answer.status_code, f'id="problem-{field}"' in answer.text) == (422, True)
    assert states(site, *waiting) == ["awaiting_approval"] * 2
    assert ("checked" in answer.text) == (count > 0), "the selection stays"
