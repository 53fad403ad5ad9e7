"""What a filter by a potential would give: `python -m benchmarks.potential_filter` (decision 0024).

The potential is C(r, b) = E (r R - e^epsilon)+ with R log-normal of mean 1 and variance b of ln R: r is the
likelihood ratio of all that was released, b what is left of mu^2. A step whose ratio is L may be charged any
d with E C(r L, b - d) <= C(r, b) for every r, since r is private; C is homogeneous, so that is: L R' is below
R in convex order, where R' has b - d left. The least such d depends on b and is at most the mu^2 of the step.
It never grows with b, as both sides may be multiplied by one more log-normal.

For tokens moved by at most x the condition has to hold for all ratios in an interval of logarithms 2 x wide,
at whose ends they are worst; for Laplace noise for its own.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.privacy.composition import gaussian_mu
from accountant.core.privacy.events import Event, Exponential, Gaussian, Laplace, PoissonSampled
from accountant.core.privacy.filters import Kind, granted, portfolio
from accountant.core.privacy.privacy_profiles import Array, log_gaussian, mu_of_laplace, mu_of_pure

#: Atoms of a ratio: logarithms, and logarithms of masses without the unit.
Law = tuple[Array, Array]


def token_laws(shift: float, places: int = 25) -> list[Law]:
    """Pairs at the two ends of the interval, of every asymmetry."""
    laws = []
    for t in 2 * shift * np.linspace(0.02, 0.98, places):
        q = (math.exp(-t) - math.exp(-2 * shift)) / -math.expm1(-2 * shift)
        laws.append((np.array([t, t - 2 * shift]), np.log([q, 1 - q])))
    return laws


def laplace_laws(epsilon: float, cells: int = 400) -> list[Law]:
    """Laplace noise in cells, each split between its ends with its mean kept: larger in convex order."""
    ends = np.linspace(-epsilon, epsilon, cells + 1)
    ratios = np.exp(ends)
    # Without the unit a loss is below s with probability 1 - e^((-s - epsilon)/2)/2 inside, by symmetry.
    below = 1 - np.exp(-(ends + epsilon) / 2) / 2
    with_unit = np.exp((ends - epsilon) / 2) / 2
    masses, means = np.diff(below), np.diff(with_unit)
    right = (means - masses * ratios[:-1]) / np.diff(ratios)
    split = np.append(masses - right, 0.0) + np.append(0.0, right)
    split[0] += below[0]
    split[-1] += 1 - below[-1]
    held = split > 0
    return [(ends[held], np.log(split[held]))]


def sampled_law(q: float, mu: float, cells: int = 2000) -> list[Law]:
    """A sampled Gaussian, a unit added: masses of cells, at the cells' own mean ratios (from below)."""
    z = np.linspace(-12, 12 + mu, cells + 1)
    middle = (z[1:] + z[:-1]) / 2
    masses = np.exp(-middle * middle / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    ratios = np.logaddexp(math.log1p(-q), math.log(q) + mu * middle - mu * mu / 2)
    return [(ratios, np.log(masses))]


def excess(laws: Sequence[Law], left: float, price: float) -> float:
    """ln of the largest E C(r L, b - d) / C(r, b) over r; the condition is that it is at most 0.

    Over losses up to twelve deviations: for K = e^epsilon / r >= 1, as swapped pairs give the others. Further
    out a sample fails at every d below its plain mu^2, so this favours it.
    """
    k = np.linspace(0.0, 12 * math.sqrt(left) + left, 400)
    whole = log_gaussian(math.sqrt(left), k)
    rest = math.sqrt(max(left - price, 1e-300))
    found = -math.inf
    for losses, masses in laws:
        terms = (masses + losses)[:, None] + log_gaussian(rest, k[None, :] - losses[:, None])
        found = max(found, float((logsumexp(terms, axis=0) - whole).max()))
    return found


def least_price(laws: Sequence[Law], left: float, most: float) -> float:
    """The least d at `left`, to a thousandth; `most`, the step's own mu^2, always is one."""
    if most >= left:
        return most
    low, high = 0.0, most
    while high - low > 1e-3 * most:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(laws, left, middle) > 1e-9 else (low, middle)
    return high


def steps(laws: Sequence[Law], limit: float, most: float, prices: int = 24) -> int:
    """How many such steps fit `limit`, each at the price of what is left (by a grid of what is left)."""
    grid = np.geomspace(limit, most, prices)
    known = [least_price(laws, float(left), most) for left in grid]
    left, count = limit, 0
    while left >= most:
        # The next smaller entry of the grid: its price is not below that of what is left.
        place = int(np.searchsorted(-grid, -left, side="left"))
        left -= known[min(place, prices - 1)]
        count += 1
    return count


def now(epsilon: str, delta: str, event: Event) -> int:
    """How many such jobs the four filters of a new account admit."""
    allowance = granted(epsilon, delta)
    filters = portfolio(*allowance)
    of = Account(*allowance, tuple(FilterAccount(each, each.limit(*allowance)) for each in filters))
    costs = of.costs(event)
    return max(
        min(each.limit.main // cost.main, each.limit.delta // cost.delta if cost.delta else 10**12)
        for each in of.filters
        if (cost := costs[each.filter.kind]) is not None
    )


def main() -> None:
    """Print prices and counts."""
    print("least price over mu^2 of the step, by what is left in units of it")
    shares = (1.5, 3.0, 10.0, 30.0, 100.0)
    for title, laws, mu in (
        ("token, shift 0.1", token_laws(0.1), mu_of_pure(0.1)),
        ("token, shift 0.5", token_laws(0.5), mu_of_pure(0.5)),
        ("Laplace, ε 0.1", laplace_laws(0.1), mu_of_laplace(0.1)),
        ("Laplace, ε 1", laplace_laws(1.0), mu_of_laplace(1.0)),
        ("Poisson, q 0.1, μ 1", sampled_law(0.1, 1.0), 1.0),
    ):
        row = [least_price(laws, share * mu**2, mu**2) / mu**2 for share in shares]
        print(f"{title:22}" + "".join(f"{each:8.3f}" for each in row))
    print("\nsteps on an account, delta 1e-6: the four filters, and a potential with 3/10 or all of delta")
    share = float(next(each.share for each in portfolio(*granted("3", "1e-6")) if each.kind is Kind.GAUSSIAN))
    for epsilon in ("1", "3", "10"):
        for title, event, laws, mu in (
            ("token, shift 0.05", Exponential(0.05), token_laws(0.05), mu_of_pure(0.05)),
            ("Laplace, ε 0.05", Laplace(20.0), laplace_laws(0.05), mu_of_laplace(0.05)),
            ("Poisson, q 0.1, σ 20", PoissonSampled(0.1, Gaussian(20.0)), sampled_law(0.1, 0.05), 0.05),
            ("Poisson, q 0.01, σ 2", PoissonSampled(0.01, Gaussian(2.0)), sampled_law(0.01, 0.5), 0.5),
        ):
            counts = [
                steps(laws, gaussian_mu(float(epsilon), part * 1e-6) ** 2, mu**2) for part in (share, 1)
            ]
            four = now(epsilon, "1e-6", event)
            print(
                f"ε {epsilon:4}{title:22}{four:8}" + "".join(f"{n:8} ({n / four - 1:+.1%})" for n in counts)
            )


if __name__ == "__main__":
    main()
