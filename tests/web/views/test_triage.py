"""Several requests decided together: their sum is that of approving them one after the other."""

import pytest

from accountant.queries import inbox, triage
from tests.web.browsers import Site

HERE = "/inbox/several"


def states(site: Site, *jobs: str) -> list[str]:
    api = site.api("steward")
    return [api.get(f"/jobs/{each}").json["state"] for each in jobs]


def press(site: Site, decision: str, *jobs: str, seen: tuple[str, ...] | None = None, reason: str = "fine"):
    browser = site.pages("steward")
    data = {"csrf_token": browser.token(HERE), "decision": decision, "reason": reason, "jobs": list(jobs)}
    if seen is not None:
        data["seen"] = ",".join(sorted(seen))
    return browser.client.post(HERE, data=data)


def test_the_sum_is_that_of_approving_one_after_the_other(site):
    jobs = [site.submitted(tokens=tokens) for tokens in (150, 150, 150, 20)]  # room for 360
    steward = site.actor("steward")
    waiting = [each for each in inbox.waiting(site.engine, steward, limit=50) if each["id"] in jobs]
    (told,) = triage.together(site.engine, steward, waiting)
    assert told.fitting == (jobs[0], jobs[1], jobs[3])
    assert list(told.refused) == [jobs[2]]
    answer = press(site, "preview", *jobs)
    assert f"{site.bench.dataset}: 3 of 4 fit" in answer.text
    assert states(site, *jobs) == ["awaiting_approval"] * 4
    assert press(site, "approve", *jobs, seen=tuple(jobs)).status_code == 303
    assert states(site, *jobs) == ["queued", "queued", "refused", "queued"]
    after = site.api("steward").get(site.dataset).json["account"]["filters"]
    for step, row in zip(told.filters, after, strict=True):
        assert (step.kind, str(step.left_after)) == (row["kind"], row["left"])


@pytest.mark.parametrize("seen", [None, (), "other"])
def test_what_was_not_looked_at_is_not_decided(site, seen):
    first, second = site.submitted(), site.submitted(tokens=11)
    answer = press(site, "approve", first, second, seen=(first,) if seen == "other" else seen)
    assert answer.status_code == 409
    assert "2 of 2 fit" in answer.text
    assert states(site, first, second) == ["awaiting_approval"] * 2


def test_one_that_cannot_be_decided_keeps_no_other_from_its_decision(site):
    gone, fine = site.submitted(), site.submitted(tokens=11)
    site.api("analyst").post(f"/jobs/{gone}/cancel")
    press(site, "refuse", gone, fine, seen=(gone, fine))
    assert states(site, gone, fine) == ["cancelled", "refused"]


@pytest.mark.parametrize(("jobs", "reason", "field"), [((), "fine", "jobs"), (("one",), " ", "reason")])
def test_what_lacks_is_told_beside_its_field(site, jobs, reason, field):
    chosen = tuple(site.submitted() for _ in jobs)
    answer = press(site, "approve", *chosen, seen=chosen, reason=reason)
    assert (answer.status_code, f'id="problem-{field}"' in answer.text) == (422, True)
