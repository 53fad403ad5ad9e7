"""The judgement of an ε: a scale that tells 3 from 8 and warns at 50, beside what others
published.
"""

import pytest

from web.meaning import REFERENCES, SCALE, judgement, meaning


@pytest.mark.parametrize(("epsilon", "level", "warned"), [
    ("0.5", "strong", False),
    ("1", "strong", False),
    ("3", "fair", False),
    ("8", "weak", False),
    ("15", "very weak", False),
    ("20.5", "hardly any", True),
    ("50", "none to speak of", True),
    ("1000", "none to speak of", True),
])  # fmt: skip
def test_levels(epsilon, level, warned):
    found = meaning(epsilon, "0.000001")["judgement"]
    assert (found["level"], found["warning"]) == (level, warned)
    assert f"ε {float(epsilon):g}" in found["sentence"]


def test_a_larger_epsilon_is_never_judged_better():
    levels = [each.level for each in SCALE]
    found = [levels.index(judgement(step / 4)["level"]) for step in range(1, 400)]
    assert found == sorted(found)
    assert set(found) == set(range(len(SCALE)))


def test_every_reference_says_what_it_covers_and_where_it_stands():
    assert all(each.covers and each.source and each.who for each in REFERENCES)
    assert [each.epsilon for each in REFERENCES] == sorted(each.epsilon for each in REFERENCES)


def test_pages_and_the_api_judge_alike(site):
    page = site.pages("analyst").get(site.dataset).text
    assert "protection: weak" in page
    told = site.api("analyst").get("/meaning?epsilon=50&delta=0.000001").json["judgement"]
    assert told["warning"]
    form = site.pages("steward")
    data = {
        "csrf_token": form.token("/add-dataset"),
        "step": "allowance",
        "epsilon": "50",
        "delta": "1e-6",
    }
    panel = form.client.post("/add-dataset/meaning", data=data).text
    assert "promises next to nothing" in panel
    assert "OpenDP Deployments Registry" in panel
