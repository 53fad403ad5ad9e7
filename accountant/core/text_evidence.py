"""How much equal texts in two datasets say about shared people, in nats. docs/decisions/0061 has the figures.

    weight(text)   (letters - 20) / 6, from 0 to 12: strangers share a text of n letters e^-(n - 20)/6 times
                   as often as one of 20
    λ              shared texts of 20 letters or more that two datasets of strangers are expected to have
    threshold      (√λ + √ln 10⁴)²: strangers reach it in fewer than one of 10⁴ pairs of datasets

The sum of λ's Poisson many weights, each exponential of mean 1, exceeds t with a probability of at most
exp(-(√t - √λ)²) (Chernoff).
"""

import math

#: Letters of a text that says nothing yet, and further letters for each nat.
LEAST_LETTERS, LETTERS_PER_NAT = 20, 6
#: One text says no more, however long: letters, forms and licences are long texts of many people.
MOST_WEIGHT = 12.0
#: Of two records of strangers, both are the same text of at least LEAST_LETTERS so often.
STRANGERS = 1.2e-7
#: Texts of the larger dataset that count: what strangers share grows no more beyond.
MOST_TEXTS = 100_000
FALSE_REFUSALS = 1e-4
#: A text in more than this share of its dataset's records, and in more than so many, is a form.
COMMON_SHARE, COMMON_RECORDS = 0.01, 10


def weight(letters: int) -> float:
    """The evidence of one shared text with so many distinct letters (workers.data.fingerprints)."""
    return min(max(letters - LEAST_LETTERS, 0) / LETTERS_PER_NAT, MOST_WEIGHT)


def threshold(here: int, there: int) -> float:
    """The evidence that refuses a dataset with `here` texts, beside one with `there`."""
    small, large = sorted((here, there))
    expected = STRANGERS * small * min(large, MOST_TEXTS)
    return (math.sqrt(expected) + math.sqrt(-math.log(FALSE_REFUSALS))) ** 2
