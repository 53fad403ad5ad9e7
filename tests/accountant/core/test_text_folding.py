"""Secrets as people write them, found in one folded copy of the text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.secret_patterns import Secrets, check
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
        assert secrets.is_in(f"Seen: {text}, well.", own)
        assert not secrets.is_in(f"Seen: {text[1:]}, well.", own)
    # The other way round: the declaration is what another tool wrote.
    assert Secrets(terms=(text,)).is_in(f"Seen: {NAME}.")


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
        assert Secrets(terms=(declared,)).is_in(f"so {text}.")
        assert Secrets(terms=(written,)).is_in(f"so {text}.")
        assert Secrets().is_in(f"so {text}.", declared)


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
    assert Secrets((pattern,)).is_in(f"so {written}!")
    assert not Secrets((pattern,)).is_in("so!")


def test_terms_that_share_a_word_hide_nothing_from_one_another():
    assert Secrets(terms=("Ann Le", "Lee")).is_in("Ann Lee")
    assert Secrets(terms=("Anna Mari", "Maria Lopez")).is_in("Anna Maria Lopez")


def test_whole_words_and_scripts_without_blanks():
    for term, text, whole in (
        ("Ann", "Anna Joann Ann2 Anné", False),
        ("Ann", "(Ann) Ann's _Ann_ AnnさんとAnn", True),
        ("田中", "昨日田中さんが来た", True),
        ("สมชาย", "คุณสมชายมา", True),
        ("김민수", "김민수는 갔다", True),
        ("1234", "a1234 12345 ١٢٣٤٥", False),
    ):
        assert Secrets(terms=(term,)).is_in(text) is whole


def test_marks_after_its_last_letter_hide_no_secret():
    for term, text in (("Zoq", "Zoq\u0308\u200d\u0301\ufe0f"), ("नम", "नमि")):
        assert Secrets(terms=(term,)).is_in(text)


def test_terms_without_a_visible_sign_are_refused():
    for empty in ("\u200b", "\xad\ufeff", "\u3164", " \u2800 "):
        with pytest.raises(InvalidRequest, match="empty"):
            check([], [empty])


def test_the_tag_of_a_redacted_secret_counts_as_one():
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
    lambda term: fold(term).strip()
)


@given(TEXTS)
def test_a_folded_text_folds_to_itself(text):
    assert fold(fold(text)) == fold(text)


@given(TEXTS)
def test_all_forms_of_a_text_fold_alike(text):
    composed = {fold(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(composed) == 1


@given(TEXTS, st.lists(TERMS, min_size=1, max_size=4), TEXTS)
def test_a_declared_secret_between_blanks_is_found_in_any_text(before, terms, after):
    secrets = Secrets((r"\d{4}",), tuple(terms))
    assert secrets.is_in(f"{before} {terms[0]} {after}")
    if not secrets.is_in(before):
        assert not any(Secrets(terms=(term,)).is_in(before) for term in terms)
