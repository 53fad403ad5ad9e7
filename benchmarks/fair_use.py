"""Ten analysts ask on one dataset for a year: first come, first served against fair use.

    python -m benchmarks.fair_use [--years 50] [--pool 60] [--asked 120]

Two of the ten ask five times as often as the others, at times drawn evenly over twelve months of 30
days. A request's ε by itself is log-uniform from the lowest to the highest price of the requests in
examples/, on the demo's reviews. The shared ε pays `--pool` mean requests, and `--asked` are made
in a mean year. The rule is the product's own (core.ledger.fair_use); no job runs.
"""

import argparse
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from uuid import UUID

from accountant.core import mechanisms
from accountant.core.ledger.caps import counted
from accountant.core.ledger.fair_use import Request, Shared, Sharing, next_of
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.price import Terms
from workers import sample

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TERMS = Terms(delta=1e-6, public_size=3000, labels=sample.LABELS, groups=sample.KINDS)
MONTHS, DAYS = 12, 30
NAMES = tuple(f"analyst-{number}" for number in range(10))
#: Two ask five times as often.
RATES = (5, 5, *(1 for _ in NAMES[2:]))


def prices() -> list[int]:
    """Return the counted ε of the requests in examples/ that cost any."""
    found = []
    for path in sorted(EXAMPLES.glob("*.json")):
        asked = json.loads(path.read_text("utf-8"))
        mechanism = mechanisms.get(asked["mechanism"])
        if "secret" in json.dumps(asked["parameters"]) or mechanism.id == "secpe":
            continue  # it guards secrets, which caps don't count
        price = mechanism.price(mechanism.parse(asked["parameters"], TERMS), TERMS)
        if price.dp is not None and (alone := epsilon_alone(price.dp, TERMS.delta)[0]):
            found.append(counted(alone))
    return found


@dataclass
class Year:
    """The outcome of a year: what each analyst got, and how long admitted requests waited."""

    used: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    waited: list[float] = field(default_factory=list)

    def admit(self, request: Request, days: float) -> None:
        """Count a request that waited so many days."""
        self.used[request.holder] += request.asked
        self.waited.append(days)


def year_of(sharing: Sharing, requests: list[tuple[float, Request]]) -> Year:
    """Return the outcome of requests, each with its day, under a sharing that lets them wait."""
    shared, outcome = Shared(sharing, 0, {}, {}), Year()
    waiting: dict[UUID, tuple[float, Request]] = {}
    # Those that wait at the end of the year have the month after it.
    months = [(DAYS * month, None) for month in range(1, MONTHS + 1)]
    for day, request in sorted([*requests, *months], key=lambda event: event[0]):
        if request is not None:
            waiting[request.key] = day, request
        else:
            earlier = {name: shared.used(name) for name in NAMES}
            shared = Shared(sharing, shared.month + 1, earlier, {})
        while (due := next_of([each for _, each in waiting.values()], shared)) is not None:
            since, _ = waiting.pop(due.key)
            if due.asked <= shared.room(due.holder):
                shared = shared.after(due.holder, due.asked)
                outcome.admit(due, day - since)
    return outcome


def drawn(chance: random.Random, low: int, high: int, asked: float) -> list[tuple[float, Request]]:
    """Return a year's requests with their days, in the order of arrival."""
    found = []
    for name, rate in zip(NAMES, RATES, strict=True):
        day = 0.0
        while (day := day + chance.expovariate(asked * rate / sum(RATES) / (MONTHS * DAYS))) < (
            MONTHS * DAYS
        ):
            size = round(low * (high / low) ** chance.random())
            found.append((day, Request(UUID(int=chance.getrandbits(128)), name, size)))
    return sorted(found, key=lambda each: each[0])


def main() -> None:
    """Print one row for each rule."""
    own = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    own.add_argument("--years", type=int, default=50)
    own.add_argument("--pool", type=int, default=60)
    own.add_argument("--asked", type=int, default=120)
    options = own.parse_args()
    low, high = min(prices()), max(prices())
    chance = random.Random(1)
    typical = mean(low * (high / low) ** chance.random() for _ in range(100_000))
    total = round(options.pool * typical)
    years = [drawn(chance, low, high, options.asked) for _ in range(options.years)]
    print(f"ε from {low / 1e9:.2f} to {high / 1e9:.2f}; shared ε {total / 1e9:.0f}")
    print("rule                   admitted  ε used  lowest  highest  days waited")
    for name, months, weights in (
        ("first come", 1, {}),
        ("release", MONTHS, {}),
        ("release and shares", MONTHS, dict.fromkeys(NAMES, 1)),
    ):
        ends = [year_of(Sharing(total, 0, months, weights), requests) for requests in years]
        admitted = mean(len(end.waited) for end in ends)
        asked = mean(len(requests) for requests in years)
        used = mean(sum(end.used.values()) for end in ends) / total
        least, most = (mean(pick(end.used.values()) for end in ends) / total for pick in (min, max))
        waited = mean(mean(end.waited) for end in ends)
        print(
            f"{name:20}  {admitted:4.0f}/{asked:.0f}  {used:5.0%}   {least:5.1%}   {most:5.0%}"
            f"    {waited:6.0f}"
        )


if __name__ == "__main__":
    main()
