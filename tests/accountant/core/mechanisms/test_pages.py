"""The docs pages of mechanisms are those that their metadata makes."""

from pathlib import Path

import pytest

from accountant.core import mechanisms
from accountant.core.mechanisms import pages

FOLDER = Path(__file__).resolve().parents[4] / "docs" / "mechanisms"


@pytest.mark.parametrize("name", list(mechanisms.MECHANISMS))
def test_the_page_is_current(name):
    """Else run `make docs`."""
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    mechanism = mechanisms.get(name)
    assert text == pages.page(mechanism, text.partition(pages.MADE)[2])
    assert ("no runner yet" in text) == (mechanism.runner is None)


def test_every_page_has_a_mechanism_and_what_people_write_is_kept(tmp_path):
    assert {path.stem for path in FOLDER.glob("*.md")} == set(mechanisms.MECHANISMS)
    (tmp_path / "noisy-count.md").write_text(f"old\n{pages.MADE}\n\n## How\n\nBy hand.\n")
    assert len(pages.write(tmp_path)) == len(mechanisms.MECHANISMS)
    text = (tmp_path / "noisy-count.md").read_text()
    assert text.startswith("# Noisy count")
    assert text.endswith("## How\n\nBy hand.\n")
    assert pages.write(tmp_path) == []
