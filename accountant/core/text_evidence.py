"""How much equal texts in two datasets say about shared people, in nats. docs/decisions/0005 says
why.

    weight(text)   (letters - 20) / 6, from 0 to 12: strangers share a text of n letters e^-(n -
                   20)/6 times as often as one of 20
    λ              texts of 20 letters or more that two datasets of strangers are expected to share
    threshold      what the evidence of strangers reaches in one of 10⁴ pairs of datasets

The evidence of strangers is a sum of λ's Poisson many weights, each exponential of mean 1. Twice
that sum is chi-squared with no degrees of freedom and noncentrality 2λ.
"""

#: Letters of a text that says nothing yet, and further letters for each nat.
LEAST_LETTERS, LETTERS_PER_NAT = 20, 6
#: One text says no more, however long: letters, forms and licences are long texts of many people.
MOST_WEIGHT = 12.0
#: Two records of strangers are the same text of at least LEAST_LETTERS so often; twice what was
#: measured.
STRANGERS = 2e-7
#: Texts of the larger dataset that count: what strangers share hardly grows beyond.
MOST_TEXTS = 100_000
FALSE_REFUSALS = 1e-4
#: Less evidence refuses no dataset, however small: one text of 56 letters.
LEAST_EVIDENCE = 6.0
#: A text of new data is a form, and no evidence, in more than this share of its records and so many
#: of them.
COMMON_SHARE, COMMON_RECORDS = 0.01, 10
#: Of data found right, a text is a form if it occurs more than so many times as often as half of
#: its texts.
COMMON_COPIES = 3


def weight(letters: int) -> float:
    """Return the evidence of a shared text by its distinct letters (workers.data.fingerprints)."""
    return min(max(letters - LEAST_LETTERS, 0) / LETTERS_PER_NAT, MOST_WEIGHT)


def threshold(here: int, there: int) -> float:
    """Return the evidence that refuses a dataset with `here` texts, beside one with `there`."""
    from scipy.stats import ncx2

    small, large = sorted((here, there))
    expected = STRANGERS * small * min(large, MOST_TEXTS)
    return max(LEAST_EVIDENCE, float(ncx2.isf(FALSE_REFUSALS, 1e-9, 2 * expected)) / 2)
