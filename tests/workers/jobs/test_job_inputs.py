"""A corpus that turned out to hold private records is used by no job, whenever the job was asked
for.
"""

from types import SimpleNamespace

import pytest

from accountant.core.errors import DataError
from accountant.transactions import public_resources, sources
from workers.jobs import job_inputs


@pytest.mark.parametrize("behind", [False, True], ids=["its own", "of a job beside it"])
@pytest.mark.parametrize("state", ["invalid", "checking", "ready"])
def test_a_corpus_is_used_only_while_it_is_ready(monkeypatch, behind, state):
    corpus = SimpleNamespace(name="news", state=state)
    own, other = (
        ({}, [("adapter", "news")])
        if behind
        else ({"public_corpus": {"kind": "corpus", "name": "news"}}, [])
    )
    monkeypatch.setattr(public_resources, "find", lambda *_: corpus)
    monkeypatch.setattr(sources, "corpora_behind", lambda *_: other)
    if state == "ready":
        job_inputs._check_public(None, own, {})
        return
    with pytest.raises(
        DataError, match=r"^(adapter|public_corpus): the corpus 'news' (can't|is looked)"
    ):
        job_inputs._check_public(None, own, {})
