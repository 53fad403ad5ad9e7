"""Audit of a planted record (`aug-pe`) and of planted records with a secret (`secpe`): is it told from none?

The mechanism's own runner makes its releases many times with what was planted and many times without, and an
attacker who knows all else, the other records and how far each release would move, says "with" where the best
linear score passes a threshold: the one that `LEVEL` of the runs without pass. With p of wrong alarms he is
right at most B(p) of the time by the price: Phi(Phi^-1(p) + mu) for `aug-pe`, the blow-up function of the
release for `secpe`. An arm fails where the lower end of the interval around what he found passes B of the
upper end of that around his wrong alarms. The control draws a quarter of the noise and has to be caught.

Texts are recited from the bundled public reviews and compared by their words, so that thousands of runs take
seconds; what a language model would write changes candidates, which are public, and nothing else.
"""

import csv
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
from scipy.stats import beta, norm

from accountant.core import mechanisms
from accountant.core.privacy.events import FREE, Event
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease
from accountant.core.secret_patterns import Secrets
from workers import sample
from workers.data.corpora import Corpus
from workers.data.public_text import PublicPrompt, PublicText
from workers.data.records import Record, Records
from workers.embedding.neighbours import Floats, nearest, unit
from workers.generation.writer import Manner, Written
from workers.interface import Artifact, Progress, Public
from workers.mechanisms import runner
from workers.mechanisms.secpe.cells import Cells, public_texts
from workers.noise.meter import Meter, Values
from workers.noise.samplers import Grid
from workers.privacy_audits import subjects

#: The share of runs without that the attacker lets pass, and the secret's prior.
LEVEL = 0.05
#: One minus the confidence of the two intervals around measured shares.
DOUBT = 1e-3
#: How many times less noise the control draws.
CONTROL = 4
#: Records of others, and public reviews.
OTHERS, PUBLIC = 20, 40
#: A made-up word that the planted records carry.
WORD = "zanzibar"
PLANTED = "The tiny zanzibar monkey repaired our violin and sold it back to us."

ARMS: Mapping[str, Mapping[str, Any]] = {
    "aug-pe": {"noise_multiplier": 3.0, "epochs": 4, "samples": 4, "variations": 2},
    "secpe": {
        **{"prior": LEVEL, "bound": 0.2, "records_per_secret": 2, "sampling_rate": 0.5},
        **{"neighbour": "removed", "clusters": 2, "iterations": 1, "samples": 2, "variations": 0},
    },
}


class Reciting:
    """A Writer that recites public reviews."""

    name = "recites public reviews"

    def __init__(self, texts: Sequence[PublicText]) -> None:
        self.texts, self.draws = texts, random.SystemRandom()

    def seeded(self, seed: int | None) -> "Reciting":  # noqa: ARG002
        """Itself: each run is another one."""
        return self

    def write(
        self,
        prompts: Sequence[PublicPrompt],
        manner: Manner,  # noqa: ARG002
        each: int = 1,
    ) -> Iterator[Written]:
        """As `Writer.write`."""
        for row in range(len(prompts)):
            for _ in range(each):
                yield Written(self.draws.choice(self.texts), True, row)

    def length(self, text: PublicText) -> int:
        """As `Writer.length`, in words."""
        return len(text.split())

    def shortened(self, text: PublicText, tokens: int) -> PublicText:
        """As `Writer.shortened`, by words."""
        return text.through(lambda whole: " ".join(whole.split()[:tokens]))

    def room(self, manner: Manner) -> int:  # noqa: ARG002
        """As `Writer.room`."""
        return 1_000


class Reviews:
    """Some of the bundled public reviews, as a corpus."""

    label_column = None

    def __init__(self) -> None:
        corpus = Corpus("reviews", str(sample.PUBLIC_SAMPLE_CSV), "{text}")
        self.kept = [text for text, _ in islice(corpus.texts(), PUBLIC)]

    def texts(self) -> Iterator[tuple[PublicText, None]]:
        """Every text."""
        return ((text, None) for text in self.kept)


class Words:
    """Embeds a text by its words, each in one of `dimensions` places."""

    dimensions, context_tokens = 16, 1_000

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:  # noqa: ARG002
        """As `Embedder.embed`."""
        rows = []
        for text in texts:
            row = np.zeros(self.dimensions, np.float32)
            for word in text.lower().split():
                row[zlib.crc32(word.encode()) % self.dimensions] += 1
            rows.append(row)
        yield unit(np.array(rows, np.float32).reshape(-1, self.dimensions))


class Careless(Meter):
    """The control: a quarter of the noise that was paid for."""

    def gaussian(self, values: Values, sensitivity: Fraction | float, event: Event, part: Any = None) -> Grid:
        """As `Meter.gaussian`, with less noise."""
        values = values() if callable(values) else values
        return _less(values, super().gaussian(values, sensitivity, event, part))

    def secret(
        self, counts: Grid, centres: Grid, moves: Sequence[Fraction], release: SecretRelease
    ) -> tuple[Grid, Grid]:
        """As `Meter.secret`, with less noise."""
        noisy = super().secret(counts, centres, moves, release)
        return _less(counts, noisy[0]), _less(centres, noisy[1])


def _less(values: Grid, noisy: Grid) -> Grid:
    made: Grid = values + (noisy - values) // CONTROL
    return made


@dataclass(frozen=True)
class Setting:
    """One arm with its price; `planted`: the records that are there or not; `cells`: of `secpe`."""

    name: str
    parameters: Any
    terms: Terms
    bound: Callable[[float], float]
    planted: tuple[Record, ...]
    others: tuple[Record, ...]
    public: Public
    meter: Callable[[type[Meter]], Meter]
    cells: Cells | None

    def artifacts(self, kind: type[Meter], planted: bool) -> dict[str, Artifact]:
        """What one run of the mechanism's own runner releases."""
        own = (*self.others, *self.planted) if planted else self.others
        records = Records((None,), own, subjects.fresh_key(), secrets=Secrets(terms=(WORD,)))
        running = runner(self.name)
        made = running.run(
            self.parameters, self.terms, records, None, self.meter(kind), Progress(0), self.public
        )
        return {each.name: each for each in made if isinstance(each, Artifact)}


def audit(arms: Sequence[str], runs: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run every arm and its control `runs` times with what is planted, and as often without."""
    found = []
    for name in arms:
        setting = _setting(name, asked)
        for kind in (Meter, Careless):
            found.append(_measure(setting, kind, runs))
    return {"audit": "planted", "results": found, "passed": all(each["passed"] for each in found)}


def _setting(name: str, asked: Mapping[str, Any]) -> Setting:
    mechanism, terms = mechanisms.get(name), Terms()
    named = {"embedding": "words", "writer": "reciting", "prompting": "plain"}
    corpus = {"public_corpus": "reviews"} if "public_corpus" in mechanism.fields else {}
    mine = {key: value for key, value in asked.items() if key in mechanism.fields}
    parameters = mechanism.parse({**named, **corpus, **ARMS[name], **mine}, terms)
    price = mechanism.price(parameters, terms)
    reviews = Reviews()
    public = Public(
        corpora={"public_corpus": reviews},  # type: ignore[dict-item]
        embedders={"embedding": Words()},
        endpoints={"writer": Reciting([text for text, _ in reviews.texts()])},  # type: ignore[dict-item]
    )
    cells = None
    if price.secret is None:
        assert price.dp is not None
        reserved = price.dp
        mu = (parameters.epochs**0.5) / parameters.noise_multiplier
        count, bound = 1, _gaussian(mu)

        def meter(kind: type[Meter]) -> Meter:
            return kind(reserved)

    else:
        stated = SecretRelease.from_json(price.secret["release"])
        count, bound = stated.records, stated.blow_up
        texts = public_texts(reviews, [None], parameters.public_texts)  # type: ignore[arg-type]
        cells = Cells.of([_vectors(own) for own in texts], parameters.clusters, parameters.radius)

        def meter(kind: type[Meter]) -> Meter:
            return kind(FREE, secret=stated)

    planted = tuple(Record(f"planted {n}", None, PLANTED) for n in range(count))
    return Setting(name, parameters, terms, bound, planted, _others(), public, meter, cells)


def _gaussian(mu: float) -> Callable[[float], float]:
    """The blow-up function of mu-GDP."""
    return lambda level: float(norm.cdf(norm.ppf(level) + mu))


def _others() -> tuple[Record, ...]:
    with sample.PRIVATE_CSV.open(encoding="utf-8", newline="") as file:
        rows = [row["text"] for row in csv.DictReader(file)][:OTHERS]
    return tuple(Record(text, None, text) for text in rows)


def _measure(setting: Setting, kind: type[Meter], runs: int) -> dict[str, Any]:
    started = time.perf_counter()
    without, with_it = (
        np.array([_score(setting, setting.artifacts(kind, planted)) for _ in range(runs)])
        for planted in (False, True)
    )
    threshold = float(np.quantile(without, 1 - LEVEL, method="higher"))
    alarms, found = int((without > threshold).sum()), int((with_it > threshold).sum())
    most_alarms = float(beta.ppf(1 - DOUBT / 2, alarms + 1, runs - alarms))
    low = float(beta.ppf(DOUBT / 2, found, runs - found + 1)) if found else 0.0
    bound = setting.bound(most_alarms)
    control = kind is Careless
    return {
        "arm": f"{setting.name}, a quarter of the noise" if control else setting.name,
        "mechanism": setting.name,
        "parameters": setting.parameters.model_dump(mode="json"),
        "control": control,
        "runs": runs,
        "wrong_alarms": alarms / runs,
        "wrong_alarms_at_most": most_alarms,
        "found": found / runs,
        "found_at_least": low,
        "bound": bound,
        "seconds": round(time.perf_counter() - started, 1),
        "passed": (low <= bound) is not control,
    }


def _score(setting: Setting, artifacts: Mapping[str, Artifact]) -> float:
    """The attacker's score of one run: standard normal with the priced noise, where nothing was planted."""
    return _of_votes(setting, artifacts) if setting.name == "aug-pe" else _of_clusters(setting, artifacts)


def _of_votes(setting: Setting, artifacts: Mapping[str, Artifact]) -> float:
    """By how much the counts of the candidates that the planted record votes for exceed all others' votes."""
    (family,) = artifacts["evolution"].json()["labels"]
    vectors = _vectors(each.text for each in (*setting.others, *setting.planted))
    excess = 0.0
    for epoch in family["epochs"]:
        candidates = _vectors(family["samples"][place]["text"] for place in epoch["candidates"])
        *known, own = nearest(vectors, candidates)[:, 0].tolist()
        excess += epoch["noisy_counts"][own] - known.count(own)
    return float(excess / setting.parameters.noise_multiplier / len(family["epochs"]) ** 0.5)


def _of_clusters(setting: Setting, artifacts: Mapping[str, Artifact]) -> float:
    """What the planted records' cell gained in number, and in their direction, beyond what all others add."""
    found, parameters, cells = artifacts["clusters"].tensors(), setting.parameters, setting.cells
    assert cells is not None
    vectors = _vectors(each.text for each in (*setting.others, setting.planted[0])).astype(np.float64)
    near = nearest(vectors.astype(np.float32), cells.centres.astype(np.float32))[:, 0]
    cell = near[-1]
    mine = vectors[:-1][near[:-1] == cell]
    size = int(cells.sizes[cell])
    count = size + len(mine)
    before = (size * cells.centres[cell] + mine.sum(axis=0)) / count
    away = vectors[-1] - before
    length = float(np.linalg.norm(away))
    move = 2 * parameters.radius / size
    gained = found["counts"][0][cell] - count
    towards = float((found["centres"][0][cell] - before) @ away) / length / move
    share = length / count / move  # what one record moves the centre by, in parts of what it may
    score = (gained + share * towards) / (1 + share**2) ** 0.5
    return float(score / parameters.noise_multiplier)


def _vectors(texts: Iterable[str]) -> Floats:
    return np.concatenate(list(Words().embed(texts)))
