"""The sentences that an account's page states about its three currencies, with their exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from accountant.core.ledger.accounts import Accounts, Settlement
from accountant.core.ledger.charges import LEVELS
from accountant.core.privacy.composition import gaussian_epsilon
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.secrets import (
    SecretKind,
    bound_after,
)
from accountant.core.privacy.units import (
    DELTA_UNITS,
    EPSILON_UNITS,
    exact,
    sqrt_up,
    to_decimal,
    up,
)


class History(NamedTuple):
    """Facts beyond balances that statements must mention; allowances are the largest by part."""

    largest_epsilon: int = 0
    largest_delta: int = 0
    largest_bound: float = 0.0
    raises_after_release: int = 0
    jobs: int = 0
    ex_post_jobs: int = 0
    secret_jobs: int = 0
    failures: int = 0
    #: Times that entries of the ledger were lost: what those spent is unknown.
    losses: int = 0
    #: Charges that two people declared after they had passed what was left, and what these are by
    #: themselves, in 10^-9.
    overdrafts: int = 0
    overdraft_epsilon: int = 0
    #: Jobs whose price counts on nobody knowing the batch of a unit.
    coin_jobs: int = 0
    #: (filter, job) for each closed filter: the first live or settled job that it could not price.
    #: No step of the books needs it; a replay, or who shows an account, fills it in.
    closers: tuple[tuple[Kind, str], ...] = ()


NO_HISTORY = History()


@dataclass(frozen=True)
class Statement:
    """One sentence about one currency. `unqualified`: it holds without exceptions."""

    currency: str
    text: str
    unqualified: bool


def statements(
    accounts: Accounts,
    history: History,
    neighbours: str,
    unit: str,
    vouched: Mapping[str, int] = MappingProxyType({}),
    data_is_here: bool = True,
) -> tuple[Statement, ...]:
    """Return the guarantees that hold now: one sentence per currency, with its exceptions.

    Args:
        vouched: what charges of other programs asked for, each by itself, in 10^-9, by who vouches.
        data_is_here: whether a worker read it, and compared its people with those of other data.
    """
    dp = _dp_statement(accounts, history, neighbours, unit)
    if any(vouched.values()):
        rests = " and ".join(
            f"ε {to_decimal(amount, EPSILON_UNITS)} {LEVELS[level]}"
            for level, amount in sorted(vouched.items())
            if amount
        )
        text = (
            f"{dp.text} It rests on charges of other programs, by themselves {rests}, as asked for."
        )
        dp = Statement(dp.currency, text, False)
    if history.overdrafts:
        dp = Statement(dp.currency, f"{dp.text} {overdraft_sentence(history)}", False)
    if not data_is_here:
        dp = Statement(dp.currency, f"{dp.text} {NO_FINGERPRINTS}", False)
    return (
        dp,
        _ex_post_statement(accounts, history),
        _secret_statement(accounts, history),
    )


#: What every statement says of data that never comes here.
NO_FINGERPRINTS = (
    "The data never comes here, so it has no fingerprints: that its people have no other account "
    "is a steward's word."
)


def overdraft_sentence(history: History) -> str:
    """Return what every statement says of what was spent before it was asked for."""
    amount = to_decimal(history.overdraft_epsilon, EPSILON_UNITS)
    return (
        f"Two people declared {_count(history.overdrafts, 'overdraft')}, ε {amount} by "
        f"{'itself' if history.overdrafts == 1 else 'themselves'} at the δ of the entry: released "
        "before anybody asked, and more than was left."
    )


def _lost(history: History) -> str:
    """Return what every statement about a ledger with lost entries says first."""
    times = "once" if history.losses == 1 else f"{history.losses:,} times"
    return f"Entries of this ledger were lost {times}, and what they released is unknown"


def _dp_statement(accounts: Accounts, history: History, neighbours: str, unit: str) -> Statement:
    if history.losses:
        text = (
            f"No (ε, δ) statement holds of all releases: {_lost(history)}. The allowance limits "
            "what the ledger still names, and nothing else."
        )
        return Statement("dp", text, False)
    if history.secret_jobs:
        text = (
            f"No (ε, δ) statement holds: {_count(history.secret_jobs, 'job')} protected "
            "secrets, not records."
        )
        return Statement("dp", text, False)
    if not history.jobs:
        return Statement("dp", "Nothing has been released.", True)
    epsilon = to_decimal(history.largest_epsilon, EPSILON_UNITS)
    delta = to_decimal(history.largest_delta, DELTA_UNITS)
    if accounts.dp is not None and not accounts.dp.holds:
        text = (
            "Overdrawn: more is charged than the allowance. No filter holds, so not "
            f"even ({epsilon}, {delta}) can be stated of all releases together."
        )
        return Statement("dp", text, False)
    step = (
        f"replacing one {unit}" if neighbours == "replace-one" else f"adding or removing one {unit}"
    )
    exceptions = _exceptions(history)
    if history.ex_post_jobs:
        exceptions.insert(0, f"the outputs of {_count(history.ex_post_jobs, 'ex-post job')}")
    besides = f", except for {'; '.join(exceptions)}" if exceptions else ""
    text = (
        f"All releases together are ({epsilon}, {delta})-differentially private for "
        f"{step}{besides}."
    )
    if history.coin_jobs:
        text += _to_whoever_has_keys(accounts, history)
    return Statement("dp", text, not exceptions and not history.coin_jobs)


def _to_whoever_has_keys(accounts: Accounts, history: History) -> str:
    """Return what is said where batches were secret: for whom the statement holds, and what holds
    for the others.

    The Gaussian filter charges every job as if its batches were known: while it is open, it has the
    total.
    """
    jobs = _count(history.coin_jobs, "job")
    sentence = (
        f" That is for whoever does not hold the keys, deleted as they ended, of {jobs} with "
        "secret batches"
    )
    assert accounts.dp is not None
    (plain,) = (filter_ for filter_ in accounts.dp.filters if filter_.filter.kind is Kind.GAUSSIAN)
    if plain.closed:
        return f"{sentence}; what all releases tell whoever holds them was not added up."
    used = Fraction(plain.spent.main + plain.reserved.main, EPSILON_UNITS)
    epsilon = (
        up(gaussian_epsilon(sqrt_up(used), history.largest_delta / DELTA_UNITS), 4) if used else 0.0
    )
    delta = to_decimal(history.largest_delta, DELTA_UNITS)
    return (
        f"{sentence}; for whoever holds them, the releases so far add up to ({epsilon:.6g}, "
        f"{delta}): no limit."
    )


def _exceptions(history: History) -> list[str]:
    """Return what no statement covers: the information in raises, and that jobs failed."""
    exceptions = []
    if history.raises_after_release:
        raises = _count(history.raises_after_release, "raise")
        exceptions.append(
            f"what {raises} of the allowance after a release told, if results led to it"
        )
    if history.failures:
        exceptions.append(f"the fact that {_count(history.failures, 'job')} failed or ended early")
    return exceptions


def _ex_post_statement(accounts: Accounts, history: History) -> Statement:
    if history.losses:
        text = f"No sum of ex-post caps can be stated: {_lost(history)}."
        return Statement("ex-post", text, False)
    if not history.ex_post_jobs:
        return Statement("ex-post", "No job had a cost that depends on the data.", True)
    jobs = _count(history.ex_post_jobs, "ex-post job")
    if accounts.ex_post.settlement is Settlement.REALIZED:
        # The sum depends on the data: stewards and auditors see it on the account.
        text = (
            f"{jobs}, charged with what the data made them cost: all later decisions depend on it."
        )
    else:
        caps = to_decimal(accounts.ex_post.spent + accounts.ex_post.reserved, EPSILON_UNITS)
        text = (
            f"{jobs} with caps of {caps} together: a planning figure, neither a bound nor a mean, "
            "and approvals given after seeing realized costs leak them."
        )
    return Statement("ex-post", text, False)


#: What the search for declared secrets (secret_patterns) can't find.
NOT_FOUND = (
    "A secret counts where it stands as declared, in any case, script form, blanks and marks; a "
    "misspelling, initials, another transcription or an inflected form is not found and is not "
    "covered."
)


def _secret_statement(accounts: Accounts, history: History) -> Statement:
    account = accounts.secret
    if account is None:
        return Statement("secret", "No statement about secrets is made.", True)
    if history.losses:
        text = f"No statement about secrets holds: {_lost(history)}."
        return Statement("secret", text, False)
    terms = account.terms
    least = max(history.largest_bound, terms.bound)
    now = ""
    if accounts.overdrawn and (
        account.spent + account.reserved > account.limit
        or (account.kind is SecretKind.ONE and account.jobs > 1)
    ):
        text = f"Overdrawn: more is charged than the bound {least}, which no longer holds."
        return Statement("secret", text, False)
    if account.kind is SecretKind.MANY:
        assert account.order is not None
        used = (account.spent + account.reserved) / EPSILON_UNITS
        now = f" (so far {up(bound_after(exact(terms.prior), account.order, used), 3):.3g})"
    elif account.jobs:
        now = f" (so far {up((account.spent + account.reserved) / DELTA_UNITS, 3):.3g})"
    exceptions = _exceptions(history)
    besides = f", except for {'; '.join(exceptions)}" if exceptions else ""
    text = (
        f"Whoever guesses a secret with probability at most {terms.prior} beforehand is right with "
        f"at most {least} afterwards{now}, for secrets in at most "
        f"{_count(terms.records, 'record')} and against the same data with these "
        f"{terms.without}{besides}; it says nothing about other secrets. " + NOT_FOUND
    )
    return Statement("secret", text, not exceptions)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
