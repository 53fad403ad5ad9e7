"""A charge: what another program releases about a dataset, in the same ledger.

with dataset.charge(exchequer.dp_sgd(q=0.01, sigma=1.0, steps=3000), tool="opacus 1.6",
                    unit="patient", relation="add-remove", purpose="triage model") as run:
    for step, batch in enumerate(loader):
        train(batch)
        run.alive(step)
    run.settle(history=engine.accountant.history, output=sha256)
"""

import secrets
import sys
import time
import uuid
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from accountant.core.errors import invalid
from accountant.core.ledger import runners
from accountant.core.states import UNRESERVED
from web.client import progress
from web.client.api import Api
from web.client.errors import ApiProblem, Json
from web.client.jobs import Job
from web.client.routes.jobs import LEASE_SECONDS

#: `alive` asks the server at most so often.
LEAST_SECONDS = 1.0


def dp_sgd(*, q: float, sigma: float, steps: int) -> list[list[float]]:
    """Return the event of DP-SGD: `steps` noisy sums of clipped gradients, each on a sample.

    Args:
        q: the probability with which a unit is in a sample.
        sigma: the noise multiplier, standard deviation over clipping norm.
    """
    return [[sigma, q, steps]]


def opendp(measurement: Any, d_in: Any) -> dict[str, float]:
    """Return the guarantee of an OpenDP measurement between inputs at most `d_in` apart."""
    cost, measure = measurement.map(d_in), str(measurement.output_measure)
    if "ZeroConcentrated" in measure:
        return {"rho": cost}
    if isinstance(cost, tuple):
        return {"epsilon": cost[0], "delta": cost[1]}
    if "MaxDivergence" not in measure:
        raise invalid(
            "event", measure, "MaxDivergence, its Approximate, ZeroConcentratedDivergence"
        )
    return {"epsilon": cost}


def as_event(value: Any) -> Any:
    """Return an event as JSON: (ε, δ), a Tumult budget, a DpEvent of dp-accounting; others stay."""
    if hasattr(value, "to_named_tuple"):
        return _opened(value)
    if isinstance(value, tuple) and len(value) == 2:
        return {"epsilon": value[0], "delta": value[1]}
    if type(value).__module__.startswith("tmlt."):
        names = [name for name in ("rho", "epsilon", "delta") if hasattr(value, name)]
        return {name: float(getattr(value, name)) for name in names}
    return value


def _opened(value: Any) -> Any:
    """Return an event of dp-accounting as an object of its fields."""
    if hasattr(value, "to_named_tuple"):
        value = value.to_named_tuple()
    if hasattr(value, "_asdict"):
        return {name: _opened(each) for name, each in value._asdict().items()}
    return [_opened(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Runner:
    """A key that a policy names, and the image or commit that it ran."""

    name: str
    seed: bytes = field(repr=False)
    image: str

    @classmethod
    def load(cls, path: str | Path, image: str) -> "Runner":
        """Return the runner of a key file, which `exchequer charge key` makes."""
        name, _, seed = Path(path).read_text("utf-8").strip().partition(" ")
        return cls(name, bytes.fromhex(seed), image)

    @property
    def named(self) -> str:
        """The runner as policies name it: its name and public key."""
        return f"{self.name} {runners.public_key(self.seed)}"


def closing(api: Api, request: Json) -> str | None:
    """Return which filters a request closes for good and what that costs later, or None."""
    asked = request["dataset"], request["mechanism"], request["parameters"]
    try:
        quote = api.quote(*asked, project=request.get("project"))
    except ApiProblem:
        return None  # whoever sends the request is told what is wrong
    closes: str | None = quote["dataset"].get("closes")
    return closes


def warn_closing(api: Api, request: Json) -> None:
    """Warn of a request that closes a filter for good, before it is sent."""
    told = closing(api, request)
    if told is not None:
        warnings.warn(told, stacklevel=3)


class Charge:
    """One run of another program. Leaving its `with` block without `settle` charges all of it."""

    def __init__(
        self,
        api: Api,
        dataset: str,
        event: Any,
        *,
        tool: str,
        unit: str,
        relation: str,
        purpose: str,
        records_per_unit: int = 1,
        project: str | None = None,
        runner: Runner | None = None,
        lease_seconds: int = LEASE_SECONDS,
        key: str | None = None,
        lease: str | None = None,
        timeout: float | None = None,
    ):
        self.key, self.lease = key or str(uuid.uuid4()), lease or secrets.token_hex(32)
        self.parameters: dict[str, Any] = {
            "event": as_event(event),
            "tool": tool,
            "unit": unit,
            "relation": relation,
            "records_per_unit": records_per_unit,
        }
        if runner is not None:
            self.parameters |= {"runner": runner.named, "image": runner.image, "nonce": self.key}
            act = runners.begin_act(dataset, self.parameters)
            self.parameters["signature"] = runners.sign(act, runner.seed)
        self.request: dict[str, Any] = {"dataset": dataset, "mechanism": "charge"}
        self.request |= {"parameters": self.parameters, "purpose": purpose, "project": project}
        self.job: Job | None = None
        self._api, self._runner, self._dataset = api, runner, dataset
        self._seconds, self._timeout = lease_seconds, timeout
        self._asked, self._settled = 0.0, False

    def take(self, job_id: str) -> Self:
        """Go on with a charge that was begun with the same lease."""
        self.job = Job(self._api, self._api.job(job_id))
        return self

    def declare(self, reason: str) -> Json:
        """Say that it has happened already, and is more than is left; another steward answers."""
        return self._api.declare(self._dataset, self.parameters, reason)

    def __enter__(self) -> Self:
        return self.begin()

    def begin(self, *, told: bool = False) -> Self:
        """Reserve the charge, wait for its approval, and begin it.

        Says on standard error that it waits for a steward.
        Warns first of what it closes for good, unless you were `told`.
        The same key and lease begin it once. Raises Refused, JobFailed or StillWaiting.
        """
        if not told:
            warn_closing(self._api, self.request)
        job = self.job = Job(self._api, self._api.submit(self.request, key=self.key))
        if job.state == "awaiting_approval":
            command = f"exchequer approve {job.id} --reason WHY"
            print(f"It waits for a steward, who runs: {command}", file=sys.stderr)
        job._take(
            progress.watch(
                lambda: self._api.job(job.id),
                lambda document: document["state"] not in UNRESERVED,
                progress.silent,
                self._timeout,
            )
        )
        job._checked()
        self.job._take(self._api.begin(self.job.id, self.lease, self._seconds))
        self._asked = time.monotonic()
        return self

    def alive(self, step: int = 0) -> bool:
        """Say that the program still runs; returns False if somebody asked it to stop.

        Asks the server a few times per lease, however often it is called.
        """
        assert self.job is not None, "begin it first"
        if time.monotonic() - self._asked >= max(LEAST_SECONDS, self._seconds / 20):
            self.job._take(self._api.alive(self.job.id, self.lease, self._seconds, step))
            self._asked = time.monotonic()
        return not self.job.facts.cancel_requested

    def settle(self, history: Any = None, output: str | None = None) -> Job:
        """End it: what its runner signs is charged, or else all that was reserved.

        May be called again where it was refused or not answered, until the lease ends.

        Args:
            history: what was released, in any form that an event has. Counts only with a runner.
            output: the SHA-256 of what was made.
        """
        assert self.job is not None, "begin it first"
        self._settled = True  # if it is refused, leaving the `with` block charges nothing yet
        history = None if history is None else as_event(history)
        signature = None
        if self._runner is not None:
            act = runners.settle_act(self._dataset, self.job.id, history, output)
            signature = runners.sign(act, self._runner.seed)
        return self.job._take(self._api.settle(self.job.id, self.lease, history, output, signature))

    def __exit__(self, *_: object) -> None:
        if not self._settled and self.job is not None:
            self.settle()
