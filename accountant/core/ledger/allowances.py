"""A steward's allowance for a dataset as stated, and the body of the ALLOW entry made from it.

Pure. Every wrong figure is an InvalidRequest that names its field, raised before any row is locked
for long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from accountant.core.errors import Conflict, invalid
from accountant.core.ledger.accounts import (
    SecretAccount,
    Settlement,
    allow_ex_post,
    allow_secret,
    ex_post_json,
    new_secret_account,
    secret_json,
)
from accountant.core.ledger.books import Books
from accountant.core.ledger.entry_bodies import allow_body
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.filters import Kind, granted
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.core.privacy.units import exact


@dataclass(frozen=True)
class SecretDeclaration:
    """A steward's statement about a dataset's secrets: terms, kind of account, and order of a
    `many` one.

    If `kind` or `order` is None, the current account keeps its own.
    """

    terms: SecretTerms
    kind: SecretKind | None = None
    order: object | None = None

    @classmethod
    def from_json(cls, value: object) -> "SecretDeclaration":
        """Return a declaration from JSON: SecretTerms, kind and order. Raises InvalidRequest."""
        if not isinstance(value, Mapping):
            raise invalid("secret", "not an object", "prior, bound, records_per_secret, …")
        terms = {name: given for name, given in value.items() if name not in ("kind", "order")}
        kind = value.get("kind")
        if kind is not None and kind not in tuple(SecretKind):
            raise invalid("secret.kind", f"{kind!r} is unknown", ", ".join(SecretKind))
        read = SecretTerms.from_json(terms)
        return cls(read, None if kind is None else SecretKind(kind), value.get("order"))


@dataclass(frozen=True)
class Allowance:
    """An allowance in decimals, with its reason.

    `epsilon` and `delta` may be None if another allowance is given: the (epsilon, delta) account
    then stays as it is. `shares` (of delta, by filter) and `order` (of the Rényi filter) are
    accepted with the first allowance only. `ex_post` is the permitted sum of ex-post caps;
    `ex_post_settlement` None keeps the current one.
    """

    epsilon: object
    delta: object
    reason: str
    shares: Mapping[str, object] | None = None
    order: object | None = None
    ex_post: object | None = None
    ex_post_settlement: str | None = None
    secret: SecretDeclaration | None = None


def allowance_body(
    allowance: Allowance, books: Books, neighbours: str, unit_column: str | None = None
) -> dict[str, Any]:
    """Return the body of the ALLOW that grants `allowance` on a dataset with these books.

    `unit_column` is the column of the privacy unit, or None if a record is one. Raises
    InvalidRequest naming a wrong field, and Conflict if a job that has run prevents it.
    """
    if not allowance.reason.strip():
        raise invalid("reason", "empty", "why the allowance is set or changed")
    ex_post = _ex_post(allowance, books)
    secret = None
    if allowance.secret is not None:
        check_removal(allowance.secret.terms, unit_column)
        secret = _secret(allowance.secret, books, neighbours)
    if allowance.epsilon is None:
        if ex_post is None and secret is None:
            raise invalid(
                "epsilon", "nothing is allowed", "a number, or an ex-post or secret allowance"
            )
        if (
            allowance.delta is not None
            or allowance.shares is not None
            or allowance.order is not None
        ):
            raise invalid("epsilon", "not given, and delta, shares or an order are", "a number")
    return allow_body(
        books.account,
        allowance.epsilon,
        allowance.delta,
        allowance.reason,
        shares=None if allowance.shares is None else _shares(allowance.shares),
        order=None if allowance.order is None else exact(allowance.order, "order"),  # type: ignore[arg-type]
        ex_post=ex_post,
        secret=secret,
    )


def raises(books: Books, body: Mapping[str, Any]) -> bool:
    """Return True if this ALLOW loosens anything, as a first allowance and `realized` do."""
    if "epsilon" in body:
        epsilon, delta = granted(body["epsilon"], body["delta"])
        if books.account is None or epsilon > books.account.epsilon or delta > books.account.delta:
            return True
    if "ex_post" in body:
        after = allow_ex_post(books.ex_post, body["ex_post"])
        loosened = after.settlement is Settlement.REALIZED is not books.ex_post.settlement
        if loosened or after.limit > books.ex_post.limit:
            return True
    if "secret" in body:
        bound = SecretTerms.from_json(body["secret"]["terms"]).bound
        return books.secret is None or bound > books.secret.terms.bound
    return False


def check_removal(terms: SecretTerms, unit_column: str | None) -> None:
    """Raise InvalidRequest if removing a record is more than one neighbouring step.

    If the privacy unit is a column, a removed record leaves its unit behind, changed: the unit
    keeps its other records, or gains one that the limit on records per unit had kept out. That is
    the step of a redacted record, and twice as far.
    """
    if unit_column is not None and terms.without is Without.REMOVED:
        problem = f"removal of a record leaves its {unit_column} behind, changed"
        raise invalid("neighbour", problem, "redacted, where the privacy unit is a column")


def _shares(given: Mapping[str, object]) -> dict[Kind, Fraction]:
    if not isinstance(given, Mapping):
        raise invalid("shares", "not an object", "one share for each of " + ", ".join(Kind))
    unknown = sorted(set(given) - set(Kind))
    if unknown:
        raise invalid("shares", f"unknown {', '.join(map(repr, unknown))}", ", ".join(Kind))
    return {Kind(name): exact(value, f"shares.{name}") for name, value in given.items()}  # type: ignore[arg-type]


def _ex_post(allowance: Allowance, books: Books) -> dict[str, Any] | None:
    wanted = allowance.ex_post_settlement
    if wanted is not None and wanted not in tuple(Settlement):
        raise invalid("ex_post_settlement", f"{wanted!r} is unknown", ", ".join(Settlement))
    if allowance.ex_post is None:
        if wanted is not None:
            raise invalid(
                "ex_post", "a settlement is given and no allowance", "a number of at least 0"
            )
        return None
    settlement = books.ex_post.settlement if wanted is None else Settlement(wanted)
    value = ex_post_json(allowance.ex_post, settlement)
    allow_ex_post(books.ex_post, value)  # says which figure it would fall below
    return value


def _secret(declared: SecretDeclaration, books: Books, neighbours: str) -> SecretAccount:
    """Return the declared account, after the checks that the entry itself would fail."""
    standing = books.secret
    kind = declared.kind or (None if standing is None else standing.kind)
    if kind is None:
        raise invalid("secret.kind", "not given", ", ".join(SecretKind))
    order = None if declared.order is None else exact(declared.order, "secret.order")  # type: ignore[arg-type]
    if order is None and standing is not None:
        order = standing.order
    wanted = new_secret_account(declared.terms, kind, neighbours, order)
    before = books.history.jobs + books.history.losses
    if standing is None and before:
        raise Conflict("jobs ran before, and would stand outside a statement about secrets")
    allow_secret(standing, secret_json(wanted), before)
    return wanted
