"""Noise of secret protection against Gaussian DP: paper 003, Figure 3, and where it is no gain.

    python -m benchmarks.secret_noise [--svg FILE]

N = 8000 records, m = 400 secrets, each in each record by a coin of 0.01 (a fixed seed); p = 1e-4
and r/p from 2 to 400. sigma_GDP gives mu = Phi^-1(r) - Phi^-1(p), the same bound on an attacker,
for one record, and for the largest group of records that share a secret. sigma_secret is the least
for which B(p) <= r, by three ways to set the sampling rates:

    declared   one public rate for every record with a secret, as Exchequer has it: 1, 0.1 and 0.01;
    paper      Algorithm 1 as printed: weights of linear program (6), which then *sum* to 1 / max w;
    scaled     the same weights, scaled so that the largest rate is 1.

Counts and centres are released together in all of them, which multiplies every sigma by sqrt(2) and
leaves the ratios as they are. Ratios sigma_GDP / sigma_secret above 1 favour secret protection.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, linprog
from scipy.sparse import csr_matrix
from scipy.special import ndtr, ndtri

from accountant.core.privacy.blowup import GroupSampling, Without, least_sigma

RECORDS, SECRETS, COIN, PRIOR = 8_000, 400, 0.01, 1e-4
RATIOS = (2, 5, 10, 20, 50, 100, 200, 400)
DECLARED = (1.0, 0.1, 0.01)
LEAST = 1e-3

Floats = npt.NDArray[np.float64]


def mu_of(ratio: float) -> float:
    return float(ndtri(PRIOR * ratio) - ndtri(PRIOR))


def program_weights(holds: npt.NDArray[np.bool_], capacity: float) -> Floats:
    """Linear program (6): as many records as possible, at most `capacity` per secret."""
    secrets = csr_matrix(holds.T.astype(float))
    found = linprog(-np.ones(RECORDS), A_ub=secrets, b_ub=np.full(SECRETS, capacity), bounds=(0, 1))
    return np.asarray(np.maximum(found.x, 0.0))


def draws_of(rates: Floats) -> Floats:
    """Distribution of the number that take part when each has a rate of its own."""
    masses = np.ones(1)
    for rate in rates[rates > 0]:
        masses = np.convolve(masses, [1 - rate, rate])
    return masses


def least_for_rates(holds: npt.NDArray[np.bool_], rates: Floats, bound: float) -> float:
    """The largest sigma that any secret needs, E Phi(Phi^-1(p) + sqrt(2) X / sigma) = r for
    each.
    """
    expected = holds.T @ rates
    worst = LEAST
    for secret in np.argsort(-expected)[:20]:  # more expected draws need more noise
        masses = draws_of(rates[holds[:, secret]])
        steps = math.sqrt(2) * np.arange(len(masses))

        def excess(log_sigma: float, masses: Floats = masses, steps: Floats = steps) -> float:
            return float(masses @ ndtr(ndtri(PRIOR) + steps / math.exp(log_sigma))) - bound

        if excess(math.log(worst)) > 0:
            worst = math.exp(brentq(excess, math.log(worst), math.log(1e6)))
    return worst


def table() -> tuple[int, list[str], list[list[float]], list[float]]:
    """(largest group, column names, rows of r/p and ratios, records that take part where
    scaled).
    """
    generator = np.random.default_rng(3)
    holds = generator.random((RECORDS, SECRETS)) < COIN
    largest = int(holds.sum(axis=0).max())
    names = [
        f"{who}, {rate}" for rate in (*DECLARED, "paper", "scaled") for who in ("record", "group")
    ]
    rows, taking_part = [], []
    for ratio in RATIOS:
        mu, bound = mu_of(ratio), PRIOR * ratio
        record = math.sqrt(2) / mu
        sigmas = [
            least_sigma(GroupSampling(largest, rate, Without.REMOVED), 1, PRIOR, bound, LEAST)
            for rate in DECLARED
        ]
        weights = program_weights(holds, mu)
        sigmas.append(least_for_rates(holds, weights / weights.max() / weights.sum(), bound))
        sigmas.append(least_for_rates(holds, weights / weights.max(), bound))
        taking_part.append(float(weights.sum() / weights.max()))
        row = [float(ratio)]
        for sigma in sigmas:
            # At the least sigma searched, no noise is needed: sampling alone keeps the bound.
            free = sigma <= LEAST * 1.01
            row += [math.inf, math.inf] if free else [record / sigma, record * largest / sigma]
        rows.append(row)
    return largest, names, rows, taking_part


def drawing(names: list[str], rows: list[list[float]]) -> str:
    """Both axes logarithmic; one line a column."""
    width, height, margin = 720, 420, 50
    finite = [value for row in rows for value in row[1:] if math.isfinite(value)]
    low, high = math.log10(min(*finite, 1)), math.log10(max(*finite, 1))

    def place(ratio: float, value: float) -> tuple[float, float]:
        x = margin + (width - 230) * math.log(ratio / RATIOS[0]) / math.log(RATIOS[-1] / RATIOS[0])
        y = height - margin - (height - 2 * margin) * (math.log10(value) - low) / (high - low)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="12">'
    ]
    for decade in range(math.floor(low), math.ceil(high) + 1):
        if low <= decade <= high:
            y = place(RATIOS[0], 10.0**decade)[1]
            parts.append(
                f'<line x1="{margin}" x2="{width - 180}" y1="{y}" y2="{y}" stroke="#ccc"/>'
            )
            parts.append(f'<text x="4" y="{y}">1e{decade}</text>')
    for column, name in enumerate(names, start=1):
        points = [place(row[0], row[column]) for row in rows if math.isfinite(row[column])]
        line = " ".join(f"{x},{y}" for x, y in points)
        colour = f"hsl({(column - 1) // 2 * 72},70%,40%)"
        dash = "" if column % 2 else ' stroke-dasharray="5"'
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"{dash}/>')
        parts.append(
            f'<text x="{width - 170}" y="{30 + 18 * column}" fill="{colour}">{name}</text>'
        )
    parts += [
        f'<text x="{place(ratio, 10**low)[0]}" y="{height - 25}">{ratio}</text>' for ratio in RATIOS
    ]
    parts.append(f'<text x="{width // 3}" y="{height - 8}">r/p</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--svg", type=Path)
    target = parser.parse_args().svg
    largest, names, rows, taking_part = table()
    print(f"the largest group that shares a secret holds {largest} of {RECORDS:,} records")
    print("sigma_GDP / sigma_secret; inf: sampling alone keeps the bound, without any noise")
    print(f"{'r/p':>5} " + " ".join(f"{name:>13}" for name in names))
    for row in rows:
        print(f"{row[0]:>5.0f} " + " ".join(f"{value:>13.3g}" for value in row[1:]))
    below = [
        name
        for column, name in enumerate(names, start=1)
        if any(row[column] < 0.99 for row in rows)
    ]
    print(f"below 1 somewhere: {'; '.join(below) or 'nowhere'}")
    print(
        "Why: against one record's GDP a secret is worse off as soon as more than about one of "
        "its\n"
        f"records takes part: together they move the release further, {largest} times as far at "
        "rate 1.\n"
        "Against the group's GDP it is never worse: equal at rate 1 (but for the 0.3 % to which "
        "sigma is\n"
        "found), better by what sampling leaves out. As printed, the paper's rates sum to 1/max w, "
        "about\n"
        "one record of the whole dataset a round: its gain is bought with data. Scaled, between "
        f"{min(taking_part):,.0f} and\n{max(taking_part):,.0f} of {RECORDS:,} records take part."
    )
    if target is not None:
        target.write_text(drawing(names, rows))


if __name__ == "__main__":
    main()
