"""The one kind of release of `secpe`: counts and centres with records added (paper 003, Equation
7).

    takes part   a record with a secret by a fresh coin of the declared rate; a record without one
                 always
    joins        the public centre of its label that is nearest
    count_k      n_k + m_k, m_k the records that joined
    centre_k     (n_k e_k + sum of their vectors, cut to norm R) / (n_k + m_k)
    released     round(count + N(0, sigma^2)), round(centre + (2R / n_k) N(0, sigma^2)), all as one
                 Gaussian

Vectors are whole numbers on a grid of G steps to R, cut towards zero, so none is longer than G. Two
centres that differ by one record are at most 2G / (n_k + 1) apart before they are rounded down to
whole steps, which adds less than one step a coordinate: sqrt(dimensions) in all. That is added to
what one record is declared to move. n_k is public, m_k is not, and the release is made whether a
record takes part or not.

A record carries a secret if one stands anywhere in its text, whatever is cut afterwards, or the tag
that stands for a redacted one: the record and its redacted twin then toss the same coin, as the
price of "redacted" assumes, and a secret half cut away does not let a record in without one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from accountant.core.errors import DataError
from accountant.core.mechanisms.evolution_fields import MOST_SCALE, root_up
from accountant.core.mechanisms.secpe import CLUSTERS, SecPe
from accountant.core.mechanisms.secpe import release as priced
from accountant.core.secret_patterns import Secrets
from workers.data.records import Record, Records
from workers.embedding.neighbours import Floats, Integers, nearest
from workers.evolution.places import Space, of_records, space
from workers.interface import Artifact, Public, Released
from workers.mechanisms.secpe.cells import Cells
from workers.models import LocalModel
from workers.noise import coins
from workers.noise.meter import Meter

#: Steps of the grid to the radius, at most: noise has to fit the sampler, sums 64 bits.
MOST_STEPS = 2**30

#: A public text by whose vector a later job sees whether its embedding model is the same.
PROBE = "The quick brown fox jumps over the lazy dog."
#: What rounding may move of that vector's coordinates on another machine.
SAME = 1e-2


def carries(secrets: Secrets, record: Record) -> bool:
    """Return True if a secret, or the tag of a redacted one, stands in a record's text."""
    return secrets.is_in(record.text, record.secret)


def steps_to(dimensions: int, sigma: float) -> int:
    """Return G: grid steps to the radius, for so many dimensions and noise of sigma moves."""
    steps = MOST_STEPS
    while Fraction(sigma) * (2 * steps + root_up(dimensions)) > MOST_SCALE:
        steps //= 2
    return steps


def on_grid(vectors: NDArray[np.floating], radius: float, steps: int) -> Integers:
    """Return vectors cut to the radius, in steps of radius / `steps`: int64, none longer than
    `steps`.

    Cut towards zero from a little less than `steps`, which is more than the norm's own rounding.
    """
    values = vectors.astype(np.float64)
    norms = np.sqrt(np.sum(values**2, axis=1, keepdims=True))
    return np.trunc(values * ((steps - 2**-10) / np.maximum(norms, radius))).astype(np.int64)


class Members:
    """The private records of a job: their vectors and who carries a secret. Held in memory only.

    Vectors are held where several rounds ask for them, else computed as they are added up; none are
    before something is to be released.
    """

    def __init__(
        self,
        parameters: SecPe,
        records: Records,
        where: Space,
        cells: Cells,
        check: Callable[[], None],
    ) -> None:
        self.cells, self.radius, self.dimensions = (
            cells,
            parameters.radius,
            where.embedder.dimensions,
        )
        self.carriers = {
            label: np.array([carries(records.secrets, unit) for unit in units], bool)
            for label, units in _by_label(records).items()
        }
        texts = {
            label: [unit.text for unit in units] for label, units in _by_label(records).items()
        }
        held = cache(lambda: of_records(where, records, check))
        self.vectors: Callable[[str | None], Iterable[Floats]] = (
            (lambda label: held()[label])
            if parameters.recluster
            else (lambda label: where.embed(texts[label], check))
        )

    def coins(self, rate: float) -> list[list[int]]:
        """Return 1 for each record in a round, by label: all but carriers, by their coin."""
        return [
            [int(not carrier or coins.heads(rate)) for carrier in carriers.tolist()]
            for carriers in self.carriers.values()
        ]

    def added(self, coin: Sequence[Sequence[int]], steps: int) -> tuple[Integers, Integers]:
        """(records that join each cell, the sums of their vectors) of one round with these coins.

        int64 (rows,) and (rows, dimensions), in steps.
        """
        rows = len(self.cells.sizes)
        joined, sums = np.zeros(rows, np.int64), np.zeros((rows, self.dimensions), np.int64)
        for place, (label, own_coins) in enumerate(zip(self.carriers, coin, strict=True)):
            heads = np.array(own_coins, bool)
            if len(heads) != len(self.carriers[label]):
                raise ValueError("coins were kept for other records")
            units = np.flatnonzero(self.cells.owners == place)
            centres = self.cells.centres[units].astype(np.float32)
            usable = (centres != 0).any()
            first = 0
            for piece in self.vectors(label):
                takes_part = heads[first : first + len(piece)]
                first += len(piece)
                if not usable:
                    continue
                near = nearest(piece, centres)[:, 0]
                here = np.flatnonzero(takes_part & (near >= 0))
                cell = units[near[here]]
                joined += np.bincount(cell, minlength=rows)
                ones = csr_matrix(
                    (np.ones(len(here), np.int64), (cell, np.arange(len(here)))), (rows, len(here))
                )
                sums += ones @ on_grid(piece[here], self.radius, steps)
        return joined, sums


def _by_label(records: Records) -> Mapping[str | None, list[Record]]:
    return {
        label: [record for record in records.records if record.label == label]
        for label in records.labels
    }


def release(parameters: SecPe, members: Members, meter: Meter) -> tuple[Integers, Floats]:
    """Return one round: (noisy counts int64 (rows,), noisy centres float32 (rows, dimensions)).

    All its coins are tossed first, and kept before anything is computed from them.
    """
    stated, cells = priced(parameters), members.cells
    steps = steps_to(members.dimensions, stated.sigma)
    coin = meter.kept.step(
        f"who takes part {meter.secret_rounds}", lambda: members.coins(stated.rate)
    )
    noisy = meter.kept_secret(stated)
    if noisy is None:
        joined, sums = members.added(coin, steps)
        counts = cells.sizes + joined
        grid = on_grid(cells.centres, parameters.radius, steps)
        centres = (cells.sizes[:, None] * grid + sums) // counts[:, None]
        moves = [
            Fraction(2 * steps, size) + root_up(members.dimensions) for size in cells.sizes.tolist()
        ]
        noisy = meter.secret(counts, centres, moves, stated)
    return noisy[0], (noisy[1] * (parameters.radius / steps)).astype(np.float32)


@dataclass(frozen=True)
class Noisy:
    """What was released: one or more rounds of counts and centres of the same public cells.

    `counts`: int64 (rounds, rows). `centres`: float32 (rounds, rows, dimensions). `owners`,
    `sizes`: of the cells. `origin`: the public point that was taken from all vectors. `probe`: the
    vector of PROBE.
    """

    counts: Integers
    centres: Floats
    owners: Integers
    sizes: Integers
    origin: Floats
    probe: Floats

    @classmethod
    def of(cls, cells: Cells, where: Space, first: tuple[Integers, Floats]) -> "Noisy":
        """Return the first release."""
        counts, centres = first
        return cls(
            counts[None],
            centres[None],
            cells.owners,
            cells.sizes,
            where.centre,
            where.all([PROBE])[0],
        )

    def with_another(self, release: tuple[Integers, Floats]) -> "Noisy":
        """Return these and one release more."""
        counts, centres = release
        return replace(
            self,
            counts=np.concatenate([self.counts, counts[None]]),
            centres=np.concatenate([self.centres, centres[None]]),
        )

    def mean(self) -> tuple[NDArray[np.float64], Floats]:
        """(counts (rows,), centres (rows, dimensions)), over all releases."""
        return self.counts.mean(axis=0), self.centres.mean(axis=0, dtype=np.float64).astype(
            np.float32
        )

    def artifact(self, name: str) -> Artifact:
        """Return all of it, as arrays."""
        return Artifact.of_tensors(name, CLUSTERS, vars(self))

    @classmethod
    def read(
        cls, artifact: Released, parameters: SecPe, model: LocalModel, public: Public, labels: int
    ) -> tuple["Noisy", Space]:
        """Return what an earlier job released, and the space that it is in.

        Raises DataError naming the field where this job embeds texts elsewhere, or has other
        labels.
        """
        noisy = cls(**artifact.tensors())
        if len(noisy.owners) and int(noisy.owners.max()) >= labels:
            raise DataError("from_job: its clusters are of other labels")
        where = space(parameters, model, public, centre=noisy.origin)
        same = where.embedder.dimensions == len(noisy.origin)
        if not same or np.abs(where.all([PROBE])[0] - noisy.probe).max() > SAME:
            raise DataError(
                "embedding: it is not the one that the job in from_job compared texts with"
            )
        return noisy, where
