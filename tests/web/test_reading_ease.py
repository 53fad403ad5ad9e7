"""The pages' sentences read easily, and use no more terms than the glossary has."""

import re

from accountant.core import mechanisms
from benchmarks.reading_ease import ease, every_sentence, is_plain, sentences, syllables
from web import documents, fields

#: Of all sentences together; 60 to 70 is plain English (Flesch 1948).
LEAST_EASE = 70
MOST_TERMS = 12
MOST_WORDS = 60
#: Sentences of pages, fields and commands that are not plain. It may only fall. These two are
#: Typer's own, of --install-completion and --show-completion, and it takes no others.
NOT_PLAIN = 2


def test_syllables_are_counted_as_spoken():
    words = {
        "price": 1,
        "allowance": 3,
        "ledger": 2,
        "the": 1,
        "table": 2,
        "artifact": 3,
        "data": 2,
    }
    assert {word: syllables(word) for word in words} == words


def test_the_pages_read_easily():
    texts = [text for _, text in sentences()]
    assert len(texts) > 150, "the sentences of the pages are found"
    assert ease(texts) >= LEAST_EASE
    long = [(name, text) for name, text in sentences() if len(text.split()) > MOST_WORDS]
    assert long == []


def test_fewer_and_fewer_sentences_are_hard_to_read():
    found = set(every_sentence())
    places = {name.partition(".")[0].partition(" ")[0] for name, _ in found}
    assert {"submit", "policy", "noisy-count", "exchequer"} <= places, "all that speak are asked"
    hard = sorted(each for each in found if not is_plain(each[1]))
    assert len(hard) <= NOT_PLAIN, hard
    assert len(hard) > NOT_PLAIN - 10, f"lower NOT_PLAIN to {len(hard)}"


def test_the_help_of_a_field_names_no_symbol_of_a_paper():
    """It may stand in what a job's price is made of. ε and δ are in the glossary."""
    symbol = re.compile(r"(?<![\w'’.-])(?:[b-zB-Z]|[ρστμλκγΔ]|[a-zA-Z]_\d)(?![\w'’-])")
    models = [model for _, _, forms in fields.FORMS for _, model in forms]
    schemas = [model.model_json_schema() for model in models]
    schemas += [mechanism.schema for mechanism in mechanisms.MECHANISMS.values()]
    parts = [part for schema in schemas for part in (schema, *schema.get("$defs", {}).values())]
    told = [each for part in parts for each in part.get("properties", {}).values()]
    helps = [*(each.get("description", "") for each in told), *fields.OTHERS.values()]
    assert len(helps) > 300
    assert [text for text in helps if symbol.search(re.sub(r"`[^`]*`", "", text))] == []
    for each in ("at most T", "widened by 2c/s", "texts k_0", "σ of it"):
        assert symbol.search(each), each


def test_the_glossary_has_at_most_twelve_terms():
    html = documents.render("glossary", lambda link: link).html
    assert 1 <= len(re.findall(r'<tr id="', html)) <= MOST_TERMS
