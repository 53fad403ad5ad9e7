"""A corpus that turned out to hold private records is used by no job, whenever the job was asked for."""

from types import SimpleNamespace

import pytest

from accountant.core.errors import DataError
from accountant.transactions import public_resources, sources
from workers.jobs import job_inputs


@pytest.mark.parametrize("behind", [False, True], ids=["its own", "of a job beside it"])
@pytest.mark.parametrize("state", ["invalid", "checking", "ready"])
def test_a_corpus_is_used_only_while_it_is_ready(monkeypatch, behind, state):
    corpus = SimpleNamespace(name="news", state=state)
    own, other = ({}, [("adapter", corpus, "")]) if behind else ({"public_corpus": (corpus, "")}, [])
    monkeypatch.setattr(public_resources, "rows", lambda *_: own)
    monkeypatch.setattr(sources, "corpora_behind", lambda *_: other)
    job = SimpleNamespace(resources={field: {"kind": "corpus"} for field in own})
    if state == "ready":
        job_inputs._check_public(None, job)
        return
    with pytest.raises(DataError, match=r"^(adapter|public_corpus): the corpus 'news' (can't|is looked)"):
        job_inputs._check_public(None, job)
