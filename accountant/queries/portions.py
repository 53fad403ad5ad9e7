"""Accounts of which only a part may be used: what a fresh request is fitted to.

Pure. The rest is set aside as if it were reserved, so every rule of admission holds as it does of the whole.
"""

from dataclasses import replace
from fractions import Fraction

from accountant.core.ledger.accounts import Accounts, ExPostAccount, SecretAccount
from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.ledger.caps import ANALYST, PROJECT, Usage, limits
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.filters import Amount
from accountant.core.privacy.secrets import SecretKind


def portion(accounts: Accounts, share: Fraction) -> Accounts:
    """The accounts with this share of what is left, rounded down in every unit; `share` is from 0 to 1.

    A secret account of one exact job can't be shared and stays whole.
    """
    return Accounts(
        dp=None if accounts.dp is None else _of_filters(accounts.dp, share),
        ex_post=_of_ex_post(accounts.ex_post, share),
        secret=None if accounts.secret is None else _of_secret(accounts.secret, share),
    )


def portion_of_caps(used: Usage, policy: Policy, share: Fraction) -> Usage:
    """The same of what the policy's caps leave to a person and a project."""
    set_by = limits(policy)
    return Usage(
        analyst=used.analyst + _rest(set_by.get(ANALYST, 0) - used.analyst, share),
        project=used.project + _rest(set_by.get(PROJECT, 0) - used.project, share),
    )


def _rest(left: int, share: Fraction) -> int:
    """The part of what is left that is set aside; nothing of what is overdrawn."""
    return left - int(left * share) if left > 0 else 0


def _of_filters(account: Account, share: Fraction) -> Account:
    def one(each: FilterAccount) -> FilterAccount:
        aside = Amount(_rest(each.left.main, share), _rest(each.left.delta, share))
        return replace(each, reserved=each.reserved + aside)

    return replace(account, filters=tuple(map(one, account.filters)))


def _of_ex_post(account: ExPostAccount, share: Fraction) -> ExPostAccount:
    return replace(account, reserved=account.reserved + _rest(account.left, share))


def _of_secret(account: SecretAccount, share: Fraction) -> SecretAccount:
    if account.kind is SecretKind.ONE:
        return account
    aside = _rest(account.limit - account.spent - account.reserved, share)
    return replace(account, reserved=account.reserved + aside)
