"""Texts of mechanisms' own runners, under a meter that reserves their real price."""

import secrets
from collections.abc import Mapping
from typing import Any, cast

from accountant.core import mechanisms
from accountant.core.mechanisms.fitting import fit
from accountant.core.mechanisms.secpe import release as released_by
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE, releases
from accountant.core.privacy.price import Terms
from accountant.core.privacy.units import EPSILON_UNITS
from benchmarks import utility_data
from benchmarks.kps import english
from benchmarks.utility_data import PUBLIC, embedder
from workers import mechanisms as runners
from workers.data.corpora import Corpus
from workers.data.records import Records
from workers.interface import Artifact, Progress, Public, Released, Text
from workers.models import LocalModel
from workers.noise.meter import Meter

#: Texts and figures of one run, as JSON.
Made = dict[str, Any]

DELTA_POWER = 1.1


def terms_of(corpus: utility_data.Corpus) -> Terms:
    """Add-remove, delta = n^-1.1 as in paper 001, and labels that are public."""
    size = len(corpus.private.texts)
    return Terms(delta=size**-DELTA_POWER, public_size=size, labels=corpus.labels)


def fitted(
    mechanism: str, raw: Mapping[str, Any], terms: Terms, epsilon: float, name: str
) -> float:
    """Field `name` so that the whole price is as near to `epsilon` as it may be. Raises ValueError
    where none costs so little.
    """

    def affordable(price: Any) -> bool:
        return price.dp is not None and epsilon_alone(price.dp, terms.delta)[0] <= epsilon

    found = fit(mechanisms.get(mechanism), raw, terms, name, affordable)
    if found is None:
        raise ValueError(f"no {name} costs at most {epsilon}")
    return found.value


def run(
    mechanism: str,
    raw: Mapping[str, Any],
    corpus: utility_data.Corpus,
    model: LocalModel,
) -> Made:
    """Texts and costs of one job, as a worker would run it."""
    terms = terms_of(corpus)
    parameters = mechanisms.get(mechanism).parse(raw, terms)
    price = mechanisms.get(mechanism).price(parameters, terms)
    secret = released_by(cast("Any", parameters)) if price.secret else None
    meter = Meter(price.dp or FREE, price.ex_post_draws, secret=secret)
    records = Records(terms.labels, corpus.records(), secrets.token_bytes(32))
    runner = runners.runner(mechanism)
    progress = Progress(runner.total(parameters, terms))
    made = [*runner.run(parameters, terms, records, model, meter, progress, public(model))]
    spent, reserved = releases(meter.realized), releases(price.dp or FREE)
    assert all(count <= reserved[event] for event, count in spent.items()), (
        "realized above reserved"
    )
    return {
        "texts": [[each.text, each.label] for each in made if isinstance(each, Text)],
        "complete": [each.complete for each in made if isinstance(each, Text)],
        "epsilon": None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0],
        "ex_post_epsilon": meter.realized_ex_post / EPSILON_UNITS if meter.has_ex_post else None,
    }


def public(model: LocalModel) -> Public:
    """The public inputs that parameters may name: a corpus, an embedding model, a writer, terms."""
    corpus = Corpus("dbpedia14", str(PUBLIC), "{text}")
    listed = Artifact.of_json("terms", "term-list", english().to_json())
    terms = {"vocabulary": {"terms": Released(listed.name, listed.content)}}
    return Public(
        {"public_corpus": corpus}, {"embedding": embedder()}, {"writer": model}, sources=terms
    )
