"""The wizard: steps that lose nothing, errors beside the field, one write; allowance and policy."""

import html
import io
import re

import pytest

from accountant.core.ledger.policy import Policy
from accountant.transactions import policies
from web.meaning import at_most, meaning
from web.views import policies as policies_page
from web.views import presets

pytestmark = pytest.mark.slow

STEPS = [
    {"uri": "/data/x.csv", "description": "kept & shown"},
    {"text_template": "{title}. {body}", "label_column": "kind", "labels": "good\r\nbad\r\n"},
    {
        "neighbours": "replace-one",
        "unit_column": "person",
        "max_records_per_unit": "3",
        "public_size": "4000",
    },
    {"epsilon": "3", "delta": "1e-6", "reason": "a pilot"},
    {"policy.auto_approve_epsilon": "0.5", "policy.solo": "1"},
    {},
]


def fields(page: str) -> dict[str, str]:
    """Return the wizard's fields as a browser would send them: hidden ones and the input in the
    others.
    """
    form = page.partition('<form id="wizard"')[2].partition("</form>")[0]
    found = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
    found |= dict(
        re.findall(r'<input class="form-control"[^>]* name="([^"]+)"[^>]* value="([^"]*)"', form)
    )
    found |= dict(re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>\n([^<]*)</textarea>', form))
    for name, more, options in re.findall(
        r'<select[^>]* name="([^"]+)"([^>]*)>(.*?)</select>', form, re.S
    ):
        offered = re.findall(r'<option(?: value="([^"]*)")?( selected)?', options)
        chosen = [value for value, selected in offered if selected]
        if chosen or "multiple" not in more:  # of several, nothing chosen is nothing sent
            found[name] = chosen[0] if chosen else offered[0][0]
    checked = re.findall(r'type="(?:checkbox|radio)" name="([^"]+)" value="([^"]*)" checked', form)
    return {name: html.unescape(value) for name, value in {**found, **dict(checked)}.items()}


class Walk:
    """A browser without scripts in the wizard: its fields hold what the page says, and what is
    typed.
    """

    def __init__(self, site, who: str = "steward") -> None:
        self.client = site.pages(who).client
        self.page = self.client.get("/add-dataset").text

    def send(self, action: str = "next", **typed: str) -> int:
        answer = self.client.post(
            "/add-dataset", data={**fields(self.page), **typed, "action": action}
        )
        self.page, self.answer = answer.text, answer
        return answer.status_code

    @property
    def step(self) -> str:
        found = re.search(r'name="step" value="(\w+)"', self.page)
        return found[1] if found else "none"


def walked(site, name: str) -> Walk:
    walk = Walk(site)
    for typed in STEPS[:-1]:
        own = {"name": name} | typed if "uri" in typed else typed
        assert walk.send(**own) == 200, walk.page
    assert walk.step == "review"
    return walk


def test_a_dataset_in_steps(site):
    name = f"walked-{site.bench.dataset}"
    walk = walked(site, name)
    for each in (
        name,
        "/data/x.csv",
        "kept &amp; shown",
        "good, bad",
        "person",
        "replace-one",
        "a pilot",
    ):
        assert each in walk.page
    assert "by a steward above ε 0.5, and of every ex-post or secret job; solo" in walk.page
    assert at_most(meaning("3", "1e-6")["best_success"]) in walk.page
    # nothing is written before
    assert site.api("steward").get(f"/datasets/{name}").status_code == 404
    assert walk.send("create") == 303
    found = site.api("steward").get(f"/datasets/{name}").json
    assert (found["labels"], found["public_size"], found["unit"]) == (
        ["good", "bad"],
        4000,
        "person",
    )
    assert (found["neighbours"], found["max_records_per_unit"]) == ("replace-one", 3)
    assert (found["account"]["epsilon"], found["account"]["delta"]) == ("3", "0.000001")
    assert found["policy"]["solo"] is True
    again = walked_again(site, name)
    assert again.send(name=name, uri="/data/x.csv") == 422
    assert "already" in again.page


def walked_again(site, name: str) -> Walk:
    return Walk(site)


def test_going_back_and_errors_lose_nothing(site):
    walk = walked(site, f"back-{site.bench.dataset}")
    assert walk.send("people") == 200
    assert walk.step == "people"
    assert fields(walk.page)["unit_column"] == "person"
    assert walk.send(public_size="many") == 422
    assert walk.step == "people"
    assert 'id="problem-public_size"' in walk.page
    assert 'value="many"' in walk.page
    assert walk.send("data", public_size="many") == 200  # back is no check
    assert fields(walk.page)["description"] == "kept & shown"
    assert walk.send() == 200
    assert walk.step == "texts"
    assert "{title}. {body}" in walk.page
    walk.send()
    assert walk.send() == 422  # what was wrong is still there
    assert walk.send(public_size="") == 200
    assert fields(walk.page)["epsilon"] == "3"
    assert walk.send(epsilon="0") == 422
    assert 'id="problem-epsilon"' in walk.page
    assert walk.send(epsilon="3", reason=" ") == 422
    assert 'id="problem-reason"' in walk.page
    assert walk.send(reason="now") == 200
    assert "policy.solo" in fields(walk.page)
    assert walk.send(**{"policy.analyst_epsilon": "-1"}) == 422
    assert 'id="problem-policy.analyst_epsilon"' in walk.page
    assert walk.send(**{"policy.analyst_epsilon": "2"}) == 200
    assert "cap per analyst" in walk.page


#: By step: what is typed, and the field that is named.
WRONG = [
    [({"name": "Not A Name"}, "name"), ({"uri": ""}, "uri")],
    [({"text_template": "no column"}, "text_template"), ({"labels": ""}, "labels")],
    [
        ({"max_records_per_unit": "x"}, "max_records_per_unit"),
        ({"unit_column": ""}, "max_records_per_unit"),
        ({"neighbours": "friends"}, "neighbours"),
    ],
    [
        ({"delta": "2"}, "delta"),
        ({"epsilon": "much"}, "epsilon"),
        ({"order": "0.5"}, "order"),
        (
            {
                "shares.renyi": "2",
                "shares.gaussian": "0",
                "shares.renyi2": "0",
                "shares.basic": "0",
            },
            "shares.renyi",
        ),
        ({"ex_post": "-1"}, "ex_post"),
        ({"secret.prior": "x"}, "secret.prior"),
    ],
    [({"policy.approval_days": "0"}, "policy.approval_days")],
]


def test_an_error_stands_beside_its_field(site):
    walk = Walk(site)
    for number, (right, wrong) in enumerate(zip(STEPS, WRONG, strict=False)):
        own = {"name": f"wrong-{site.bench.dataset}"} | right if number == 0 else right
        before, step = walk.page, walk.step
        for typed, field in wrong:
            walk.page = before
            assert walk.send(**(own | typed)) == 422, typed
            assert f'id="problem-{field}"' in walk.page
            assert walk.step == step
        walk.page = before
        assert walk.send(**own) == 200, walk.page


def test_other_currencies_and_an_allowance_for_later(site):
    walk = Walk(site)
    name = f"others-{site.bench.dataset}"
    secret = {"prior": "0.0001", "bound": "0.01", "records_per_secret": "2", "sampling_rate": "1"}
    typed = {f"secret.{key}": value for key, value in secret.items()} | {
        "ex_post": "",
        "reason": "x",
    }
    steps = [{"name": name, "uri": "/x.csv"}, {}, {}, typed | {"epsilon": "3", "delta": "1e-6"}, {}]
    for each in steps:
        assert walk.send(**each) == 200, walk.page
    assert walk.send("create") == 303
    found = site.api("steward").get(f"/datasets/{name}").json
    assert (found["secret"]["bound"], found["secret"]["kind"]) == (0.01, "many")
    walk, name = Walk(site), f"later-{site.bench.dataset}"
    for each in [{"name": name, "uri": "/x.csv"}, {}, {}, {}, {}]:
        assert walk.send(**each) == 200, walk.page
    assert "left for later" in walk.page
    assert walk.send("create") == 303
    assert site.api("steward").get(f"/datasets/{name}").json["account"] is None


def test_what_is_kept_is_signed_and_of_one_person(site):
    walk = walked(site, f"signed-{site.bench.dataset}")
    kept = fields(walk.page)["kept"]
    assert walk.send("create", kept=kept[:-3] + "abc") == 422
    assert walk.step == "data"
    other = Walk(site, "steward-2")
    assert other.send("create", kept=kept, step="review") == 422
    assert site.pages("analyst").get("/add-dataset").status_code == 403


def test_the_panel_says_what_the_api_says(site):
    browser = site.pages("steward")
    told = site.api("analyst").get("/meaning?epsilon=1&delta=1e-6").json
    assert told["best_success"] == pytest.approx(0.7310588, abs=1e-6)
    page = browser.post(
        "/add-dataset/meaning", "/add-dataset", step="allowance", epsilon="1", delta="1e-6"
    )
    assert "<html" not in page.text
    assert "73.2 %" in page.text  # rounded up: a bound
    assert html.escape(told["sentences"][0]) in page.text
    for wrong in ("epsilon=&delta=", "epsilon=x&delta=0.1", "epsilon=1&delta=1e-6&neighbours=no"):
        assert site.api("analyst").get(f"/meaning?{wrong}").status_code == 422


# --- allowance and policy -----------------------------------------------------------------------


def test_an_allowance_is_previewed_as_it_is_then_set(site):
    api, browser = site.api("steward"), site.pages("steward")
    page = f"{site.dataset}/policy"
    asked = {"epsilon": "12", "delta": "0.000001", "reason": "more"}
    told = api.post(f"{site.dataset}/allowance/preview", asked).json
    shown = browser.post(f"{site.dataset}/allowance/effect", page, **asked).text
    review = browser.post(f"{site.dataset}/allowance/review", page, **asked).text
    assert api.get(site.dataset).json["account"]["epsilon"] == "10"
    assert "Nothing is changed yet" in review
    assert 'value="12"' in review
    assert "formaction" not in review.partition('id="allow"')[2].partition("data-action")[0]
    assert browser.post(f"{site.dataset}/allowance", page, **asked).status_code == 303
    for each, row in zip(
        told["filters"], api.get(site.dataset).json["account"]["filters"], strict=True
    ):
        assert each["after"] == row["limit"]
    assert "Limits of each filter" in shown
    assert site.pages("analyst").get(page).status_code == 403


def test_a_change_of_policy_is_told_in_sentences(site):
    browser, page = site.pages("steward"), f"{site.dataset}/policy"
    policies.set_policy(site.engine, site.bench.dataset, Policy(solo=True), site.bench.steward)
    typed = {"policy.auto_approve_epsilon": "0.5", "policy.analyst_epsilon": "2"}
    for where in ("effect", "review"):
        told = browser.post(f"{site.dataset}/policy/{where}", page, **typed).text
        assert "(ε, δ) jobs of up to ε 0.5 by themselves need no steward (now: 0)." in told
        assert "A steward may no longer approve a job of their own." in told
        assert "may add up to ε 2 (now: none)" in html.unescape(told)
        assert (
            "second steward"
            not in told.partition("What it changes")[2]
            .partition("What this")[0]
            .partition("</aside>")[0]
            or where == "review"
        )
    assert site.api("steward").get(site.dataset).json["policy"]["solo"] is True
    typed["policy_version"] = browser.token(page, "policy_version")
    assert browser.post(f"{site.dataset}/policy", page, **typed).status_code == 303
    assert site.api("steward").get(site.dataset).json["policy"]["solo"] is False
    policies.set_policy(
        site.engine, site.bench.dataset, Policy(approval_days=3), site.bench.steward
    )
    told = browser.post(f"{site.dataset}/policy/effect", page, **typed).text
    assert "Days until a request expires: no limit (now: 3)." in told


def test_columns_come_from_a_file_that_was_sent(site):
    sent = (
        site.api("steward").raw("/uploads", b"person,story,kind\nann,once upon a time,good\n").json
    )
    walk = Walk(site)
    assert sent["address"] in walk.page
    name = f"sent-{site.bench.dataset}"
    assert walk.send(name=name, file=sent["address"], uri="") == 200
    assert walk.page.count('<option value="story" >story</option>') == 2
    assert walk.send(text_column="story", label_column="kind", labels="good") == 200
    assert walk.send(unit_column="person", max_records_per_unit="2") == 200
    for _ in range(2):
        assert walk.send() == 200
    assert "{story}" in walk.page
    assert walk.send("create") == 303
    found = site.api("steward").get(f"/datasets/{name}").json
    assert (found["text_template"], found["label_column"], found["unit"]) == (
        "{story}",
        "kind",
        "person",
    )
    assert found["versions"][0]["uri"] == sent["address"]


def test_labels_are_asked_for_where_a_column_of_labels_is_chosen(site):
    walk = Walk(site)
    walk.send(name="labelled", **STEPS[0])
    assert "needed where a column is chosen" in walk.page
    assert walk.send(text_template="{text}", label_column="kind", labels="") == 422
    assert 'id="problem-labels"' in walk.page
    box = walk.page.partition('id="labels"')[2].partition(">")[0]
    assert "required" in box


def test_a_file_that_was_sent_is_listed_under_its_name(site):
    browser = site.pages("steward")
    content, odd = b"title,text\nfirst,a letter\n", "Patients\u202e 2026.csv"
    sent = {"csrf_token": browser.token("/uploads"), "file": (io.BytesIO(content), odd)}
    assert browser.client.post("/uploads", data=sent).status_code == 303
    for page in ("/uploads", "/add-dataset"):
        assert "Patients 2026.csv" in browser.get(page).text
    api = site.api("steward")
    assert api.get("/uploads").json["uploads"][0]["name"] == "Patients 2026.csv"
    for called in ("letters.csv", "/home/me/letters.csv", "C:%5Cmine%5Cletters.csv"):
        again = api.raw(f"/uploads?name={called}", content).json
        assert again["name"] == "letters.csv"  # the same bytes, as they were called last
    assert api.raw("/uploads?name=%0A%09", content).json["name"] is None


def upload(walk, content: bytes, called: str, **typed: str):
    """The first step with a file in it."""
    data = {**fields(walk.page), **typed, "action": "next", "upload": (io.BytesIO(content), called)}
    answer = walk.client.post("/add-dataset", data=data)
    walk.page = answer.text
    return answer.status_code


def test_the_first_step_takes_the_file_itself(site):
    walk = Walk(site)
    assert upload(walk, b"kind,body\ngood,a letter\n", "Letters of 2026.csv") == 200
    assert walk.step == "texts"
    assert '<option value="body" >body</option>' in walk.page
    for typed in ({"text_column": "body"}, {"neighbours": "replace-one"}, {}, {}):
        assert walk.send(**typed) == 200, walk.step
    assert walk.step == "review"
    assert "letters-of-2026" in walk.page
    named = site.api("steward").get("/uploads").json["uploads"][0]
    assert named["name"] == "Letters of 2026.csv"
    assert named["address"] in walk.page


def test_a_file_that_is_no_table_is_named_beside_its_field(site):
    walk = Walk(site)
    assert upload(walk, b"\x00\x01nothing", "x.csv", name="kept-name") == 422
    assert (walk.step, fields(walk.page)["name"]) == ("data", "kept-name")
    assert 'id="problem-upload"' in walk.page


def test_only_stewards_send_files_through_the_wizard(site):
    big = {"upload": (io.BytesIO(b"x" * 2_000_000), "x.csv")}
    assert site.pages("analyst").client.post("/add-dataset", data=big).status_code in (403, 413)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_fills_the_form_and_changes_nothing_before_it_is_saved(site, name):
    browser, page = site.pages("steward"), f"{site.dataset}/policy"
    before = Policy(analyst_epsilon="2", two_people=True, mechanisms=("noisy-count",))
    policies.set_policy(site.engine, site.bench.dataset, before, site.bench.steward)
    typed = {"policy.analyst_epsilon": "2", "policy.mechanisms": "noisy-count"}
    typed |= {"policy.two_people": "1", "policy.auto_approve_epsilon": "0", "preset": name}
    shown = browser.post(f"{page}/review", page, **typed).text
    assert site.api("steward").get(f"{site.dataset}/policy").json["two_people"] is True
    filled = policies_page.policy_of(presets.applied(typed))
    assert filled == before.model_dump(mode="json") | presets.PRESETS[name].fields
    days = presets.PRESETS[name].fields["approval_days"] or ""
    assert re.search(rf'name="policy.approval_days"[^>]* value="{days}"', shown)
    weaker = html.unescape(shown).partition("This weakens the policy:")[2].partition("</ul>")[0]
    assert ("no longer needs a second steward" in weaker) == (name != "hospital")
    assert len(presets.PRESETS[name].meaning) == 6
    assert {each for group in presets.GROUPS.values() for each in group} == set(Policy.model_fields)


def test_enter_in_a_field_of_the_policy_chooses_no_preset(site):
    page = site.pages("steward").get(f"{site.dataset}/policy").text
    form = page.partition('<form id="change-policy"')[2]
    first = re.search(r"<button[^>]*>", form)
    assert first is not None
    assert "preset" not in first[0]
    assert "/policy/review" in first[0]


def test_data_that_never_comes_here_is_registered_for_charges_alone(site):
    name, walk = f"far-{site.bench.dataset}", Walk(site)
    assert walk.send(name=name) == 422  # no address, and nobody said that there is none
    for typed in ({"elsewhere": "1"}, {}, {"unit_column": "patient"}, {}, {}):
        assert walk.send(**typed) == 200, walk.page
    assert (walk.step, "none: the data never comes here" in walk.page) == ("review", True)
    assert walk.send("create") == 303
    found = site.api("steward").get(f"/datasets/{name}").json
    assert (found["state"], found["unit"]) == ("ready", "patient")
    page = site.pages("steward").get(f"/datasets/{name}").text
    assert "only charges are made, and it has no fingerprints" in page
    assert "that its people have no other account" in page
    assert "Add the version" not in page
    assert "the terms of the data, which never comes here" in page
    form = site.pages("steward").get(f"/datasets/{name}/submit?mechanism=noisy-count")
    assert (form.status_code, "so no job of this service reads it" in form.text) == (200, True)
