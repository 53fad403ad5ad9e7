"""The documents, served and as a site: every link leads somewhere, no address leads elsewhere."""

import re
import shlex

import pytest
import typer

from accountant.core import mechanisms
from web import documents, fields
from web.cli.commands import app as command_line

KNOWN = documents.names()
PAGES = {name: documents.render(name, lambda link: f"@{link}") for name in KNOWN}


def test_every_link_between_documents_leads_to_a_page_and_a_place():
    places = {name: set(re.findall(r'id="([^"]+)"', page.html)) for name, page in PAGES.items()}
    folders = {name.rpartition("/")[0] for name in KNOWN}
    wrong = []
    for name, page in PAGES.items():
        for link in re.findall(r'(?:href|src)="@([^"]+)"', page.html):
            path, _, anchor = link.partition("#")
            if path not in {*KNOWN, *folders, *documents.pictures()} or (
                anchor and "%" not in anchor and anchor not in places[path]
            ):
                wrong.append((name, link))
    assert wrong == []


TEXTS = [*documents.FOLDER.parent.glob("*.md"), *documents.FOLDER.rglob("*.md")]
#: `exchequer …` at the begin of a line of code, behind `&&`, or within a sentence.
COMMAND = re.compile(r"(?:^ {4}(?:\$ )?|^\$ |&& |^|`)(exchequer [a-z][^\n`#&|…]*)", re.MULTILINE)


def test_every_command_of_a_text_exists_with_its_options():
    top = typer.main.get_command(command_line)
    seen, wrong = 0, []
    for text in TEXTS:
        for line in COMMAND.findall(re.sub(r" *\\\n\s*", " ", text.read_text("utf-8"))):
            command, words = top, shlex.split(line)[1:]
            while words and words[0] in getattr(command, "commands", {}):
                command, words = command.commands[words[0]], words[1:]
            options = {
                name for each in command.params for name in (*each.opts, *each.secondary_opts)
            }
            asked = {word.split("=")[0] for word in words if word.startswith("--")}
            seen += 1
            if hasattr(command, "commands") or not asked <= options:
                wrong.append((text.name, line))
    assert wrong == []
    assert seen > 80


def test_every_link_of_a_text_leads_to_a_file_that_is_there():
    """On a code host: also from the README to the documents, and from them to the code."""
    wrong = []
    for text in TEXTS:
        for link in re.findall(r"\]\(([^)#\s]+)", text.read_text("utf-8")):
            if ":" not in link and not (text.parent / link).exists():
                wrong.append((text.name, link))
    assert wrong == []


def test_every_file_of_code_that_a_text_names_is_there():
    root = documents.FOLDER.parent
    tests = {path.name for path in (root / "tests").rglob("*.py")}
    wrong = []
    for text in TEXTS:
        for name in re.findall(r"`([\w/]+\.py)`", text.read_text("utf-8")):
            is_whole = (root / name.partition("/")[0]).is_dir()
            is_there = (root / name).is_file() if is_whole else name in tests
            if not is_there and (is_whole or name.startswith("test_")):
                wrong.append((text.name, name))
    assert wrong == []


def test_every_parameter_of_a_mechanism_has_its_place():
    for mechanism in mechanisms.MECHANISMS.values():
        if documents.is_there(f"mechanisms/{mechanism.id}"):
            html = PAGES[f"mechanisms/{mechanism.id}"].html
            assert [each for each in mechanism.fields if f'<tr id="{each}">' not in html] == []


def test_the_document_of_fields_is_current():
    """Else run `make docs`."""
    assert documents.names()["fields"].read_text("utf-8") == fields.page()


def test_html_in_a_document_is_text(tmp_path):
    (tmp_path / "x.md").write_text(
        "# A\n\n<script>alert(1)</script> [y](javascript:alert) [z](../secret.md)\n"
    )
    html = documents.render("x", lambda link: link, tmp_path).html
    assert "<script" not in html
    assert "javascript:" not in re.findall(r'href="([^"]*)"', html)
    assert "secret" not in html


@pytest.mark.parametrize(
    "name", ["../pyproject", "images", "..", "x", "decisions/../../README", ""]
)
def test_what_is_no_document_is_not_found(name):
    assert documents.render(name, lambda link: link) is None


def test_anybody_may_read_them(app):
    client = app.test_client()
    page = client.get("/docs").text
    assert '<a href="/docs/analysts">' in page
    assert "Private prediction" in client.get("/docs/mechanisms/private-prediction").text
    assert client.get("/docs/analysts.md").headers["Location"] == "/docs/analysts"
    assert client.get("/docs/decisions").status_code == 200
    assert client.get("/docs/images/ask.png").mimetype == "image/png"
    for path in (
        "/docs/../pyproject.toml",
        "/docs/%2e%2e/pyproject",
        "/docs/nothing",
        "/docs/README.txt",
    ):
        assert client.get(path).status_code == 404


def test_each_field_of_the_form_leads_to_its_paragraph(site):
    page = site.pages("analyst").get(f"{site.dataset}/submit").text
    assert 'href="/docs/mechanisms/private-prediction#tokens_per_batch"' in page


def test_the_site_is_files_that_lead_to_one_another(tmp_path):
    assert documents.write_site(tmp_path) == len(KNOWN)
    page = (tmp_path / "mechanisms" / "noisy-count.html").read_text()
    links = [each for each in re.findall(r'href="([^"#]+)', page) if not each.startswith("http")]
    assert links
    assert [each for each in links if not (tmp_path / "mechanisms" / each).is_file()] == []


def test_every_field_of_a_form_leads_to_its_line(site):
    """The wizard's five steps, allowance and policy, models, corpora, account, and asking."""
    site.api("steward").put(f"{site.dataset}/policy", {"analysts": [site.actor("analyst").name]})
    steward, wizard = site.pages("steward"), "/add-dataset"
    pages = {
        path: steward.get(path).text
        for path in (wizard, f"{site.dataset}/policy", "/models", "/corpora")
    }
    typed = {
        "name": "letters",
        "uri": "letters.csv",
        "text_template": "{text}",
        "max_records_per_unit": "1",
    }
    kept = ""
    for step in ("data", "texts", "people", "allowance"):
        sent = {"step": step, "kept": kept, "action": "next", "neighbours": "add-remove", **typed}
        pages[step] = steward.post(wizard, wizard, **sent).text
        kept = re.search(r'name="kept" value="([^"]*)"', pages[step])[1].replace("&#34;", '"')
    for path in ("/account/tokens", "/account/password", f"{site.dataset}/submit"):
        pages[path] = site.pages("analyst").get(path).text
    pages["access"] = site.pages("analyst-2").get(site.dataset).text
    found = 0
    for path, text in pages.items():
        main = text[text.index("<main") : text.index("</main>")]
        for anchor in re.findall(r'href="/docs/fields#([^"]+)"', main):
            assert anchor in documents.places("fields"), (path, anchor)
        for document, anchor in re.findall(r'href="/docs/(mechanisms/[^"#]+)#([^"]+)"', main):
            assert anchor in documents.places(document), (path, anchor)
        for inside in re.split(r'<div class="field', main)[1:]:
            name = re.search(r' name="([^"]+)"', inside)
            if (
                name is not None
                and name[1] not in UNTOLD
                and 'type="hidden"' not in inside[: name.start()]
            ):
                found += 1
                assert (
                    "about-field" in inside or "about-field" in main[: main.index(inside)][-400:]
                ), (
                    path,
                    name[1],
                )
    assert found > 60


#: Fields that say all there is beside them.
UNTOLD = {"rehearsal_corpus", "rehearsal_embedding"}
