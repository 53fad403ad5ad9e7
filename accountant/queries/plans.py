"""What-if planning on a dataset: until when its allowance lasts at a pace, as its reader may know it."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine

from accountant.core.errors import NotPermitted, invalid
from accountant.core.ledger.accounts import Settlement, demand
from accountant.core.ledger.pace import Pace, Supply, share_left_after, supply
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.base import Mechanism
from accountant.core.privacy.composition import epsilon_alone
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.admission_preview import accounts_shown
from accountant.queries.remaining import share_left
from accountant.queries.rows import dataset_row, seen_by
from accountant.schema.plans import MonthOfPlan, Plan
from accountant.schema.quotes import Room
from accountant.tables.accounts_row import read_books
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import price_of, terms_of

MOST_PEOPLE = MOST_EACH = 100_000
#: Months beyond which no date is named, and months that a plan shows one by one.
MOST_MONTHS = 1_200
MOST_ROWS = 60

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


def plan_on(
    engine: Engine,
    name: str,
    mechanism: Mechanism[Any],
    raw: Mapping[str, Any],
    people: int,
    each: int,
    start: str,
    until: str | None,
    viewer: Actor,
) -> Plan:
    """Jobs of `mechanism` with the parameters `raw`, from the month `start` on ("2027-03").

    For the dataset's stewards, and for analysts who may ask on it. Counted from the accounts as the viewer
    may see them, under the terms and the policy of now; nothing is written. Raises NotFound, NotPermitted and
    InvalidRequest.
    """
    _check_pace(people, each)
    first = read_month(start, "start")
    months = None if until is None else read_month(until, "until") - first + 1
    if months is not None and not 1 <= months <= MOST_MONTHS:
        allowed = f"from {start} to {month(first + MOST_MONTHS - 1)}"
        raise invalid("until", f"{until} is {'before the plan begins' if months < 1 else 'too far'}", allowed)
    with reading(engine) as connection:
        row = dataset_row(connection, name)
    policy, roles = Policy.model_validate(row.policy), seen_by(viewer, row).roles
    may_ask = viewer.roles & {"analyst", "steward"} and viewer.name in (policy.analysts or (viewer.name,))
    if "steward" not in roles and not may_ask:
        raise NotPermitted("plans are for the dataset's stewards, and for analysts who may ask on it")
    overseer = bool(roles & OVERSEERS)
    accounts = accounts_shown(read_books(row).accounts, overseer)
    terms = terms_of(row, accounts)
    price = price_of(mechanism, mechanism.parse(raw, terms), terms)
    asked, pace = demand(price), Pace(people, each)
    plan = {"people": people, "each": each, "a_month": pace.a_month, "start": start, "until": until}
    if asked.ex_post and not overseer and accounts.ex_post.settlement is Settlement.REALIZED:
        return Plan(**plan, jobs=None, told=False)
    alone = 0.0 if price.dp is None else epsilon_alone(price.dp, terms.delta)[0]
    found = supply(accounts, asked, policy, alone)
    if found is None:
        return Plan(**plan, jobs=None, told=True)
    stock, room = found
    whole = stock.months(pace)
    largest = (None, None) if months is None else stock.largest(people, months)
    return Plan(
        **plan,
        jobs=stock.together,
        told=True,
        own_jobs=stock.own,
        binding=Room(**asdict(room)),
        months=whole,
        last=month(first + whole - 1) if 0 < whole <= MOST_MONTHS else None,
        rest=stock.rest(pace),
        largest_each=largest[0],
        largest_together=largest[1],
        share_left=None if accounts.dp is None else share_left(accounts),
        rows=[
            MonthOfPlan(share_left=share_left_after(accounts, asked, each["so_far"]), **each)
            for each in _rows(stock, pace, first)
        ],
    )


def _rows(stock: Supply, pace: Pace, first: int) -> list[dict[str, Any]]:
    """Each month with what is asked and fits in it: whole months, then what fits of the next."""
    whole = stock.months(pace)
    rows = [
        {
            "month": month(first + number),
            "jobs": pace.a_month,
            "so_far": (number + 1) * pace.a_month,
            "left": stock.left(pace, number + 1),
        }
        for number in range(min(whole, MOST_ROWS))
    ]
    rest = stock.rest(pace)
    if whole < MOST_ROWS and rest:
        so_far = whole * pace.a_month + rest
        rows.append(
            {"month": month(first + whole), "jobs": rest, "so_far": so_far, "left": stock.together - so_far}
        )
    return rows


def _check_pace(people: int, each: int) -> None:
    for name, value, most in (("people", people, MOST_PEOPLE), ("each", each, MOST_EACH)):
        if not 1 <= value <= most:
            raise invalid(name, f"{value:,}"[:40], f"a whole number from 1 to {most:,}")


def read_month(text: str, field: str) -> int:
    """A month as a number that counts months; raises InvalidRequest."""
    found = _MONTH.fullmatch(text)
    if found is None or not 1970 <= int(found[1]) <= 9000:
        raise invalid(field, repr(text[:40]), "a month, as 2027-03")
    return int(found[1]) * 12 + int(found[2]) - 1


def month(number: int) -> str:
    """The month of such a number, as "2027-03"."""
    return f"{number // 12:04}-{number % 12 + 1:02}"
