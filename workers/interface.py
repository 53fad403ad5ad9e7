"""The interface of a mechanism: parameters, records, a model, the meter and a progress report.
Nothing else.

A runner is `run(parameters, terms, records, model, meter, progress, public)` and yields texts,
counts and artifacts as they are made. It never prices itself, never sees the ledger, and has no
noise but the meter's. One whose parameters have `from_job` also has `reuse(parameters, terms,
artifacts, model, progress, public)`, without records and meter: the result is free because nothing
private is within its reach. The runner of a public mechanism has `make(parameters, terms, model,
progress, public)` instead of `run`. One that has `check(parameters, terms, public)` looks at its
public inputs before records are opened. One that `resumes` goes on where a lost attempt stopped.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from accountant.core.privacy.price import Terms
from accountant.faults import reached
from workers.data.records import Records
from workers.noise.meter import Meter

if TYPE_CHECKING:
    from workers.data.corpora import Corpus
    from workers.embedding.embedders import Embedder
    from workers.generation.endpoint import Endpoint
    from workers.generation.writer import Writer
    from workers.models import LocalModel


@dataclass(frozen=True)
class Text:
    """One synthetic text. `complete` is false if the token budget ended it."""

    text: str
    label: str | None = None
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "label": self.label, "complete": self.complete}


@dataclass(frozen=True)
class Count:
    """A noisy number of privacy units; `label` is None for the whole dataset."""

    label: str | None
    count: int

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "count": self.count}


JSON, SAFETENSORS, HTML = "application/json", "application/x-safetensors", "text/html"
SUFFIXES = {JSON: ".json", SAFETENSORS: ".safetensors", HTML: ".html"}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class _Content:
    """The bytes of an artifact, which are read as JSON or as safetensors."""

    name: str
    content: bytes

    def json(self) -> Any:
        """Return the value of a JSON artifact. Raises ValueError for another format."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise ValueError(f"{self.name} is no JSON") from None

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a safetensors artifact. Raises ValueError for another format."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            loaded: dict[str, NDArray[Any]] = load(self.content)
        except SafetensorError:
            raise ValueError(f"{self.name} is no safetensors") from None
        return loaded


@dataclass(frozen=True)
class Artifact(_Content):
    """A release other than texts, which later jobs read for free: vectors, centres, counts.

    `name` is unique within its job; `kind` tells other mechanisms what it is. The format is JSON or
    safetensors, so that reading it runs no code, or an HTML report for people, which no job reads.
    """

    name: str
    kind: str
    media_type: str
    content: bytes

    def __post_init__(self) -> None:
        if self.media_type not in SUFFIXES:
            raise ValueError(f"an artifact is JSON, safetensors or HTML, not {self.media_type!r}")
        if not (_NAME.fullmatch(self.name) and _NAME.fullmatch(self.kind)):
            raise ValueError(
                "names and kinds are lower case letters, digits, '.', '_' and '-', at most 63"
            )

    @classmethod
    def of_json(cls, name: str, kind: str, value: Any) -> "Artifact":
        """Return an artifact of finite JSON values."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return cls(name, kind, JSON, text.encode())

    @classmethod
    def of_tensors(cls, name: str, kind: str, tensors: Mapping[str, NDArray[Any]]) -> "Artifact":
        """Return an artifact of named arrays, of any shapes."""
        from safetensors.numpy import save

        arrays = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
        return cls(name, kind, SAFETENSORS, save(arrays))


@dataclass(frozen=True)
class Released(_Content):
    """An artifact as a later job reads it: published, and its bytes those of the ledger."""

    name: str
    content: bytes
    released: ClassVar[bool] = True


@dataclass
class Progress:
    """Public progress: how much of a publicly known amount is done.

    `check` is called at every step; it raises if the job was cancelled or its lease was lost. Where
    nobody may know in which batch a unit lies (`silent`), nothing is told before the end: the time
    of a round depends on that.
    """

    total: int
    done: int = 0
    check: Callable[[], None] = field(default=lambda: None)
    silent: bool = False

    @property
    def told(self) -> int:
        """The steps that may be shown."""
        return 0 if self.silent else self.done

    def advance(self, amount: int = 1) -> None:
        self.done += amount
        reached("worker.step")
        self.check()


@dataclass(frozen=True)
class Public:
    """Registered public inputs by the parameter field that names them, their bytes checked.

    `texts` are those the job in `from_job` published, for a mechanism that reads them; None for
    others. `sources` are artifacts of other jobs, by the field that names the job and then by their
    names.
    """

    corpora: Mapping[str, "Corpus"] = field(default_factory=dict)
    embedders: Mapping[str, "Embedder"] = field(default_factory=dict)
    models: Mapping[str, "LocalModel"] = field(default_factory=dict)
    endpoints: Mapping[str, "Endpoint"] = field(default_factory=dict)
    texts: tuple[Mapping[str, Any], ...] | None = None
    sources: Mapping[str, Mapping[str, Released]] = field(default_factory=dict)

    def corpus(self, name: str) -> "Corpus":
        return self.corpora[name]

    def embedder(self, name: str) -> "Embedder":
        return self.embedders[name]

    def model(self, name: str) -> "LocalModel":
        return self.models[name]

    def writer(self, name: str, seed: int | None = None) -> "Writer":
        """Return a writer for public prompts: an endpoint or a local model. `seed`: its draws'."""
        from workers.generation.local_writer import LocalWriter, generator

        if name in self.endpoints:
            return self.endpoints[name].seeded(seed)
        model = self.models[name]
        return LocalWriter(model, generator(model.device, seed))


NOTHING_PUBLIC = Public()


class Runner(Protocol):
    """The algorithm of one mechanism."""

    def total(self, parameters: Any, terms: Terms) -> int:
        """Return the public number of steps of a run."""

    def run(
        self,
        parameters: Any,
        terms: Terms,
        records: Records,
        model: Any,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Count | Artifact]:
        """Run the mechanism. Every random draw that touches private data goes through `meter`.

        `model` is a LocalModel, or None for a mechanism without one. `public` has the registered
        inputs that the parameters name.
        """


@runtime_checkable
class Checker(Protocol):
    """A runner that looks at public inputs first: a job that they don't serve fails void."""

    def check(self, parameters: Any, terms: Terms, public: Public) -> None:
        """Raises DataError naming the field, before any record is opened."""


@runtime_checkable
class Preparer(Protocol):
    """A runner that tries its model before anything private is read: what it raises is told."""

    def prepare(self, parameters: Any, terms: Terms, model: Any, share: tuple[int, int]) -> None:
        """Raise what makes a run impossible. `share`: (i, n) of this worker, as in Records."""


@runtime_checkable
class Resumer(Protocol):
    """A runner whose next attempt goes on with the draws that were kept of the one before
    (noise.kept_draws).

    The order of a part's draws, and what each is drawn from, must follow from the parameters, the
    records, the job's key and the draws before: a private coin or choice of its own between two
    draws would be another one in the next attempt. It is tossed in a `step` of the kept draws, and
    public texts are written from a kept `seed` (docs/accounting.md, 13.3). Kept tokens are asked
    for by `kept_token`. The values of a release are best given to the meter as a function: it is
    not called for a kept one.
    """

    resumes: bool


@runtime_checkable
class Maker(Protocol):
    """The runner of a public mechanism, without records, meter, or a way to a dataset."""

    def total(self, parameters: Any, terms: Terms) -> int:
        """Return the number of public steps in a run."""

    def make(
        self, parameters: Any, terms: Terms, model: Any, progress: Progress, public: Public
    ) -> Iterator[Any]:
        """Run it from what is public alone."""


@runtime_checkable
class Reuser(Protocol):
    """A runner that can also start from an earlier job's released artifacts."""

    def reuse(
        self,
        parameters: Any,
        terms: Terms,
        artifacts: Mapping[str, Released],
        model: Any,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Count | Artifact]:
        """Run from the artifacts of `from_job`, by name, already checked against the ledger."""
