"""People at work while faults fall: analysts who ask, repeat and change their minds, and two
stewards.

Everything goes through HTTP with bearer tokens. A request without an answer is sent again with the
same key, as the client of the service does, and every final answer is written down for the checker.
"""

import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

MECHANISM, PHRASES = "noisy-count", "dp-kps"
#: A job whose artifacts later jobs read for nothing; its vocabulary is that of a public job.
SKETCHES: dict[str, Any] = {"output": "phrases", "sequences_per_label": 2, "sequence_length": 3}
SKETCHED: dict[str, Any] = SKETCHES | {"vocabulary_size": 6, "terms_per_record": 4}
SKETCHED |= {"vocabulary_epsilon": 0.04, "kde_epsilon": 0.06}
#: What analysts ask for: sizes that fit for a while, some that need a steward, some that can never
#: fit.
EPSILONS = (0.05, 0.1, 0.1, 0.2, 0.4, 0.8)
DOOMED: tuple[dict[str, Any], ...] = (
    {"epsilon": 500.0},  # more than any allowance here
    {"epsilon": -1.0},  # no price
    {"epsilon": 0.1, "noise_multiplier": 1.0},  # one too many
)
TRY_AGAIN_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """The final answer to one request: a job, or a status that says no (0: no answer)."""

    key: str
    body: str
    dataset: str
    status: int
    job: str | None
    state: str = ""
    at: float = field(default_factory=time.monotonic)


@dataclass
class Desk:
    """Facts that all people share: the service's address, and its answers."""

    urls: list[str]
    datasets: list[str]
    analysts: list[str]
    steward: str
    second: str  # who confirms what the first proposes
    seed: int
    terms: str = ""  # the job that released the list of terms
    stop: threading.Event = field(default_factory=threading.Event)
    pause: threading.Event = field(default_factory=threading.Event)
    answers: list[Answer] = field(default_factory=list)
    changed_answers: list[str] = field(default_factory=list)
    restores: int = 0  # so often the database has forgotten keys of requests
    unforeseen: int = 0
    #: Who is in the middle of a request, or of several that follow from one another.
    asking: set["Person"] = field(default_factory=set)

    def start(self) -> list[threading.Thread]:
        targets = [
            threading.Thread(
                target=Analyst(self, token, random.Random(f"{self.seed} {number}")).work
            )
            for number, token in enumerate(self.analysts)
        ]
        targets.append(
            threading.Thread(
                target=Steward(
                    self, self.steward, random.Random(f"{self.seed} s"), self.second
                ).work
            )
        )
        for thread in targets:
            thread.daemon = True
            thread.start()
        return targets


class Person:
    """Somebody with a token."""

    def __init__(self, desk: Desk, token: str, chance: random.Random) -> None:
        self.desk, self.chance = desk, chance
        self.http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(8.0, connect=2.0),
            trust_env=False,
        )

    @contextmanager
    def asks(self) -> Iterator[None]:
        """Let everybody see that this person waits for answers."""
        self.desk.asking.add(self)
        try:
            yield
        finally:
            self.desk.asking.discard(self)

    def ask(self, method: str, path: str, **values: Any) -> httpx2.Response | None:
        """The first answer that is no failure of the service, from any of its processes; None: none
        came.
        """
        deadline = time.monotonic() + TRY_AGAIN_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = self.http.request(
                    method, f"{self.chance.choice(self.desk.urls)}/api/v1{path}", **values
                )
                if answer.status_code < 500:
                    return answer
            except httpx2.HTTPError:
                pass
            time.sleep(0.1)
        return None


class Analyst(Person):
    """Asks for jobs, some of them twice, draws from what others released, and cancels a few."""

    def work(self) -> None:
        while not self.desk.stop.is_set():
            if self.desk.pause.wait(0) or self.desk.stop.wait(self.chance.uniform(0.05, 0.5)):
                time.sleep(0.2)
                continue
            with self.asks():
                self.submit()
                if self.chance.random() < 0.3:
                    self.answer_offers()

    def answer_offers(self) -> None:
        """Accept most of what is offered; asked again after a lost answer, it is the same job."""
        offered = self.ask("GET", "/decisions", params={"kind": "offer"})
        for offer in [] if offered is None else offered.json().get("decisions", []):
            body = {"yes": self.chance.random() < 0.8, "reason": "as it is"}
            self.ask("POST", f"/decisions/{offer['id']}/answer", json=body)

    def submit(self) -> None:
        dataset, key = (
            self.chance.choice(self.desk.datasets),
            str(uuid.UUID(int=self.chance.getrandbits(128))),
        )
        parameters: dict[str, Any] = {"epsilon": self.chance.choice(EPSILONS)}
        parameters["noise"] = self.chance.choice(("laplace", "laplace", "gaussian"))
        if self.chance.random() < 0.15:
            parameters = dict(self.chance.choice(DOOMED))
        mechanism, other = MECHANISM, self.chance.random()
        if other < 0.3:
            source = self._released(dataset) if other < 0.15 else None
            parameters = SKETCHED | {"vocabulary": self.desk.terms}
            mechanism, parameters = (
                PHRASES,
                SKETCHES | {"from_job": source} if source else parameters,
            )
        body = {
            "dataset": dataset,
            "mechanism": mechanism,
            "parameters": parameters,
            "purpose": "a fault run",
        }
        restores, job = self.desk.restores, self._send(key, body)
        again = self._send(key, body) if self.chance.random() < 0.15 else None
        same = again == job or self.desk.restores != restores
        if None not in (job, again) and not same:  # None: nobody answered in time
            self.desk.changed_answers.append(
                f"key {key}: another answer to the same request: {job}, {again}"
            )
        if job is not None and self.chance.random() < 0.1:
            other = self.ask(
                "POST", "/jobs", json={**body, "purpose": "x"}, headers={"Idempotency-Key": key}
            )
            same = other is None or other.status_code == 409 or self.desk.restores != restores
            if other is not None and not same:
                self.desk.changed_answers.append(f"key {key}: {other.status_code} to another body")
        if job is not None and self.chance.random() < 0.12:
            time.sleep(self.chance.uniform(0, 0.5))
            self.ask("POST", f"/jobs/{job}/cancel")

    def _released(self, dataset: str) -> str | None:
        """A job whose vocabulary and sketches may be drawn from again, if there is one."""
        wanted = {"dataset": dataset, "mechanism": PHRASES, "state": "succeeded", "limit": 20}
        found = self.ask("GET", "/jobs", params=wanted)
        jobs = [] if found is None else found.json().get("jobs", [])
        own = [
            job["id"]
            for job in jobs
            if "from_job" not in job.get("parameters", {}) or not job["parameters"]["from_job"]
        ]
        return self.chance.choice(own) if own else None

    def _send(self, key: str, body: dict[str, Any]) -> str | None:
        answer = self.ask("POST", "/jobs", json=body, headers={"Idempotency-Key": key})
        status = 0 if answer is None else answer.status_code
        made = answer.json() if answer is not None and status == 201 else {}
        job, state = made.get("id"), made.get("state", "")
        self.desk.answers.append(Answer(key, str(body), str(body["dataset"]), status, job, state))
        return job


class Steward(Person):
    """Decides what waits, offers less, raises allowances little by little, corrects with a
    colleague.
    """

    def __init__(self, desk: Desk, token: str, chance: random.Random, second: str) -> None:
        super().__init__(desk, token, chance)
        self.colleague = Person(desk, second, chance)

    def work(self) -> None:
        raised = time.monotonic()
        while not self.desk.stop.wait(0.3):
            self.decide()
            if time.monotonic() - raised > 1.5 and not self.desk.pause.is_set():
                raised = time.monotonic()
                with self.asks():
                    self.allow(self.chance.choice(self.desk.datasets))
                    self.correct()

    def decide(self) -> None:
        waiting = self.ask("GET", "/jobs", params={"state": "awaiting_approval", "limit": 20})
        for job in [] if waiting is None else waiting.json().get("jobs", []):
            drawn = self.chance.random()
            body: dict[str, Any] = {"reason": "a fault run"}
            if drawn >= 0.85 and job["mechanism"] == MECHANISM:
                body |= {"parameters": {"epsilon": 0.05, "noise_multiplier": None}}
                self.ask("POST", f"/jobs/{job['id']}/offer", json=body)
            else:
                body |= {"yes": not 0.7 <= drawn < 0.85}
                self.ask("POST", f"/decisions/{job['id']}/answer", json=body)

    def correct(self) -> None:
        """Charge a void job for all that was reserved: one steward proposes, the other confirms."""
        found = self.ask("GET", "/jobs", params={"state": "cancelled", "limit": 20})
        jobs = [] if found is None else found.json().get("jobs", [])
        if jobs:
            path = f"/jobs/{self.chance.choice(jobs)['id']}/correct"
            proposed = self.ask("POST", path, json={"reason": "it was read after all"})
            if proposed is not None and proposed.status_code == 202:
                path = f"/decisions/{proposed.json()['decision']['id']}/answer"
                self.colleague.ask("POST", path, json={"yes": True, "reason": "so it was"})

    def allow(self, dataset: str) -> None:
        found = self.ask("GET", f"/datasets/{dataset}")
        if found is None:
            return
        epsilon = float(found.json()["account"]["epsilon"]) + 0.25
        body = {"epsilon": f"{epsilon:.4f}", "delta": "0.000001", "reason": "a fault run"}
        self.ask("POST", f"/datasets/{dataset}/allowance", json=body)
