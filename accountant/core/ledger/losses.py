"""LOSS: two people say that entries of a ledger are lost, and all that is left is charged.

    signed heads that neither database nor log holds ── two people ──▶ LOSS ──▶ nothing is left

Lost entries may have reserved, charged and allowed anything: what they spent can't be known any
more. So a LOSS charges whatever the accounts have left, no statement sums up all releases after it,
and only a larger allowance, by two people, admits jobs again. Its number and its previous hash say
what was at hand. It rests on the word of two people: nobody can prove that entries are gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.accounts import Accounts
from accountant.core.ledger.checkpoints import Checkpoint
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.hash_chain import Entry
from accountant.core.ledger.reservations import move
from accountant.core.privacy.filters import Amount, Costs, Kind
from accountant.core.privacy.secrets import SecretKind


@dataclass(frozen=True)
class LostEntries:
    """Entries of one dataset that were published and are lost: the first, the last and its hash.

    Others may have followed, which nobody published.
    """

    first: int
    last: int
    hash: str

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first, "last": self.last, "hash": self.hash}


@dataclass(frozen=True)
class Rest:
    """All that the accounts of a dataset have left, in each currency."""

    costs: Costs
    ex_post: int
    secret: int

    @classmethod
    def of(cls, accounts: Accounts) -> "Rest":
        """Return what is left."""
        filters = () if accounts.dp is None else accounts.dp.filters
        secret = accounts.secret
        left = 0 if secret is None else secret.limit - secret.spent - secret.reserved
        costs: dict[Kind, Amount | None] = {
            filter_.filter.kind: Amount(max(filter_.left.main, 0), max(filter_.left.delta, 0))
            for filter_ in filters
        }
        return cls(costs, max(accounts.ex_post.left, 0), max(left, 0))


def loss_body(
    people: Mapping[str, str],
    accounts: Accounts,
    heads: Sequence[Mapping[str, Any]],
    lost: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the body of a LOSS.

    Args:
        people: Both people and their reasons (reversals.TwoPeople).
        accounts: The accounts, of which all that is left is charged.
        heads: The signed heads of the log that are not those of the log at hand.
        lost: The dataset's published entries that are lost, or None if nobody knows which.
    """
    rest = Rest.of(accounts)
    return {
        **people,
        "signed": [dict(head) for head in heads],
        "lost": lost,
        "costs": costs_json(rest.costs),
        "ex_post": str(rest.ex_post),
        "secret": str(rest.secret),
    }


def covers(loss: Entry, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint that the ledger does not hold may be of the lost entries."""
    lost = loss.body["lost"]
    if checkpoint.dataset != loss.dataset or checkpoint.at > loss.at:
        return False
    if lost is None:
        return checkpoint.seq >= loss.seq
    is_last = checkpoint.seq == lost["last"]
    return bool(
        checkpoint.seq >= lost["first"] and (not is_last or checkpoint.head == lost["hash"])
    )


def sentence(loss: Entry) -> str:
    """Return what a verifier says of a LOSS."""
    body, lost = loss.body, loss.body["lost"]
    which = "entries"
    if lost is not None:
        which = f"entries {lost['first']:,} to {lost['last']:,}, and perhaps more,"
    people = "two people"
    if not is_hidden(body["proposed_by"]) and not is_hidden(body["confirmed_by"]):
        people = f"{body['proposed_by']} and {body['confirmed_by']}"
    return (
        f"not provable: {which} of this ledger were lost before entry {loss.seq:,}, on the word of "
        f"{people}. What they spent is unknown; all that was left was charged"
    )


def uncovered(loss: Entry, checkpoint: Checkpoint) -> str:
    """Return what a verifier says of a checkpoint that may be of lost entries."""
    return (
        f"not provable: a checkpoint signed at {checkpoint.at:%Y-%m-%d %H:%M:%S} for entry "
        f"{checkpoint.seq:,} is not of this ledger. By entry {loss.seq:,}, it is of entries that "
        "were lost"
    )


def charged(accounts: Accounts, body: Mapping[str, Any]) -> Accounts:
    """Return the accounts after a LOSS. Raises VerificationFailed unless it charges the rest."""
    rest = Rest.of(accounts)
    if body["costs"] != costs_json(rest.costs) or body["secret"] != str(rest.secret):
        raise VerificationFailed("it does not charge all that is left")
    if not is_hidden(body["ex_post"]) and body["ex_post"] != str(rest.ex_post):
        raise VerificationFailed("it does not charge all that is left of ex-post caps")
    account, ex_post, secret = accounts.dp, accounts.ex_post, accounts.secret
    if account is not None:
        account = move(account, rest.costs, spent=1, keep_closed=True)
    if secret is not None:
        jobs = max(secret.jobs, 1) if secret.kind is SecretKind.ONE else secret.jobs
        secret = replace(secret, spent=secret.spent + rest.secret, jobs=jobs)
    ex_post = replace(ex_post, spent=ex_post.spent + rest.ex_post)
    return replace(accounts, dp=account, ex_post=ex_post, secret=secret)
