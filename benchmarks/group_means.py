"""What the one release of summary-oneshot tells about its group, before any model writes a word.

    python -m benchmarks.summaries run --data yelp --model FOLDER --folder F --part states
    python -m benchmarks.group_means --folder F [--data yelp] [--seeds 5]

For each seed another split: of every group n states play the records, the rest are public. Group
means are clipped, summed and released with the noise of their price, many times; `right` is the
share whose nearest public mean of a group, in the coordinates that were released, is its own
group's, and `noise` the squared length of the noise over the mean squared distance of the groups'
means from their middle. Only the noise's distribution is the service's here: exact sums plus
floating-point draws.
"""

import argparse
from pathlib import Path

import numpy as np

from accountant.core.mechanisms import group_means
from benchmarks.summaries import EPSILONS, VARIANTS, parsed
from benchmarks.summaries_data import DATA, Data
from workers.embedding import mean_states
from workers.embedding.mean_states import Floats
from workers.noise.clipping import GRID

DRAWS = 200


def split(folder: Path, data: Data, seed: int) -> tuple[list[Floats], list[Floats]]:
    """States of every group: those that play its records, and the public ones."""
    found = dict(np.load(folder / "states.npz"))
    labels = {"private": np.array(data.private().labels), "public": np.array(data.public().labels)}
    random, own, rest = np.random.default_rng(seed), [], []
    for group in data.groups:
        every = np.concatenate(
            [found[part][labels[part] == group] for part in ("private", "public")]
        )
        every = every[random.permutation(len(every))]
        own.append(every[: data.size])
        rest.append(every[data.size :])
    return own, rest


def measured(folder: Path, data: Data, variant: str, seed: int) -> dict[str, tuple[float, float]]:
    """ε to (right, noise) of one split."""
    own, rest = split(folder, data, seed)
    public = np.concatenate(rest)
    view = mean_states.public_view(public, **VARIANTS[variant])
    clip = float(f"{np.quantile(np.linalg.norm(view.coordinates(public), axis=1), 0.9):.4g}")
    centres = np.stack([view.coordinates(each).mean(axis=0) for each in rest])
    sums = np.stack([mean_states.clipped_sum(view, each, clip) for each in own])
    means = sums * (clip / GRID / data.size)
    signal = ((means - means.mean(axis=0)) ** 2).sum(axis=1).mean()
    random, found = np.random.default_rng([seed, 1]), {}
    for epsilon in EPSILONS:
        exact = epsilon == "inf"
        parameters = parsed(data, 1.0 if exact else float(epsilon), clip, variant)
        sigma = 0.0 if exact else group_means.sigma(parameters, data.terms)
        right = []
        for _ in range(1 if exact else DRAWS):
            noisy = means + random.normal(0, sigma, means.shape)
            distances = ((noisy[:, None] - centres[None]) ** 2).sum(axis=2)
            right.append((distances.argmin(axis=1) == np.arange(len(means))).mean())
        found[epsilon] = (float(np.mean(right)), view.dimensions * sigma**2 / signal)
    return found


def main() -> None:
    """Both figures of each variant and ε: mean over the seeds, and at ε 2 each seed's."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--data", choices=list(DATA), default="yelp")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print("| right / noise | " + " | ".join(EPSILONS) + " | right at ε 2, each seed |")
    print("|---|" + "---|" * (len(EPSILONS) + 1))
    for variant in VARIANTS:
        rows = [
            measured(options.folder, DATA[options.data], variant, seed)
            for seed in range(options.seeds)
        ]
        cells = [
            " / ".join(f"{value:.2f}" for value in np.mean([r[e] for r in rows], 0))
            for e in EPSILONS
        ]
        each = ", ".join(f"{row['2'][0]:.3f}" for row in rows)
        print(f"| {variant} | {' | '.join(cells)} | {each} |")


if __name__ == "__main__":
    main()
