"""A job on files that are not those that were registered ends before it reads: it is void."""

from types import SimpleNamespace

import pytest

from accountant.core.errors import DataError
from accountant.core.ledger.rules import LAYOUT
from workers.data import manifest
from workers.jobs import tasks


@pytest.mark.parametrize("change", ["nothing", "a file appeared", "a file changed"])
def test_reading_begins_on_the_data_that_was_registered_alone(tmp_path, monkeypatch, change):
    (tmp_path / "a.csv").write_text("id,text\np,x\n")
    data = manifest.of(str(tmp_path))
    if change == "a file appeared":
        (tmp_path / "b.csv").write_text("id,text\nq,y\n")
    elif change == "a file changed":
        (tmp_path / "a.csv").write_text("id,text\nq,x\n")
    terms = {
        "unit_column": "id",
        "neighbours": "add-remove",
        "max_records_per_unit": 1,
        "public_size": None,
    }
    layout = {
        **dict.fromkeys(LAYOUT),
        "uri": str(tmp_path),
        "text_template": "{text}",
        "secrets": None,
    }
    register = {"terms": {**terms, "labels": [], "groups": []}, "data": data, "layout": layout}
    began = []
    monkeypatch.setattr(tasks.leases, "begin_reading", lambda *_: began.append(True))
    claim = SimpleNamespace(key=b"k" * 32, job_id="j", part=0, attempt=1, token="t")
    attempt = tasks._Attempt(
        engine=None,
        claim=claim,
        order=SimpleNamespace(parts=1),
        configured=SimpleNamespace(data_root_list=[str(tmp_path)]),
        heartbeat=None,
        progress=None,
        drafts=None,
    )
    attempt._write = lambda act: act()
    if change == "nothing":
        assert [each.text for each in attempt._records(register).records] == ["x"]
        assert began == [True]
        return
    with pytest.raises(DataError, match="than when it was registered"):
        attempt._records(register)
    assert not began
    assert not attempt.reading


@pytest.mark.parametrize("content", ["", "id,text\np,x\n"], ids=["empty", "the same bytes"])
def test_what_is_wrong_with_changed_files_names_none_of_them(tmp_path, content):
    """A void job's reason is shown to analysts, and the names of files are the steward's alone."""
    (tmp_path / "a.csv").write_text("id,text\np,x\n")
    data = manifest.of(str(tmp_path))
    (tmp_path / "anna-schmidt.csv").write_text(content)
    with pytest.raises(DataError, match="anna-schmidt"):
        manifest.of(str(tmp_path))
    with pytest.raises(DataError) as problem:
        manifest.check(str(tmp_path), data)
    assert "csv" not in str(problem.value)
