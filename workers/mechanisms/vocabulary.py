"""`vocabulary`: the terms of a public corpus, each with the number of texts that have it.

    words of one to n  -> texts that have each -> those within the bounds, the largest counts first

One pass for each length. A sequence is counted only where the two that it is made of are in enough
texts themselves, which loses none (no sequence is in more texts than its parts) and keeps memory to
what can still count.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from accountant.core.errors import DataError
from accountant.core.mechanisms.vocabulary import TERM_LIST, Vocabulary
from accountant.core.privacy.price import Terms
from workers.data.corpora import Corpus
from workers.data.terms import TermList
from workers.data.words import uncut_script, words
from workers.interface import Artifact, Progress, Public

#: English articles, pronouns, prepositions, conjunctions and auxiliaries: they say nothing alone.
FUNCTION_WORDS = """
a about after again all also although am among an and any are as at be because been before being
between both but by can could did do does doing done down during each either even ever every few for
from further had has have having he her here hers herself him himself his how i if in into is it its
itself just may me might more most much must my myself neither no nor not of off on once only onto
or other our ours ourselves out over own quite rather same shall she should since so some such than
that the their theirs them themselves then there these they this those though through to too under
until up upon us very was we were what when where whether which while who whom whose why will with
within without would yet you your yours yourself can't couldn't didn't doesn't don't hadn't hasn't
haven't he's i'd i'll i'm i've isn't it's she's that's there's they're wasn't we're we've weren't
won't wouldn't you're you've
"""
#: Texts between two looks at whether the job was cancelled.
BETWEEN_CHECKS = 1_000


@dataclass(frozen=True)
class Term:
    """A line of the output."""

    term: str
    documents: int

    def to_json(self) -> dict[str, Any]:
        return {"term": self.term, "documents": self.documents}


class Runner:
    """Runs `vocabulary`."""

    def total(self, parameters: Vocabulary, terms: Terms) -> int:  # noqa: ARG002
        """Return passes over the corpus."""
        return parameters.words

    def make(
        self,
        parameters: Vocabulary,
        terms: Terms,  # noqa: ARG002
        model: None,  # noqa: ARG002
        progress: Progress,
        public: Public,
    ) -> Iterator[Term | Artifact]:
        """Yield terms, most frequent first, then their list. Raises DataError without any."""
        found_terms = term_list(public.corpus("corpus"), parameters, progress)
        if not found_terms.documents:
            raise DataError(
                "corpus: no term is in so many texts; a smaller least_documents keeps more"
            )
        for term, count in found_terms.documents.items():
            yield Term(term, count)
        yield Artifact.of_json("terms", TERM_LIST, found_terms.to_json())


def term_list(corpus: Corpus, parameters: Vocabulary, progress: Progress) -> TermList:
    """Return the terms of a corpus within the bounds that the parameters state.

    Raises DataError for a text whose words can't be told apart.
    """
    terms: dict[str, int] = {}
    common = frozenset([] if parameters.function_words else FUNCTION_WORDS.split())
    frequent: frozenset[str] = frozenset()
    texts = 0
    for length in range(1, parameters.words + 1):
        counts: Counter[str] = Counter()
        texts = 0
        for text, _ in islice(corpus.texts(), parameters.most_texts):
            if script := uncut_script(text):
                problem = (
                    f"corpus: words of the {script} script can't be told apart, so it has no terms"
                )
                raise DataError(f"{problem}; take such texts out")
            counts.update(_sequences(words(text), length, frequent))
            texts += 1
            if texts % BETWEEN_CHECKS == 0:
                progress.check()
        enough = {
            term: count for term, count in counts.items() if count >= parameters.least_documents
        }
        if length == 1 and parameters.most_documents is not None:
            common |= {term for term, count in enough.items() if count > parameters.most_documents}
        terms |= {term: count for term, count in enough.items() if not _at_an_end(term, common)}
        frequent = frozenset(enough)
        progress.advance()
    order = sorted(terms.items(), key=lambda pair: (-pair[1], pair[0]))
    return TermList(dict(order[: parameters.most_terms]), texts)


def _sequences(own: list[str], length: int, frequent: frozenset[str]) -> set[str]:
    """Return sequences of `length` words whose two parts of one word less are `frequent`."""
    if length == 1:
        return set(own)
    shorter = [" ".join(own[place : place + length - 1]) for place in range(len(own) - length + 2)]
    return {
        f"{shorter[place]} {own[place + length - 1]}"
        for place in range(len(own) - length + 1)
        if shorter[place] in frequent and shorter[place + 1] in frequent
    }


def _at_an_end(term: str, common: frozenset[str]) -> bool:
    parts = term.replace("’", "'").split(" ")
    return parts[0] in common or parts[-1] in common
