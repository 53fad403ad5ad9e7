"""Secrets as people write them: one folded copy of the text, and the whole original is redacted."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.secret_patterns import TAG, Secrets, check
from accountant.core.text_folding import fold

NAME = "José García"
WRITTEN = {
    "decomposed": unicodedata.normalize("NFD", NAME),
    "capitals": "JOSÉ GARCÍA",
    "capitals, decomposed": unicodedata.normalize("NFD", "JOSÉ GARCÍA"),
    "full width": "Ｊｏｓé　Ｇａｒｃíａ",
    **{
        f"U+{ord(blank):04X}": f"José{blank}García"
        for blank in "\t\n\v\f\r\x1c\x85\xa0\u1680\u2002\u2009\u200a"
        "\u2028\u2029\u202f\u205f\u3000\u2800"
    },
    "carriage return": "José\r\n  García",
    "blank and zero-width blank": "José \u200b García",
    "word joiner": "Jo\u2060sé Gar\ufeffcía",
    "left-to-right mark": "José\u200e Garc\u202aía\u202c",
    "soft hyphens": "Jo\xadsé Gar\xadcía",
    "variation selector": "José\ufe0f García",
    "joiner before the accent": "Jose\u200d\u0301 García",
    "null": "Jo\0sé García",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_secret_is_found_however_it_is_written(text):
    for secrets, own in (
        (Secrets(terms=(NAME,)), ""),
        (Secrets(), f"\u200b{NAME} "),
        (Secrets(("José Garc[íi]a",)), ""),
        (Secrets((r"José\sGarcía\b",)), ""),
    ):
        assert secrets.redacted(f"Seen: {text}, well.", own) == f"Seen: {TAG}, well."
    # The other way round: the declaration is what another tool wrote.
    assert Secrets(terms=(text,)).redacted(f"Seen: {NAME}.") == f"Seen: {TAG}."


PAIRS = [
    ("O'Brien", "O’Brien"),
    ("O'Brien", "OʼBRIEN"),
    ("O’Brien", "O′Brien"),
    ("D'Angelo", "D‘Angelo"),
    ("D'Angelo", "D´Angelo"),
    ("D'Angelo", "D`Angelo"),
    ("D'Angelo", "D＇Angelo"),
    ("Jean-Luc", "Jean‑Luc"),
    ("Jean-Luc", "Jean–Luc"),
    ("Jean—Luc", "Jean−Luc"),
    ("Jean-Luc", "Jean﹣Luc"),
    ("Straße", "STRASSE"),
    ("STRAẞE", "strasse"),
    ("İpek Işık", "ipek ışık"),
    ("ipek ışık", "İPEK IŞIK"),
    ("Diyarbakır", "DİYARBAKIR"),
    ("Fiona Griffin", "ﬁona Griﬃn"),
    ("Σοφός", "ΣΟΦΌΣ"),
    ("Ångström", "A\u030angstro\u0308m"),
    ("Ω Ltd", "Ω Ltd"),
    ("Nguyễn", unicodedata.normalize("NFD", "NGUYỄN")),
    ("김민수", unicodedata.normalize("NFD", "김민수")),
    ("ガブリエル", "ｶﾞﾌﾞﾘｴﾙ"),
    ("محمد", "محـــمد"),
    ("علی‌رضا", "علیرضا"),
    ("राज\u200dकुमार", "राजकुमार"),
    ("24601", "٢٤٦٠١"),
    ("24601", "२४६०१"),
    ("24601", "２４６０１"),
    ("№ 7", "No 7"),
    ("x²", "x2"),
    ("Lady “Bo”", 'Lady "Bo"'),
]


@pytest.mark.parametrize(("declared", "written"), PAIRS)
def test_one_secret_in_two_spellings_is_one(declared, written):
    for text in (written, declared):
        assert Secrets(terms=(declared,)).redacted(f"so {text}.") == f"so {TAG}."
        assert Secrets(terms=(written,)).redacted(f"so {text}.") == f"so {TAG}."
        assert Secrets().redacted(f"so {text}.", declared) == f"so {TAG}."


PATTERNS = [
    (r"PIN \d{4}", "pin\u00a01234"),
    (r"PIN \d{4}", "PIN\r\n  １２３４"),
    (r"PIN\s{1,3}\d{4}", "Pin\u2028٣٤٥٦"),
    (r"[A-Z]{2}\d{6}", "ＡＢ１２３４５６"),
    (r"[A-Z]{2}\d{6}", "ab123456"),
    (r"\bAB[- ]\d{6}\b", "AB–123456"),
    (r"\bAB[- ]\d{6}\b", "AB\u202f\u202f123456"),
    (r"\bÉmile\b", "E\u0301MILE"),
    ("stra(?:ß|s)e", "STRASSE"),
    (r"[À-Ü]x\d", "éX4"),
    (r"[０-９]{3}-[０-９]{3}", "123—456"),
    (r"O’Brien", "O'BRIEN"),
    (r"\w{1,20}@x\.org", "josé@x.org"),
    (r"\x{2019}s\xA0key", "'S  Key"),
    (r"\p{Lu}{2}-\d{2}", "ñb‐12"),
    ("ｶﾞﾙ\\d", "ガル7"),
    (r"[[:upper:]]{3}7", "abc7"),
]


@pytest.mark.parametrize(("pattern", "written"), PATTERNS)
def test_patterns_find_what_they_were_written_for(pattern, written):
    check([pattern], [])
    assert Secrets((pattern,)).redacted(f"so {written}!") == f"so {TAG}!"


def test_terms_that_share_a_word_hide_nothing_from_one_another():
    secrets = Secrets(terms=("Anna", "Anna Maria", "Maria Lopez", "Lee", "Ann Le"))
    assert secrets.redacted("Anna Maria Lopez, Ann Lee") == f"{TAG}, Ann {TAG}"


def test_whole_words_and_scripts_without_blanks():
    for term, text, whole in (
        ("Ann", "Anna Joann Ann2 Anné", False),
        ("Ann", "(Ann) Ann's _Ann_ AnnさんとAnn", True),
        ("田中", "昨日田中さんが来た", True),
        ("สมชาย", "คุณสมชายมา", True),
        ("김민수", "김민수는 갔다", True),
        ("1234", "a1234 12345 ١٢٣٤٥", False),
    ):
        assert bool(Secrets(terms=(term,)).spans(text)) is whole


def test_no_mark_of_a_secret_is_left():
    redacted = Secrets(terms=("Zoq", "नम")).redacted("Zoq\u0308\u200d\u0301\ufe0f, नमि")
    assert redacted == f"{TAG}, {TAG}"


def test_terms_without_a_visible_sign_are_refused():
    for empty in ("\u200b", "\xad\ufeff", "\u3164", " \u2800 "):
        with pytest.raises(InvalidRequest, match="empty"):
            check([], [empty])


def test_a_tag_is_one_thing_that_nothing_is_found_in():
    secrets = Secrets((r"t\] \w{2}", "e.{1,30}z"), ("secret", "Ann"))
    text = "a [secret] is near [SECRET], Ann's secret"
    assert secrets.redacted(text) == f"a [secret] is near [SECRET], {TAG}'s {TAG}"
    assert Secrets().is_in("[Ｓｅｃｒｅｔ]")
    assert not Secrets().is_in("secret")


SIGNS = (
    "aAoOeEiIİıßﬁsSzZ éÉüñ0٣3'’‘ʼ´-‑—\xad\u200b\u200d\ufeff\ufe0f\u0301\u0308\u0307\xa0\u2028\n\r\t"
    "\u3000कषि्กำ田한ㅏ\u1161ｶﾞ[]secrt."
)
TEXTS = st.text(
    st.one_of(st.sampled_from(SIGNS), st.characters(exclude_categories=["Cs"])), max_size=40
)
TERMS = st.text(st.sampled_from(SIGNS), min_size=1, max_size=6).filter(
    lambda term: fold(term).text.strip()
)


@given(TEXTS)
def test_the_map_keeps_order_and_covers_the_text(text):
    folded = fold(text)
    spans = [folded.span(place, place + 1) for place in range(len(folded.text))]
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    assert all(after[1] >= before[1] for before, after in pairwise(spans))
    assert "".join(text[a:b] for a, b in folded.spans) == text
    assert fold(folded.text).text == folded.text


@given(TEXTS)
def test_all_forms_of_a_text_fold_alike(text):
    composed = {fold(unicodedata.normalize(form, text)).text for form in ("NFC", "NFD")}
    assert len(composed) == 1


@given(TEXTS, st.lists(TERMS, min_size=1, max_size=4), TEXTS)
def test_redaction_leaves_no_declared_secret_and_touches_nothing_else(before, terms, after):
    secrets = Secrets((r"\d{4}",), tuple(terms))
    text = f"{before} {terms[0]} {after}"
    redacted = secrets.redacted(text)
    assert TAG in redacted
    for term in terms:
        assert not Secrets(terms=(term,)).spans(redacted) or not fold(term).text.strip().isascii()
    pieces, place = [], 0
    for start, end in [*secrets.spans(text), (len(text), len(text))]:
        pieces.append(text[place:start])
        place = end
    assert redacted == TAG.join(pieces)
    if not secrets.spans(before):
        assert secrets.redacted(before) == before
