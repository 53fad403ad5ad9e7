"""What a job of the harness costs, and how much there is, by the published formulas in floating
point.

Nothing here calls the code that prices.
"""

import math
from statistics import NormalDist
from typing import Any

NORMAL = NormalDist()

Row = dict[str, Any]


def cost_of(event: Row, filters: list[Row], charged: int) -> dict[str, float | None]:
    """Return the cost of Laplace and Gaussian releases on each filter; None: it closes the filter.

    `charged` is the delta that its entry charges on the basic filter, in 10^-21. Of several
    releases that are charged a delta the basic filter's is at least that of the largest.
    """
    if event["type"] == "composed":
        parts = [cost_of(each, filters, charged) for each in event["events"]]
        together = max if charged else sum
        return {
            each["kind"]: None
            if any(part[each["kind"]] is None for part in parts)
            else float(
                (together if each["kind"] == "basic" else sum)(
                    [part[each["kind"]] or 0 for part in parts] or [0]
                )
            )
            for each in filters
        }
    noise, costs = event["noise_multiplier"], dict[str, float | None]()
    for each in filters:
        kind = each["kind"]
        if each["order"] is not None:
            costs[kind] = renyi(event["type"], noise, fraction(each["order"]))
        elif kind == "gaussian":
            mu = (
                1 / noise
                if event["type"] == "gaussian"
                else -2 * NORMAL.inv_cdf(math.exp(-1 / (2 * noise)) / 2)
            )
            costs[kind] = mu * mu
        else:
            costs[kind] = (
                1 / noise if event["type"] == "laplace" else epsilon_at(1 / noise, charged / 1e21)
            )
    return costs


def delta_of(body: Row) -> int:
    """The delta that an entry charges on the basic filter, in 10^-21."""
    return int(body["costs"]["basic"]["delta"])


def epsilon_at(mu: float, delta: float) -> float:
    """The epsilon at which the profile of mu-GDP is delta: no more than any bound on it may
    charge.
    """
    low, high = 0.0, 1_000.0
    while high - low > 1e-12:
        epsilon = (low + high) / 2
        low, high = (epsilon, high) if profile(mu, epsilon) > delta else (low, epsilon)
    return high


def renyi(kind: str, noise: float, order: float) -> float:
    """Mironov 2017, Propositions 6 and 7."""
    if kind == "gaussian":
        return order / (2 * noise * noise)
    rising = math.log(order / (2 * order - 1)) + (order - 1) / noise
    falling = math.log((order - 1) / (2 * order - 1)) - order / noise
    return (rising + math.log1p(math.exp(falling - rising))) / (order - 1)


def fraction(text: str) -> float:
    top, _, bottom = text.partition("/")
    return int(top) / int(bottom or 1)


def limit_of(each: Row, epsilon: float, delta: float) -> float:
    """Return a filter's total under (epsilon, delta)."""
    own = fraction(each["share"]) * delta
    if each["order"] is not None:
        order = fraction(each["order"])
        # Canonne, Kamath and Steinke 2020, Proposition 12.
        return epsilon - (math.log1p(-1 / order) - (math.log(own) + math.log(order)) / (order - 1))
    return largest_mu(epsilon, own) ** 2 if each["kind"] == "gaussian" else epsilon


def largest_mu(epsilon: float, delta: float) -> float:
    """The mu whose profile at epsilon is delta (Dong, Roth and Su 2022, Corollary 2.13)."""
    low, high = 1e-6, 50.0
    while high - low > 1e-12:
        mu = (low + high) / 2
        low, high = (low, mu) if profile(mu, epsilon) > delta else (mu, high)
    return low


def profile(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP."""
    far = below(-epsilon / mu - mu / 2)
    return below(-epsilon / mu + mu / 2) - (math.exp(epsilon) * far if far else 0.0)


def below(value: float) -> float:
    """The normal distribution function. `NormalDist.cdf` has no digits left of values below -8."""
    return math.erfc(-value / math.sqrt(2)) / 2
