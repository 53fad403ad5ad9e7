"""Which texts are of use: readable, finished, written once, and not about the task.

A text is readable if a public model finds it no stranger than READABLE of 100 real texts, and if it
does not repeat itself. Word salad is stranger than every real text, whatever its words are.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workers.data.words import words
from workers.generation.rules import fault

#: Of 100 real texts so many are readable by definition.
READABLE = 95
#: A text of fewer different runs of three words, as a share of all, repeats itself.
LEAST_VARIED = 0.5
#: Runs of words that may be compared: shorter ones everybody writes.
LEAST_RUN = 3

Mask = NDArray[np.bool_]

#: Talk about the task in the middle of a text, which the rules of writers don't look for.
_TALK = re.compile(
    r"\bas an? (?:ai|language model)\b|\b(?:the|this) (?:prompt|instruction|template)s?\b"
    r"|\b(?:text|example|sample|review|article|record)s? (?:above|below)\b"
    r"|\bi (?:can(?:no|')t|am unable to) (?:write|generate|provide|help)\b",
    re.IGNORECASE,
)


def talks(texts: Sequence[str]) -> Mask:
    """Return which texts speak about the task instead of doing it."""
    return np.array(
        [
            fault(text) not in (None, "empty") or _TALK.search(text.replace("’", "'")) is not None
            for text in texts
        ]
    )


def duplicates(texts: Sequence[str]) -> Mask:
    """Return which texts stood before in the same words. An empty text is one too."""
    seen: set[tuple[str, ...]] = {()}
    flags = []
    for text in texts:
        own = tuple(words(text))
        flags.append(own in seen)
        seen.add(own)
    return np.array(flags)


def repeats(texts: Sequence[str]) -> Mask:
    """Return which texts write the same runs of three words again and again."""
    flags = []
    for text in texts:
        own = words(text)
        runs = list(zip(own, own[1:], own[2:], strict=False))
        flags.append(len(runs) > 4 and len(set(runs)) < LEAST_VARIED * len(runs))
    return np.array(flags)


def readable(texts: Sequence[str], losses: NDArray[np.float64], real: NDArray[np.float64]) -> Mask:
    """Return which texts are readable.

    Args:
        losses: of the texts, under a public model.
        real: losses of real texts under the same model.
    """
    return (losses <= np.percentile(real, READABLE)) & ~repeats(texts)


def longest_runs(texts: Sequence[str], others: Sequence[str]) -> NDArray[np.int64]:
    """Return for each text the most words in a row that it shares with any of the others.

    Runs below LEAST_RUN words count as none.
    """
    known = [words(other) for other in others]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, own in enumerate(known):
        for first in range(len(own) - LEAST_RUN + 1):
            places[tuple(own[first : first + LEAST_RUN])].append((number, first))
    return np.array([_longest(words(text), known, places) for text in texts])


def _longest(
    own: list[str],
    known: Sequence[list[str]],
    places: dict[tuple[str, ...], list[tuple[int, int]]],
) -> int:
    longest = 0
    for first in range(len(own) - LEAST_RUN + 1):
        for number, place in places.get(tuple(own[first : first + LEAST_RUN]), ()):
            other, length = known[number], LEAST_RUN
            most = min(len(own) - first, len(other) - place)
            while length < most and own[first + length] == other[place + length]:
                length += 1
            longest = max(longest, length)
    return longest
