"""One function cuts words in every script: for terms, vocabularies, word vectors and ROUGE."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.data.terms import TermList
from workers.data.words import sentences, uncut_script, words

CUT = [
    ("Hindi", "मरीज को कल छुट्टी मिली।", ["मरीज", "को", "कल", "छुट्टी", "मिली"]),
    ("Marathi", "डॉक्टर म्हणाले", ["डॉक्टर", "म्हणाले"]),
    ("Bengali", "রোগী গতকাল হাসপাতাল থেকে", ["রোগী", "গতকাল", "হাসপাতাল", "থেকে"]),
    ("Tamil", "நோயாளி நேற்று வந்தார்", ["நோயாளி", "நேற்று", "வந்தார்"]),
    ("Telugu", "రోగి నిన్న వచ్చాడు", ["రోగి", "నిన్న", "వచ్చాడు"]),
    ("Malayalam", "രോഗി ഇന്നലെ വന്നു", ["രോഗി", "ഇന്നലെ", "വന്നു"]),
    ("Sinhala with a joiner", "ශ්\u200dරී ලංකා", ["ශ්\u200dරී", "ලංකා"]),
    ("Thai", "ออกจากโรงพยาบาล", ["ออก", "จาก", "โรง", "พยาบาล"]),
    ("Thai, decomposed", "ฉันดื่มน\u0e49\u0e4d\u0e32", ["ฉัน", "ดื่ม", "น้ำ"]),
    ("Lao", "ຄົນເຈັບອອກຈາກໂຮງໝໍ", ["ຄົນເຈັບ", "ອອກຈາກ", "ໂຮງໝໍ"]),
    ("Khmer", "អ្នកជំងឺបានចេញពីមន្ទីរពេទ្យ", ["អ្នកជំងឺ", "បាន", "ចេញពី", "មន្ទីរពេទ្យ"]),
    ("Burmese", "လူနာသည် ဆေးရုံမှ", ["လူနာ", "သည်", "ဆေးရုံ", "မှ"]),
    ("Chinese", "病人昨天出院了。", ["病人", "昨天", "出院", "了"]),
    ("Japanese", "患者は昨日退院した。", ["患者", "は", "昨日", "退院", "した"]),
    ("Korean", "환자는 어제 퇴원했다", ["환자는", "어제", "퇴원했다"]),
    ("Arabic", "قال الطبيب، نعم!", ["قال", "الطبيب", "نعم"]),
    ("Arabic with vowels", "مُحَمَّد هنا", ["مُحَمَّد", "هنا"]),
    ("Persian with a non-joiner", "می‌خواهم بروم", ["می‌خواهم", "بروم"]),
    ("Hebrew with points", "שָׁלוֹם לְךָ", ["שָׁלוֹם", "לְךָ"]),
    ("Vietnamese, decomposed", "Nguye\u0302\u0303n đi", ["nguyễn", "đi"]),
    ("mixed", "住所はTokyoです", ["住所", "は", "tokyo", "です"]),
    (
        "English",
        "Don’t RE-READ a_b, U.S. 3.14 e-",
        ["don’t", "re-read", *"ab", *"us", "3", "14", "e"],
    ),
    ("no words", "👍👍🏽 … ?!", []),
]


@pytest.mark.parametrize(("text", "cut"), [row[1:] for row in CUT], ids=[row[0] for row in CUT])
def test_words_are_cut_rightly(text, cut):
    assert words(text) == cut
    # Term lists see these words.
    terms = TermList(dict.fromkeys(cut, 1), 1)
    assert list(terms.found(text)) == cut


def test_one_changed_vowel_sign_is_another_word():
    assert words("रोगी की दवा") == ["रोगी", "की", "दवा"]
    assert words("रोगी का दवा") == ["रोगी", "का", "दवा"]


@pytest.mark.parametrize(
    "script", [("ᦀᦁ", "New Tai Lue"), ("ᨠᨡ", "Tai Tham"), ("ꦗꦮ", "Javanese"), ("ꪀꪁ", "Tai Viet")]
)
def test_a_script_without_word_boundaries_is_named(script):
    text, name = script
    assert uncut_script(f"so {text}") == name
    assert all(uncut_script(row[1]) is None for row in CUT)


@given(st.text(max_size=60), st.text(max_size=60))
def test_words_of_any_text_hold_a_letter_and_stop_at_a_paragraph(one, two):
    assert all(any(map(str.isalnum, word)) for word in words(one))
    assert words(f"{one}\n\n{two}") == words(one) + words(two)


def test_sentences_are_all_of_a_text_in_order_and_end_in_every_script():
    text = 'It was cold! "Really?" she said. これは良い。また来ます\nand then \ud800'
    found = list(sentences(text))
    assert "".join(found) == text.replace("\ud800", "?")
    assert found[0] == "It was cold! "
    assert found[3:5] == ["これは良い。", "また来ます\n"]
