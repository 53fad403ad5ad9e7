"""Pages: sign-in, CSRF, roles, forms that keep what was typed, one job for two clicks."""

import re

import pytest
from flask import render_template
from sqlalchemy import event

from accountant.queries import spending
from web.views import datasets


def test_pages_ask_for_sign_in_and_go_on_to_where_one_wanted(site):
    browser = site.pages("analyst").client
    fresh = site.app.test_client()
    answer = fresh.get(f"{site.dataset}?before=3")
    assert answer.status_code == 303
    assert "/sign-in?next=" in answer.headers["Location"]
    for elsewhere in (
        "//elsewhere.example/",
        "//[",
        "/\\elsewhere.example",
        "/%09/elsewhere.example",
        "x",
    ):
        assert browser.get(f"/sign-in?next={elsewhere}").headers["Location"] == "/"
    assert browser.get("/sign-in?next=/jobs").headers["Location"] == "/jobs"
    assert browser.get("/sign-in?next=https://elsewhere.example").headers["Location"] == "/"


def test_a_wrong_password_keeps_the_name(site):
    from tests.web.browsers import Pages

    browser = Pages(site.app)
    answer = browser.sign_in(site.actor("analyst").name, "wrong")
    assert answer.status_code == 401
    assert f'value="{site.actor("analyst").name}"' in answer.text


def test_the_typeface_comes_from_here_with_its_licence(site):
    """Six files that the policy of contents admits, each named in the stylesheet, and a licence."""
    client = site.app.test_client()
    css = client.get("/static/exchequer.css")
    assert "font-src 'self'" in css.headers["Content-Security-Policy"]
    files = re.findall(r'url\("([^"]+)"\)', css.text)
    assert len(files) == 6
    sizes = [len(client.get(f"/static/{file}").data) for file in files]
    assert all(8_000 < size < 26_000 for size in sizes)
    licence = client.get(f"/static/{files[0].rpartition('-latin')[0]}.LICENSE")
    assert "SIL OPEN FONT LICENSE" in licence.text


@pytest.mark.parametrize(
    ("role", "seen"),
    [
        ("steward", {"/add-dataset": 200, "/inbox": 200, "/datasets/{}/submit": 200}),
        ("analyst", {"/add-dataset": 403, "/inbox": 403, "/datasets/{}/submit": 200}),
        ("auditor", {"/add-dataset": 403, "/inbox": 403, "/datasets/{}/submit": 403}),
        ("administrator", {"/add-dataset": 403, "/inbox": 403, "/datasets/{}/submit": 403}),
    ],
)
def test_roles_by_page(site, role, seen):
    browser = site.pages(role)
    for path in ("/", "/jobs", "/models", site.dataset):
        assert browser.get(path).status_code == 200, path
    for path, status in seen.items():
        assert browser.get(path.format(site.bench.dataset)).status_code == status, path
    page = browser.get(site.dataset).text
    assert ('id="ledger"' in page) == (role in ("steward", "auditor"))
    assert ("/nowhere.csv" in page) == (role == "steward")


def test_an_allowance_needs_a_reason(site):
    browser = site.pages("steward")
    path = f"{site.dataset}/allowance"
    answer = browser.post(path, site.dataset, epsilon="12", delta="0.000001", reason=" ")
    assert answer.status_code == 422
    assert 'value="12"' in answer.text
    assert 'id="problem-reason"' in answer.text
    assert (
        browser.post(path, site.dataset, epsilon="12", delta="1e-6", reason="more").status_code
        == 303
    )
    assert "to ε 12, δ 1e-6: more" in browser.get(site.dataset).text


def asked(site, **values):
    """A request's form as the page sends it."""
    form = {
        "mechanism": "private-prediction",
        "model": site.bench.model,
        "key": f"k-{site.bench.dataset}",
    }
    form |= {"parameters.tokens_per_batch": "10", "purpose": "by form", "action": "submit"}
    return form | {name.replace("__", "."): value for name, value in values.items()}


def test_two_clicks_are_one_job(site):
    browser = site.pages("analyst")
    page = f"{site.dataset}/submit"
    first, second = (browser.post(page, page, **asked(site)) for _ in range(2))
    assert first.status_code == second.status_code == 303
    assert first.headers["Location"] == second.headers["Location"]
    changed = browser.post(page, page, **asked(site, parameters__tokens_per_batch="11"))
    assert changed.status_code == 409
    assert "made a job already" in changed.text
    assert len(site.api("analyst").get("/jobs").json["jobs"]) == 2  # the other one warmed the probe


@pytest.mark.slow
def test_the_submit_form_prices_fits_and_names_errors(site):
    browser = site.pages("analyst")
    page = f"{site.dataset}/submit"
    priced = browser.post(f"{site.dataset}/price", page, **asked(site))
    assert "jobs of this shape left" in priced.text
    assert "<html" not in priced.text
    fitted = browser.post(page, page, **asked(site, action="fit"))
    tokens = re.search(
        r'name="parameters.tokens_per_batch" type="number" value="(\d+)"', fitted.text
    )
    assert tokens is not None
    assert 200 < int(tokens[1]) <= 375  # what ε 10 alone allows: a first job may take the account
    assert "a steward would have to approve" in fitted.text
    wrong = browser.post(page, page, **asked(site, parameters__clip="-9", purpose="kept"))
    assert wrong.status_code == 422
    assert 'id="problem-parameters.clip"' in wrong.text
    assert 'value="-9"' in wrong.text
    assert "kept" in wrong.text
    for text in ("nan", "1e999", "9" * 400, "abc", "\0", "١٢"):
        for action in ("price", "fit", "submit"):
            answer = browser.post(page, page, **asked(site, parameters__clip=text, action=action))
            assert answer.status_code < 500, (text, action)


def test_the_inbox_decides_for_a_reason(site):
    job_id = site.submitted()
    browser = site.pages("steward")
    page = browser.get("/inbox").text
    assert f'id="decision-{job_id}"' in page
    assert (
        browser.post(f"/decisions/{job_id}", "/inbox", answer="yes", reason="").status_code == 422
    )
    assert (
        browser.post(f"/decisions/{job_id}", "/inbox", answer="maybe", reason="x").status_code
        == 422
    )
    assert (
        browser.post(f"/decisions/{job_id}", "/inbox", answer="yes", reason="yes").status_code
        == 303
    )
    assert f'id="decision-{job_id}"' not in browser.get("/inbox").text
    gone = browser.get(f"/inbox/changes?shown={job_id},%3Cscript%3E").text
    assert f'id="decision-{job_id}" hx-swap-oob="delete"' in gone
    assert "script" not in gone
    again = browser.post(f"/decisions/{job_id}", "/inbox", answer="no", reason="late")
    assert "Nothing was decided" in browser.get(again.headers["Location"]).text


def test_nobody_approves_their_own(site):
    job_id = site.submitted("steward")
    answer = site.pages("steward").post(
        f"/decisions/{job_id}", "/inbox", answer="yes", reason="mine"
    )
    assert answer.status_code == 403
    assert "solo" in answer.text
    assert "look alike" not in answer.text, "it is refused before names are compared"


def test_a_jobs_page_follows_it_to_the_end(site, publish):
    job_id = site.submitted()
    steward, analyst = site.pages("steward"), site.pages("analyst")
    page = analyst.get(f"/jobs/{job_id}").text
    assert "awaiting approval" in page
    assert 'hx-trigger="every 2s"' in page
    steward.post(f"/decisions/{job_id}", "/inbox", answer="yes", reason="yes")
    live = analyst.get(f"/jobs/{job_id}/live")
    assert "queued" in live.text
    assert "RESERVE" in live.text
    assert "HX-Refresh" not in live.headers
    publish(job_id, b'{"text": "<b>hello</b>", "label": "good", "complete": true}\nnot json\n')
    assert analyst.get(f"/jobs/{job_id}/live").headers["HX-Refresh"] == "true"
    page = analyst.get(f"/jobs/{job_id}").text
    assert "&lt;b&gt;hello" in page
    assert "every 2s" not in page
    assert analyst.get(f"/jobs/{job_id}/result").data.startswith(b'{"text"')


def test_a_refusal_says_what_binds(site):
    answer = site.api("analyst").post("/jobs", site.job(9999))
    page = site.pages("analyst").get(f"/jobs/{answer.json['id']}").text
    assert "refused" in page
    assert "largest that fits" in page
    assert re.search(r"tokens per batch = \d{3}<", page)


def test_jobs_can_be_cancelled(site):
    job_id = site.submitted()
    browser = site.pages("analyst")
    page = f"/jobs/{job_id}"
    assert browser.post(f"{page}/cancel", page).status_code == 303
    assert "cancelled" in browser.get(page).text


def test_live_parts_send_a_lost_session_to_sign_in(site):
    answer = site.app.test_client().get("/inbox/changes", headers={"HX-Request": "true"})
    assert answer.status_code == 401
    assert answer.headers["HX-Redirect"] == "/sign-in"


def test_a_count_is_asked_for_by_form_without_a_model_and_its_result_is_shown(site, publish):
    browser = site.pages("analyst")
    form = {"mechanism": "noisy-count", "purpose": "how many", "key": f"count-{site.bench.dataset}"}
    shown = browser.post(
        f"{site.dataset}/submit", f"{site.dataset}/submit", **form, action="price"
    ).text
    assert 'id="model"' not in shown
    assert 'id="parameters.noise_multiplier"' in shown
    typed = form | {"parameters.noise_multiplier": "3", "action": "fit"}
    fitted = browser.post(f"{site.dataset}/submit", f"{site.dataset}/submit", **typed).text
    assert re.search(r'name="parameters.noise_multiplier" type="number" value=""', fitted)
    assert re.search(r'name="parameters.epsilon" type="number" value="[0-9]', fitted)
    form |= {"parameters.epsilon": "0.5", "action": "submit"}
    answer = browser.post(f"{site.dataset}/submit", f"{site.dataset}/submit", **form)
    assert answer.status_code == 303, answer.text
    page = answer.headers["Location"]
    job = page.rsplit("/", 1)[1]
    steward = site.pages("steward")
    assert "noisy-count ·" in steward.get("/inbox").text
    steward.post(f"/decisions/{job}", "/inbox", answer="yes", reason="yes")
    publish(job, b'{"label": null, "count": -3}\n')
    text = browser.get(page).text
    assert "<dt>model</dt><dd>none</dd>" in text
    assert '<strong class="tab">-3</strong>' in text
    assert "by these counts" not in text, "no label has one"


def test_models_by_form(site):
    browser = site.pages("steward")
    typed = {"name": f"m-{site.bench.dataset}", "path": "/models/x", "trained_on": "public text"}
    assert browser.post("/models", "/models", **typed).status_code == 303
    assert typed["name"] in browser.get("/models").text
    answer = browser.post("/models", "/models", **{**typed, "trained_on": "", "name": "other"})
    assert answer.status_code == 422
    assert 'value="other"' in answer.text


def test_refused_data_can_be_declared_again(site):
    from accountant.catalogue import datasets

    name = f"broken-{site.bench.dataset}"
    raw = {"name": name, "uri": "/data/wrong.csv"}
    version = datasets.add_dataset(site.engine, datasets.read_dataset(raw), site.actor("steward"))
    datasets.dataset_refused(site.engine, version, "no column 'text'")
    browser, path = site.pages("steward"), f"/datasets/{name}"
    page = browser.get(path).text
    assert "no column &#39;text&#39;" in page
    assert 'value="/data/wrong.csv"' in page
    assert "no column" not in site.pages("analyst").get(path).text
    typed = {"uri": "/data/right.csv", "text_template": "{body}", "max_records_per_unit": "1"}
    assert browser.post(f"{path}/data", path, **{**typed, "labels": "a"}).status_code == 422
    assert browser.post(f"{path}/data", path, **typed).status_code == 303
    assert site.api("steward").get(path).json["text_template"] == "{body}"
    assert (
        browser.post(f"{path}/data", path.replace(name, site.bench.dataset), **typed).status_code
        == 409
    )


def test_groups_and_secrets_of_refused_data_can_be_declared_again(site):
    from accountant.catalogue import datasets

    name = f"grouped-{site.bench.dataset}"
    declared = {"group_column": "clinic", "groups": ["north"], "secret_patterns": [r"\b\d{4}\b"]}
    raw = {"name": name, "uri": "/data/g.csv", **declared}
    version = datasets.add_dataset(site.engine, datasets.read_dataset(raw), site.actor("steward"))
    datasets.dataset_refused(site.engine, version, "no column 'clinic'")
    browser, path = site.pages("steward"), f"/datasets/{name}"
    page = browser.get(path).text
    assert 'value="clinic"' in page
    assert r"\b\d{4}\b" in page
    typed = {"uri": "/data/g.csv", "text_template": "{text}", "max_records_per_unit": "1"}
    typed |= {
        "group_column": "ward",
        "groups": "north\nsouth",
        "secret_terms": "Anna",
        "secret_patterns": r"\d+",
    }
    refused = browser.post(f"{path}/data", path, **typed)
    assert refused.status_code == 422
    assert "secret_patterns" in refused.text
    typed["secret_patterns"] = r"\d{6}"
    assert browser.post(f"{path}/data", path, **typed).status_code == 303
    found = site.api("steward").get(path).json
    assert (found["group_column"], found["groups"]) == ("ward", ["north", "south"])
    assert (found["secret_patterns"], found["secret_terms"]) == ([r"\d{6}"], ["Anna"])


def test_a_page_that_is_not_there_is_readable(site):
    answer = site.pages("analyst").get("/nothing/here")
    assert answer.status_code == 404
    assert "What next" in answer.text


def test_a_datasets_page_is_of_one_moment_on_one_connection(site, monkeypatch):
    """A job that is submitted while the page is read is on the next one."""
    engine, steward = site.app.extensions["exchequer"]["engine"], site.pages("steward")
    steward.get(site.dataset)
    figures, checkouts, made = spending.figures, [], []

    def meanwhile(*given):
        made.append(str(site.bench.submit(3)))
        return figures(*given)

    def rendered(*given, **more):
        page = render_template(*given, **more)
        checkouts.append("rendered")
        return page

    def taken(*_):
        checkouts.append("taken")

    monkeypatch.setattr(spending, "figures", meanwhile)
    monkeypatch.setattr(datasets, "render_template", rendered)
    event.listen(engine, "checkout", taken)
    page = steward.get(site.dataset).text
    event.remove(engine, "checkout", taken)
    assert made[0][:8] not in page
    assert made[0][:8] in steward.get(site.dataset).text
    before = checkouts[: checkouts.index("rendered")]
    assert len(before) <= 2, "one for whose session it is, and one for all that the page shows"
