"""Every line of the checklist is bound to a test that exists, or says that it is not covered."""

import re

from tests.test_architecture import ROOT


def test_each_hazard_names_tests_that_exist_or_says_that_it_is_not_covered():
    lines = (ROOT / "docs" / "nist-800-226.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| hazard")]
    assert len(rows) > 25
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for row in rows:
        answer = row.strip("| ").split("|")[-1]
        named = set(re.findall(r"`(test_\w+)`", answer))
        assert named or "not covered" in answer, row
        assert named <= defined, named - defined
