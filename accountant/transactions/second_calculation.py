"""A job's price is calculated twice before anything of it is charged (docs/accounting.md, section
14).

    prepare ── before the lock: calculate what is not known yet
    consider ── under the account's lock: is this charge known to hold? ──▶ RESERVE, or a refusal
        └── not known, as terms changed: Unchecked ──▶ the transaction ends; `admitting` calculates
                                                       without any lock, and runs it again

A charge is an event with its cost on each filter, so what was found for one holds for every job of
that shape and those figures, on any dataset. It is kept in memory: each process calculates a shape
once. Whatever is not known to hold is refused: a lower price, and also an error or no answer in
time.
"""

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import wraps
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from accountant.core.errors import Conflict
from accountant.core.ledger.accounts import Accounts, without_realized
from accountant.core.ledger.admission import Refused
from accountant.core.privacy import cross_check
from accountant.core.privacy.cross_check import Charge
from accountant.core.privacy.events import spends, to_json
from accountant.core.privacy.filters import Costs
from accountant.transactions.job_requests import Candidate

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds for which a request waits for a second calculation, its turn included. They take well
#: below one.
LONGEST = 30.0
#: Seconds for which a shape that could not be calculated is refused, before that is tried again.
_RETRY = 60.0
_MOST_KEPT = 4096
#: Each try meets one shape; a dataset whose terms change in between meets another.
_MOST_TRIES = 4

#: What was found: the problem, or None where the price holds, and the time until which that is
#: known.
_known: OrderedDict[Charge, tuple[str | None, float]] = OrderedDict()
_known_lock = Lock()
#: One calculation at a time, and beside it a long one, so that no job of a mechanism waits for one
#: of many kinds of releases. One that never ends keeps its turn: no new shape of its length is then
#: admitted.
_turn, _long_turn = Lock(), Lock()


class Unchecked(Exception):
    """A job would be admitted at a price that was not calculated twice yet."""

    def __init__(self, charge: Charge) -> None:
        super().__init__("the price was not calculated a second time yet")
        self.charge = charge


def refusal(accounts: Accounts, job: Candidate, costs: Costs) -> Refused | None:
    """Return None where these costs of a job hold by a second calculation; else the refusal. Only
    looks up.

    Raises Unchecked where nothing is known about it yet.
    """
    if accounts.dp is None or not spends(job.asked.dp):
        return None
    filters = tuple(filter_.filter for filter_ in accounts.dp.filters)
    # A filter that the job closes is compared at its price too, so that one calculation serves
    # whatever the balances are.
    priced = {
        kind: price if costs[kind] is None else costs[kind]
        for kind, price in accounts.dp.costs(job.asked.dp).items()
    }
    asked = cross_check.charge(job.asked.dp, filters, priced, job.epsilon_alone, job.terms.delta)
    with _known_lock:
        problem, until = _known.get(asked, (None, 0.0))
        if until <= time.monotonic():
            raise Unchecked(asked)
        _known.move_to_end(asked)
    if problem is None:
        return None
    why = (
        "its price is not confirmed, so it can't be admitted safely now; nothing was charged: "
        f"{problem}"
    )
    return Refused("second calculation", "-", "-", why)


def prepare(accounts: Accounts, job: Candidate) -> None:
    """Calculate the price of a job that would fit, so that its decision finds it known. Holds no
    lock.

    Whether it would fit is told by public figures alone, as who asks may see how long the answer
    takes.
    """
    if accounts.dp is None:
        return
    costs, _ = accounts.dp.charge(job.asked.dp)
    try:
        refusal(accounts, job, costs)
    except Unchecked as missing:
        if without_realized(accounts).fits(job.asked):
            calculate(missing.charge)


def admitting(act: Callable[P, T]) -> Callable[P, T]:
    """Return a transaction that may admit a job, run again after prices that it lacked."""

    @wraps(act)
    def acted(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_MOST_TRIES):
            try:
                return act(*args, **kwargs)
            except Unchecked as missing:
                calculate(missing.charge)
        raise Conflict("its price changed again and again meanwhile: try it again")

    return acted


# --- without any lock on an account -------------------------------------------------------------


def calculate(asked: Charge) -> None:
    """Find out whether a charge holds, and keep it, in about `LONGEST` seconds. Never raises."""
    end = time.monotonic() + LONGEST
    turn = _long_turn if cross_check.is_long(asked) else _turn
    if not turn.acquire(timeout=LONGEST):
        _keep(asked, "no second calculation has ended in time", broken=True)
        return
    with _known_lock:  # another thread had the same job
        if _known.get(asked, (None, 0.0))[1] > time.monotonic():
            turn.release()
            return

    def work() -> None:
        try:
            _keep(asked, *_outcome(asked))
        finally:
            turn.release()

    # A thread can't be ended from outside: one that hangs is left behind, with its turn.
    thread = Thread(target=work, name="second calculation", daemon=True)
    thread.start()
    thread.join(max(end - time.monotonic(), 0.0))
    if thread.is_alive():
        _keep(asked, f"the second calculation took over {LONGEST:g} s", broken=True)


def _outcome(asked: Charge) -> tuple[str | None, bool]:
    try:
        problems = cross_check.findings(asked)
    except Exception as error:  # also whatever dp-accounting raises
        logger.exception("a price could not be calculated a second time")
        return f"the second calculation failed ({type(error).__name__})", True
    return "; ".join(map(str, problems)) or None, False


def _keep(asked: Charge, problem: str | None, broken: bool) -> None:
    if problem is not None:
        logger.error(
            "a price is not confirmed by dp-accounting, jobs of this shape are refused: %s: %s",
            problem,
            json.dumps(to_json(asked.event)),
        )
    with _known_lock:
        _known[asked] = (problem, time.monotonic() + _RETRY if broken else float("inf"))
        _known.move_to_end(asked)
        while len(_known) > _MOST_KEPT:
            _known.popitem(last=False)


def refused_now() -> Mapping[str, Any]:
    """Return the shapes refused in this process now, and those that can't be calculated."""
    with _known_lock:
        refused = [until for problem, until in _known.values() if problem is not None]
    now = time.monotonic()
    broken = sum(now < until < float("inf") for until in refused)
    return {"wrong": sum(until == float("inf") for until in refused), "not calculated": broken}
