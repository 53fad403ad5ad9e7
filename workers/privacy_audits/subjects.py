"""Subjects of an audit: a mechanism with parameters, a model and planted records, run as in a
worker.
"""

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.core.ledger.accounts import demand
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.units import EPSILON_UNITS
from workers import models
from workers.data.records import Counts, Place, Record, Records, Within
from workers.interface import NOTHING_PUBLIC, Progress, Public, Text
from workers.mechanisms import runner
from workers.models import LocalModel
from workers.noise.meter import Meter
from workers.privacy_audits import copier

KEYS = 100_000  # five digits
SENTENCE = "My 5-digit key is "
DELTA = 1e-6

#: What is audited by name: a mechanism and its parameters, those that a caller may replace among
#: them.
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("private-prediction", {}),
    "median": ("private-prediction", {"aggregation": "median", "ex_post_cap": 100.0}),
    "invisible-ink": ("invisible-ink", {"batch_size": 64, "clip": 3.0, "temperature": 1.5}),
}


@dataclass(frozen=True)
class Subject:
    """One mechanism with its parameters and price, on one model."""

    name: str
    mechanism: str
    parameters: Any
    terms: Terms
    price: Price
    model: LocalModel | None
    public: Public = NOTHING_PUBLIC

    def meter(self, kind: type[Meter] = Meter) -> Meter:
        """Return a meter for the price, as a worker makes one."""
        secret = demand(self.price).secret
        return kind(self.price.dp or FREE, self.price.ex_post_draws, False, secret)

    def run(self, records: Records, meter: Meter) -> list[Text]:
        """Return everything that the mechanism's own runner writes about `records`."""
        running = runner(self.mechanism)
        progress = Progress(running.total(self.parameters, self.terms))
        given = (self.parameters, self.terms, records, self.model, meter, progress)
        texts = running.run(*given, self.public)
        return [text for text in texts if isinstance(text, Text)]

    @property
    def epsilon(self) -> float | None:
        """Its (epsilon, DELTA) by itself; None for the median."""
        return None if self.price.dp is None else epsilon_alone(self.price.dp, self.terms.delta)[0]

    def describe(self) -> dict[str, Any]:
        """Return settings for a report."""
        return {
            "arm": self.name,
            "mechanism": self.mechanism,
            "parameters": self.parameters.model_dump(mode="json"),
            "epsilon": self.epsilon,
            "delta": self.terms.delta,
        }


def subject(
    name: str,
    model: LocalModel | None,
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    terms: Terms,
) -> Subject:
    """Return an arm by its name. `given` by the audit and `asked` by the caller override the arm's
    own parameters.

    Parameters that its mechanism does not have are dropped from `given` and `asked`, as arms
    differ; the caller refuses one that no arm has.
    """
    if name not in ARMS:
        raise invalid("arm", f"unknown arm {name!r}", ", ".join(ARMS))
    mechanism_id, settings = ARMS[name]
    mechanism = mechanisms.get(mechanism_id)
    both = {key: value for key, value in {**given, **asked}.items() if key in mechanism.fields}
    parameters = mechanism.parse({**settings, **both}, terms)
    return Subject(name, mechanism_id, parameters, terms, mechanism.price(parameters, terms), model)


def check_fields(asked: Mapping[str, Any], arms: list[str]) -> None:
    """Raise InvalidRequest for a parameter that none of the arms has."""
    fields = {field for arm in arms if arm in ARMS for field in mechanisms.get(ARMS[arm][0]).fields}
    for name in asked:
        if name not in fields:
            raise invalid(name, f"no parameter of {', '.join(arms)}", ", ".join(sorted(fields)))


# --- models and planted records -----------------------------------------------------------------


def load_model(folder: str | None, scratch: Path) -> LocalModel:
    """Return the model in a folder, or one made in `scratch` that copies keys."""
    if folder is None:
        copier.make(scratch, len(record_of(0).text))
        return models.load(scratch, models.digest(scratch))
    model = models.resolve(folder, [str(Path(folder).resolve())], hub=False)
    models.inspect(model)
    return models.load(model, models.digest(model))


def record_of(key: int) -> Record:
    """Return a key in its sentence."""
    text = f"{SENTENCE}{key:05d}."
    return Record(f"key {key:05d}", None, text)


def planted(count: int) -> tuple[list[int], list[int]]:
    """(source, held-out) keys: `count` different ones, a random half of them each."""
    if not 2 <= count <= KEYS:
        raise invalid("keys", f"{count} five-digit keys", f"2 to {KEYS}")
    chosen = random.SystemRandom().sample(range(KEYS), count)
    return chosen[: count // 2], chosen[count // 2 :]


def key_parameters(model: LocalModel) -> dict[str, Any]:
    """Return prompts that show a key and begin another's sentence, and the length of a key in
    tokens.

    If the tokenizer joins a blank to the digits, the text begins with it.
    """
    encode = lambda text: list(model.tokenizer.encode(text, add_special_tokens=False))  # noqa: E731
    apart = encode(" 12345") == encode(" ") + encode("12345")
    start = SENTENCE if apart else SENTENCE.rstrip()
    length = len(encode("12345" if apart else " 12345"))
    return {
        "template": "{record}\n" + start,
        "public_template": "\n" + start,
        "record_tokens": len(encode(record_of(0).text)) + 4,
        "max_text_tokens": length,
        "max_tokens": length,
    }


class OneEach(Records):
    """Every record in a batch of its own, as no real dataset has it: for the control."""

    def batches(
        self,
        count: Counts,  # noqa: ARG002
        within: Within | None = None,  # noqa: ARG002
        run: int | None = None,  # noqa: ARG002
    ) -> dict[Place, list[str]]:
        """Return a batch for each record, whatever is asked."""
        return {(record.label, place): [record.text] for place, record in enumerate(self.records)}


def without_protection(arm: Subject, texts: int) -> Subject:
    """Return the control: one record a batch, no clip that any logit reaches, all tokens, no public
    context that counts.

    Priced and metered like any other, at a price that no dataset would admit.
    """
    mechanism = mechanisms.get("private-prediction")
    length = arm.parameters.max_text_tokens
    fields = {
        key: getattr(arm.parameters, key) for key in ("template", "record_tokens", "temperature")
    }
    raw = {
        **fields,
        "batch_size": 1,
        "clip": 1_000.0,
        "top_k": 0,
        "batches_per_label": 1,
        "max_text_tokens": length,
        "tokens_per_batch": length * texts,
    }
    parameters = mechanism.parse(raw, arm.terms)
    price = mechanism.price(parameters, arm.terms)
    return replace(arm, name="s = 1, no clipping", parameters=parameters, price=price)


def parse_set(items: list[str]) -> dict[str, Any]:
    """`key=value` pairs; a value is JSON where it can be, else text."""
    settings = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise invalid("set", f"{item!r} has no =", "NAME=VALUE")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def fresh_key() -> bytes:
    """Return a secret that assigns records to batches; every job has its own."""
    return os.urandom(32)


def ex_post(meter: Meter) -> float | None:
    """Return the realized ex-post epsilon: that of the most expensive batch."""
    return meter.realized_ex_post / EPSILON_UNITS if meter.has_ex_post else None
