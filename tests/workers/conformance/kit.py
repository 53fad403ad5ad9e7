"""The conformance kit: does a mechanism draw what it priced, and does one unit move no more than it
declares?

Random parameters around the mechanism's example, random terms, and neighbouring records under
random keys. It finds mistakes and proves nothing: one trial that fails refuses the mechanism, all
that pass are evidence.
"""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any
from unittest import mock

from accountant.core.errors import DataError, InvalidRequest, MeterExceeded
from accountant.core.mechanisms import MECHANISMS
from accountant.core.mechanisms.base import Mechanism
from accountant.core.privacy.events import (
    FREE,
    Event,
    Sampled,
    SampledWithoutReplacement,
    from_json,
    releases,
    to_json,
)
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secrets import SecretRelease
from tests.workers.conformance import metadata, samples, toys
from tests.workers.conformance.metadata import Refused
from tests.workers.conformance.noting import Noting, compare, compare_secret
from workers.data.records import Records
from workers.interface import Artifact, Checker, Progress, Public, Released
from workers.noise import coins

TRIALS, WILD = 30, 150
RUN = ["parameters", "terms", "records", "model", "meter", "progress", "public"]
REUSE = ["parameters", "terms", "artifacts", "model", "progress", "public"]
MAKE = ["parameters", "terms", "model", "progress", "public"]
HEAVY = ("torch", "transformers", "flask", "sqlalchemy", "celery", "pyarrow")


def conform(module: str, trials: int = TRIALS, seed: int = 0) -> Mechanism[Any]:
    """The mechanism of a price module, once all trials have passed. Raises Refused with the first
    failure.
    """
    mechanism = import_module(module).MECHANISM
    metadata.check(mechanism)
    if mechanism.runner is None:
        raise Refused("runner: it has none, so there is nothing to try")
    _check_files(mechanism, module)
    running, random = import_module(mechanism.runner).Runner(), Random(seed)
    _check_runner(mechanism, running)
    for _ in range(WILD):
        _check_total(mechanism, samples.wild(mechanism, random), samples.terms(random))
    choices = samples.choices(mechanism)
    for number in range(trials):
        known, raw, parsed = _accepted(mechanism, running, random, choices[number % len(choices)])
        try:
            _try(mechanism, running, known, raw, parsed, random, thorough=number % 5 == 0)
        except Refused as error:
            told = f"{json.dumps(raw, ensure_ascii=False)} under {known.to_json()}"
            raise Refused(f"{error} (trial {number + 1}: {told})") from error
    return mechanism


# --- what needs no run --------------------------------------------------------------------------


def _check_files(mechanism: Mechanism[Any], module: str) -> None:
    for name in (module, str(mechanism.runner)):
        if not (import_module(name).__doc__ or "").strip():
            raise Refused(f"{name}: it has no docstring that says how it works")
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    told = subprocess.run(
        [sys.executable, "-c", code], env=path, capture_output=True, text=True, check=False
    )
    if told.returncode or told.stdout.strip():
        raise Refused(
            f"{module}: it loads {told.stdout.strip() or 'nothing: ' + told.stderr[-200:]}"
        )


def _check_runner(mechanism: Mechanism[Any], running: Any) -> None:
    """The methods take what a worker hands them; `reuse` gets neither records nor meter."""
    wanted = {"total": ["parameters", "terms"]}
    wanted |= {"make": MAKE} if mechanism.public else {} if mechanism.reads_output else {"run": RUN}
    wanted |= {"reuse": REUSE} if "from_job" in mechanism.fields else {}
    for name, names in wanted.items():
        found = list(inspect.signature(getattr(running, name, lambda: None)).parameters)
        if found != names:
            raise Refused(f"{mechanism.runner}.Runner.{name}: it takes {found} and not {names}")


def _check_total(mechanism: Mechanism[Any], raw: Mapping[str, Any], known: Terms) -> None:
    """Parameters are accepted or refused by field; what is accepted has a price and all other
    facts.
    """
    step = "parse"
    try:
        parsed = mechanism.parse(raw, known)
        step = "price"
        price = mechanism.price(parsed, known)
        assert price.dp is None or from_json(to_json(price.dp)) == price.dp
        assert price.breakdown
        step = "missing, resources, batches or context_tokens"
        assert mechanism.missing(parsed) or mechanism.batches(parsed, known) >= 1
        mechanism.resources(parsed)
        assert mechanism.context_tokens(parsed, 10) >= 0
    except InvalidRequest as error:
        if step != "parse":
            raise Refused(f"{step}: it refuses what parse accepted: {error}") from error
    except Exception as error:
        raise Refused(f"{step}: {error!r} for {raw!r}") from error


# --- runs ---------------------------------------------------------------------------------------


def _accepted(
    mechanism: Mechanism[Any], running: Any, random: Random, choice: Mapping[str, Any]
) -> tuple[Terms, dict[str, Any], Any]:
    """Terms and parameters that would be admitted, with `choice` if they can be, and these
    resolved.
    """
    why: object = None
    for turn in range(1_000):
        known, raw = samples.terms(random), samples.parameters(mechanism, random)
        raw |= choice if turn < 500 else {}
        try:
            parsed = mechanism.parse(raw, known)
        except InvalidRequest as error:
            why = error
            continue
        facts = {
            name: toys.CORPUS_FACTS
            for name, kind in mechanism.resources(parsed).items()
            if kind == "corpus"
        }
        why = mechanism.missing(parsed) or mechanism.unfit_public(parsed, known, facts)
        if mechanism.uses_model:
            why = why or mechanism.unfit(parsed, toys.model_facts())
        why = why or _unserved(running, parsed, known, mechanism)
        if why is None:
            return known, raw, parsed
    raise Refused(f"example: of 1,000 requests around it none is admitted; the last one: {why}")


def _unserved(
    running: Any, parsed: Any, known: Terms, mechanism: Mechanism[Any]
) -> DataError | None:
    """What the runner finds lacking in its public inputs before it is given records."""
    if not isinstance(running, Checker):
        return None
    try:
        running.check(parsed, known, _public(mechanism, parsed, known))
    except DataError as error:
        return error
    return None


def _try(
    mechanism: Mechanism[Any],
    running: Any,
    known: Terms,
    raw: Mapping[str, Any],
    parsed: Any,
    random: Random,
    thorough: bool,
) -> None:
    """One trial: a run, its price, and the same run on neighbouring records; `thorough`: shares and
    reuse.
    """
    price = mechanism.price(parsed, known)
    if mechanism.reads_output or mechanism.public:
        if price != Price(FREE, price.breakdown):
            raise Refused("price: it reads published or public things alone, so it must be free")
        if mechanism.public and thorough:
            _check_make(mechanism, running, known, parsed)
        return
    if price.secret is not None:
        _try_secret(mechanism, running, known, raw, parsed, random, price, thorough)
        return
    if not releases(price.dp or FREE) and not price.ex_post_draws:
        raise Refused("price: it reads records and costs nothing")
    samples_of = [event for event in releases(price.dp or FREE) if isinstance(event, Sampled)]
    in_order = any(isinstance(event, SampledWithoutReplacement) for event in samples_of)
    pair = samples.pair(random, known, in_order)
    with _everybody_takes_part():
        one, artifacts, done = _run(mechanism, running, pair.terms, parsed, pair.one, Noting(price))
        two, _, again = _run(mechanism, running, pair.terms, parsed, pair.two, Noting(price, one))
    _check_spent(price, one)
    compare(one, two)
    if done != again:
        raise Refused(f"progress: {done} with a unit and {again} without it, so it is not public")
    if thorough and mechanism.batches(parsed, known) > 1:
        _check_shares(mechanism, running, pair, parsed, price, one)
    if thorough and artifacts and "from_job" in mechanism.fields:
        _check_reuse(mechanism, running, known, raw, artifacts)


def _try_secret(
    mechanism: Mechanism[Any],
    running: Any,
    known: Terms,
    raw: Mapping[str, Any],
    parsed: Any,
    random: Random,
    price: Price,
    thorough: bool,
) -> None:
    """One trial in the secret currency: with records that carry a secret, and without the
    secret.
    """
    if price.dp is not None or price.ex_post_draws:
        raise Refused("price: one in secrets has no other part")
    assert price.secret is not None
    stated = SecretRelease.from_json(price.secret["release"])
    with_it, without, differ = samples.secret_pair(random, known, stated.group)
    with _everybody_takes_part():
        one, artifacts, done = _run(mechanism, running, known, parsed, with_it, Noting(price))
        two, _, again = _run(mechanism, running, known, parsed, without, Noting(price, one))
    if one.secret_rounds != stated.rounds:
        raise Refused(f"price: it is {stated.rounds} rounds, the run made {one.secret_rounds}")
    compare_secret(one, two, stated.group, differ)
    if done != again:
        raise Refused(f"progress: {done} with a secret and {again} without it, so it is not public")
    if thorough and artifacts and "from_job" in mechanism.fields:
        _check_reuse(mechanism, running, known, raw, artifacts)


@contextmanager
def _everybody_takes_part() -> Iterator[None]:
    """Coins show heads and samples are the last places: the draws in which a unit that differs is
    seen.
    """

    def last(many: int, count: int) -> list[int]:
        return list(range(many))[-count:]

    with (
        mock.patch.object(coins, "heads", return_value=True),
        mock.patch.object(coins, "places", last),
    ):
        yield


def _run(
    mechanism: Mechanism[Any], running: Any, known: Terms, parsed: Any, data: Records, meter: Noting
) -> tuple[Noting, dict[str, Artifact], int]:
    progress = Progress(running.total(parsed, known))
    model = toys.model() if mechanism.uses_model else None
    public = _public(mechanism, parsed, known)
    try:
        made = list(running.run(parsed, known, data, model, meter, progress, public))
    except Refused:
        raise
    except MeterExceeded as error:
        raise Refused("price: the run asks for a release that it does not cover") from error
    except Exception as error:
        raise Refused(f"run: {error!r}") from error
    artifacts = {each.name: each for each in made if isinstance(each, Artifact)}
    if unknown := set(artifacts) - set(mechanism.artifacts):
        raise Refused(f"artifacts: the run releases {sorted(unknown)}, which are not declared")
    return meter, artifacts, progress.done


def _public(mechanism: Mechanism[Any], parsed: Any, known: Terms) -> Public:
    """What the parameters name: toys, and for each job a toy or what a public mechanism makes."""
    found = toys.public(mechanism.resources(parsed))
    sources = {
        field: _source(kind, parsed, known) for field, kind in mechanism.sources(parsed).items()
    }
    return replace(found, sources=sources)


def _source(kind: str, parsed: Any, known: Terms) -> dict[str, Released]:
    """A toy, or the artifacts of a public mechanism, with the parameters that both have."""
    if kind in toys.ARTIFACTS:
        artifact = toys.ARTIFACTS[kind]()
        return {artifact.name: Released(artifact.name, artifact.content)}
    maker = next(
        (each for each in MECHANISMS.values() if each.public and kind in each.releases), None
    )
    if maker is None:
        raise Refused(
            f"sources: no public mechanism releases a {kind}, so there is nothing to try it with"
        )
    shared = {
        name: getattr(parsed, name) for name in maker.fields if name in type(parsed).model_fields
    }
    parameters = maker.parse({**shared, **maker.example}, known)
    model = toys.model() if maker.uses_model else None
    running = import_module(str(maker.runner)).Runner()
    public = toys.public(maker.resources(parameters))
    made = running.make(parameters, known, model, Progress(0), public)
    kept = [each for each in made if isinstance(each, Artifact) and each.kind == kind]
    return {each.name: Released(each.name, each.content) for each in kept}


def _check_spent(price: Price, meter: Noting) -> None:
    """The releases of the run are those of the price: neither more (the meter refuses) nor
    fewer.
    """
    priced, made = releases(price.dp or FREE), releases(meter.realized)
    if made != priced:
        raise Refused(f"price: it is {_named(priced)}, the run made {_named(made)}")
    draws = [sum(call.event is None for call in calls) for calls in meter.calls.values()]
    if max(draws, default=0) != price.ex_post_draws:
        raise Refused(f"ex_post_draws: {price.ex_post_draws}, the run made {max(draws, default=0)}")


def _named(found: Mapping[Event, int]) -> str:
    return ", ".join(f"{count} × {event}" for event, count in found.items()) or "nothing"


def _check_shares(
    mechanism: Mechanism[Any],
    running: Any,
    pair: samples.Pair,
    parsed: Any,
    price: Price,
    whole: Noting,
) -> None:
    """Two workers that share the batches make the whole's releases between them."""
    parts: list[Any] = []
    for share in ((0, 2), (1, 2)):
        meter = Noting(price, shared=True)
        _run(mechanism, running, pair.terms, parsed, replace(pair.one, share=share), meter)
        parts += meter.calls
    if len(parts) != len(set(parts)) or set(parts) != set(whole.calls):
        raise Refused(
            f"batches: workers that share them release {parts}, one alone {list(whole.calls)}"
        )


def _check_make(mechanism: Mechanism[Any], running: Any, known: Terms, parsed: Any) -> None:
    """A public job runs from public things alone, and leaves what its mechanism declares."""
    model = toys.model() if mechanism.uses_model else None
    public, progress = _public(mechanism, parsed, known), Progress(running.total(parsed, known))
    try:
        made = list(running.make(parsed, known, model, progress, public))
    except DataError:  # parameters that no toy corpus has anything for
        return
    except Exception as error:
        raise Refused(f"make: {error!r}") from error
    for each in made:
        if isinstance(each, Artifact) and (
            each.name not in mechanism.artifacts or each.kind not in mechanism.releases
        ):
            raise Refused(
                f"artifacts: the run releases {each.name!r} of kind {each.kind!r}, undeclared"
            )


def _check_reuse(
    mechanism: Mechanism[Any],
    running: Any,
    known: Terms,
    raw: Mapping[str, Any],
    artifacts: Mapping[str, Artifact],
) -> None:
    """A later job begins from the artifacts, for nothing."""
    noise = {name for pair in mechanism.parameters.either for name in pair}
    again = {name: value for name, value in raw.items() if name not in noise} | {
        "from_job": "0" * 36
    }
    parsed = mechanism.parse(again, known)
    if mechanism.missing(parsed) is not None:
        return
    price = mechanism.price(parsed, known)
    if price.dp != FREE or price.ex_post_draws or price.secret is not None:
        raise Refused("price: a job that reads artifacts alone must be free")
    model = toys.model() if mechanism.uses_model else None
    public, progress = _public(mechanism, parsed, known), Progress(running.total(parsed, known))
    try:
        released = {name: Released(each.name, each.content) for name, each in artifacts.items()}
        list(running.reuse(parsed, known, released, model, progress, public))
    except Exception as error:
        raise Refused(f"reuse: {error!r}") from error
