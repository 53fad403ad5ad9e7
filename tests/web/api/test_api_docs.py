"""The API's page: everything that the description says, on the server's own page, without
scripts.
"""

import re

from web.api.openapi import routes


def test_each_operation_has_an_anchor_a_command_and_its_answers(app):
    answer = app.test_client().get("/api/docs")
    assert answer.status_code == 200
    assert answer.mimetype == "text/html"
    for route in routes(app):
        name = route.endpoint.removeprefix("api.")
        assert answer.text.count(f'id="op-{name}"') == 1
        assert f'href="#op-{name}"' in answer.text
        assert f"$URL{route.path}" in answer.text


def test_anchors_are_told_apart_and_lead_somewhere(app):
    text = app.test_client().get("/api/docs").text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_every_problem_s_type_is_an_anchor_of_the_page(app, site):
    text = app.test_client().get("/api/docs").text
    for path in ("/api/v1/nothing", "/api/v1/me", "/api/v1/decisions/x/answer"):
        address = app.test_client().get(path).json["type"]
        page, _, anchor = address.partition("#")
        assert page == "/api/docs"
        assert f'id="{anchor}"' in text


def test_it_needs_nothing_from_elsewhere_and_no_script(app):
    text = app.test_client().get("/api/docs").text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert " style=" not in text
    assert not re.findall(r"<script(?![^>]*src=)", text)
    assert app.test_client().get("/").status_code == 303  # no other page opens without signing in


def test_people_find_it_from_every_page(site):
    assert 'href="/api/docs"' in site.pages("analyst").get("/").text
