"""Fingerprints of records: different texts differ in every script, and short ones prove nothing."""

import csv
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.text_evidence import MOST_WEIGHT, threshold, weight
from workers.data.fingerprints import distinct_letters, fingerprints, normalised
from workers.data.records import Layout

DIFFERENT = {
    "Hindi": ("रोगी की दवा", "रोगी का दवा"),
    "Hindi, one sign": ("कि", "की"),
    "Marathi": ("मुलगा", "मुलगी"),
    "Bengali": ("বালক", "বালিকা"),
    "Tamil": ("பல", "பால்"),
    "Telugu": ("కల", "కాల"),
    "Thai": ("ไมมา", "ไม่มา"),
    "Lao": ("ຂາ", "ຂ້າ"),
    "Khmer": ("កា", "កី"),
    "Burmese": ("စာ", "စား"),
    "Arabic": ("عَلِم", "عُلِم"),
    "Hebrew": ("שָׁר", "שִׁיר"),
    "Sinhala": ("කල", "කාල"),
    "Chinese": ("病人", "病女"),
    "emoji": ("❤️", "✈️"),
    "emoji of tones": ("👍🏽", "👍🏿"),
    "signs": ("?!", "!!"),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_records_have_different_fingerprints(one, other):
    assert normalised(one) != normalised(other)


SAME = [
    ("N/A.", "n/a"),
    ("Great!!", "great"),
    ("Jose\u0301 came", "José, came"),
    ("रोगी की दवा।", "रोगी की  दवा"),
    ("می‌خواهم", "میخواهم"),
    ("ｆｕｌｌ", "full"),
    ("STRASSE", "straße"),
    ("don’t", "don't"),
    ("a\u00adb", "ab"),
    ("❤️ ok", "❤ ok"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spelling_makes_no_second_record(one, other):
    assert normalised(one) == normalised(other)


SHORT = [
    "n/a",
    "",
    "Great!!",
    "none",
    "Thank you so much!",
    "-",
    "👍👍👍👍",
    "ok " * 200,
    "सब ठीक है",
    "好的，谢谢",
    "12.05.2026",
]
LONG = [
    "The ward was calm and the food was good, but the lift broke twice and nobody told us for "
    "hours on end.",
    "रोगी को कल अस्पताल से छुट्टी मिली और उसने कहा कि खाना अच्छा था लेकिन रात में बहुत शोर था, "
    "नर्सें बहुत दयालु थीं।",
    "病房很安静，饭菜也不错，可是电梯坏了两次，过了几个小时也没有人来告诉我们到底发生了什么事情。",
    "病室は静かで食事もおいしかったのですが、エレベーターが二度も壊れてしまい、何時間も誰も説明に来ませんでした。本当に残念です。",
    "ผู้ป่วยออกจากโรงพยาบาลเมื่อวานนี้ อาหารดีมากแต่ลิฟต์เสียสองครั้งและไม่มีใครบอกเราเลยตลอดหลายชั่วโมง",
    "병실은 조용하고 음식도 좋았지만 승강기가 두 번이나 고장 났고 몇 시간 동안 "
    "아무도 알려주지 않았습니다.",
]


def test_short_records_prove_nothing_and_long_ones_much():
    assert [weight(distinct_letters(normalised(text))) for text in SHORT] == [0] * len(SHORT)
    assert min(weight(distinct_letters(normalised(text))) for text in LONG) >= 8


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_shared_hundredth_of_long_texts_is_always_enough(here, there):
    enough = threshold(here, there)
    assert enough == threshold(there, here) >= 6
    assert enough <= threshold(here + 1, there)
    assert threshold(99 + here, 99 + here) <= math.ceil((99 + here) / 100) * MOST_WEIGHT


def test_a_file_yields_each_unit_each_record_and_the_whole(tmp_path):
    def found(name, rows, **layout):
        path = tmp_path / f"{name}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("who", "text"), *rows])
        return list(fingerprints(str(path), Layout("{text}", **layout), b"k" * 32))

    rows = [(f"person {n}", f"short {n}") for n in range(9)]
    one, turned = found("one", rows), found("turned", rows[::-1])
    assert [(each.is_unit, each.weight) for each in one] == [(False, 0)] * 9 + [(False, math.inf)]
    assert one[-1] == turned[-1]
    assert one[-1] != found("less", rows[1:])[-1]
    by_column = found("one", rows, unit_column="who")
    assert [each.is_unit for each in by_column] == [True, False] * 9 + [False]
    assert by_column[-1] == one[-1]
    assert len(found("same", [("x", "n/a")] * 50)) == 50  # all alike: nothing is said of the whole
