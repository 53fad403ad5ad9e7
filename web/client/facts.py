"""The service's answers as the client hands them out: the models of `accountant.schema`, read from
JSON.
"""

from collections.abc import Iterable
from decimal import Decimal
from html import escape
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from accountant.schema.base import Answer
from accountant.schema.datasets import (
    Account,
    Cap,
    Dataset,
    ExPostAccount,
    Filter,
    Remaining,
    SecretAccount,
    Statement,
)
from accountant.schema.jobs import Comment, EntryOfJob, Job, Refusal
from accountant.schema.quotes import Quote as QuoteAnswer
from web.client.errors import Unreadable

A = TypeVar("A", bound=Answer)


def read(model: type[A], document: Any) -> A:
    """Return a JSON document as `model`. Raises Unreadable for another version's."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise Unreadable(
            f"the server's {model.__name__} has another form than this client knows (at "
            f"{where!r}): install the version of exchequer that the server runs"
        ) from None


class DatasetFacts(Dataset):
    """The public facts of a dataset and its accounts; one from the catalogue tells no caps."""

    caps: list[Cap] = Field(default_factory=list)


class JobFacts(Job):
    """A job when the server was asked; in a list without decider, entries and comments."""

    decided_by: str | None = None
    entries: list[EntryOfJob] = Field(default_factory=list)
    comments: list[Comment] = Field(default_factory=list)


class Budget(Answer):
    """A dataset's allowance and what is left; `account` is None before the first."""

    dataset: str
    account: Account | None
    ex_post: ExPostAccount
    secret: SecretAccount | None
    caps: list[Cap]
    statements: list[Statement]
    remaining: Remaining | None = None

    @property
    def epsilon(self) -> Decimal | None:
        """The allowed ε, in all."""
        return None if self.account is None else self.account.epsilon

    @property
    def delta(self) -> Decimal | None:
        """The allowed δ, in all."""
        return None if self.account is None else self.account.delta

    @property
    def filters(self) -> list[Filter]:
        """The filters; none before the first allowance."""
        return [] if self.account is None else self.account.filters

    @property
    def used_share(self) -> float:
        """The used part of the filter with most room, from 0 to 1."""
        return 0.0 if self.account is None else self.account.used_share

    @property
    def sentence(self) -> str:
        """What is left and what it buys, in the words of every page."""
        return "no allowance yet" if self.remaining is None else self.remaining.sentence


class Quote(QuoteAnswer):
    """The price of a request on a dataset, and what admission would say of it now."""

    @property
    def epsilon(self) -> float | None:
        """The ε of the job alone, at `delta`; None if it has no (ε, δ) price."""
        return None if self.dp is None else self.dp.epsilon

    @property
    def delta(self) -> float | None:
        """The δ at which `epsilon` is stated."""
        return None if self.dp is None else self.dp.delta

    @property
    def accountant(self) -> str | None:
        """The accountant whose bound `epsilon` is."""
        return None if self.dp is None else self.dp.accountant

    @property
    def fitted(self) -> tuple[str, int | float] | None:
        """The field that was fitted, and its value."""
        return None if self.fit is None else (self.fit.field, self.fit.value)

    @property
    def ex_post_cap(self) -> float | None:
        """The cap of a cost that depends on the data."""
        return None if self.ex_post is None else self.ex_post.cap

    @property
    def decision(self) -> str:
        """Admitted, NeedsApproval, Waits or Refused."""
        return self.dataset.decision

    @property
    def refusal(self) -> Refusal | None:
        """The refusal, if it would be refused."""
        return self.dataset.refusal if isinstance(self.dataset.refusal, Refusal) else None

    @property
    def jobs_of_this_shape(self) -> int | None:
        """The number of further jobs of this shape that would fit; None: free, or not shown."""
        return self.dataset.jobs_of_this_shape

    @property
    def fits(self) -> bool:
        """True if the request would be admitted, at once or after a steward's approval."""
        return self.decision != "Refused"


# --- Objects as notebooks show them: small tables in which every text is escaped -----------------


def facts_html(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values under a title; values that are None are left out."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in pairs
        if value is not None
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def lines_html(lines: Iterable[str]) -> str:
    """Return sentences, one a line."""
    return "".join(f"<div>{escape(line)}</div>" for line in lines)
