"""A corpus that turned out to hold private records is used by no job, whenever the job was asked
for.
"""

from types import SimpleNamespace

import pytest

from accountant.core.errors import DataError
from accountant.transactions import public_resources
from workers.jobs import job_inputs


@pytest.mark.parametrize("state", ["invalid", "checking", "ready"])
def test_a_corpus_is_used_only_while_it_is_ready(monkeypatch, state):
    corpus = SimpleNamespace(name="news", state=state)
    monkeypatch.setattr(public_resources, "find", lambda *_: corpus)
    if state == "ready":
        job_inputs._check_public(None, [("adapter", "news")])
        return
    with pytest.raises(DataError, match=r"^adapter: the corpus 'news' (can't|is looked)"):
        job_inputs._check_public(None, [("adapter", "news")])
