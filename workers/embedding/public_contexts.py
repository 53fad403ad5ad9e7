"""The public side of a batch's contexts: public texts and fixed shots beside private records.

A keyed hash of each record picks the public text beside it, so that a record brings its own partner
and changes no other record's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.data.corpora import Corpus
from workers.data.keyed_hashes import keyed_hash, pick
from workers.embedding.clustering import Reservoir

#: Public texts of a label that are kept to stand beside records.
POOL = 1_000


@dataclass(frozen=True)
class Partners:
    """Public texts by label, at least one for each."""

    texts: Mapping[str | None, Sequence[str]]

    def beside(self, label: str | None, key: bytes, record: str) -> str:
        """Return the public text beside a record."""
        label_texts = self.texts[label]
        return label_texts[pick(keyed_hash(key, "partner", record), len(label_texts))]

    def some(self, label: str | None, count: int, skip: int = 0) -> list[str]:
        """Return `count` of a label's texts, always the same, repeated if there are fewer."""
        label_texts = self.texts[label]
        return [label_texts[(skip + number) % len(label_texts)] for number in range(count)]


def from_corpus(corpus: Corpus, labels: Sequence[str | None]) -> Partners:
    """Return texts of the corpus: each label's own if both have labels, otherwise any."""
    shared = corpus.label_column is None or None in labels
    pools: dict[str | None, Reservoir] = {None: Reservoir(POOL)} if shared else {}
    pools |= {label: pools[None] if shared else Reservoir(POOL) for label in labels}
    for text, text_label in corpus.texts():
        label = None if shared else text_label
        if label in pools:
            pools[label].add(text)
    return Partners({label: pools[label].kept for label in labels})


def from_shots(shots: Sequence[str], labels: Sequence[str | None]) -> Partners:
    """Return one shot for all labels, or one for each."""
    group_shots = shots if len(shots) == len(labels) else [shots[0]] * len(labels)
    return Partners({label: [shot] for label, shot in zip(labels, group_shots, strict=True)})
