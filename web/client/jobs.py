"""A job as an object: wait for it, cancel it, read what it published."""

import io
import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from accountant.core.errors import ExchequerError
from accountant.core.privacy.units import up
from accountant.schema.jobs import Artifact, Progress, Refusal
from web.client import progress as watching
from web.client.api import Api
from web.client.errors import JobFailed, Json, Refused
from web.client.facts import JobFacts, facts_html, lines_html, read
from web.client.files import Hashing, draft

if TYPE_CHECKING:
    import pandas


_NOT_IN_A_METRIC = re.compile(r"[^\w\-. /]")


class NoPandas(ExchequerError):
    """`to_pandas` needs pandas, and nothing else here does."""

    code = "no-pandas"

    def __init__(self) -> None:
        super().__init__(
            "pandas is not installed: `pip install pandas`. job.results() gives the same rows as "
            "dictionaries"
        )


class NoMlflow(ExchequerError):
    """`to_mlflow` needs mlflow, and nothing else here does."""

    code = "no-mlflow"

    def __init__(self) -> None:
        super().__init__("mlflow is not installed: `pip install mlflow-skinny`, or mlflow")


class Job:
    """One job. `facts` is how it stood when the server was last asked; `refresh` asks again."""

    def __init__(self, api: Api, document: Mapping[str, Any]):
        self._api = api
        self._take(document)

    def _take(self, document: Mapping[str, Any]) -> Self:
        self.document: Json = dict(document)
        self.facts = read(JobFacts, document)
        return self

    @property
    def id(self) -> str:
        """Its id."""
        return self.facts.id

    @property
    def state(self) -> str:
        """Return a public state: submitted, awaiting_approval, queued, running, succeeded, ..."""
        return self.facts.state

    @property
    def progress(self) -> Progress:
        """The job's progress, in public quantities."""
        return self.facts.progress

    @property
    def refusal(self) -> Refusal | None:
        """The refusal, if the job was refused."""
        return self.facts.refusal

    def refresh(self) -> Self:
        """Ask the server how it stands now."""
        return self._take(self._api.job(self.id))

    def wait(
        self,
        timeout: float | None = None,
        *,
        progress: bool = True,
        until: Literal["ended", "decided"] = "ended",
    ) -> Self:
        """Wait until it has ended (or is decided), and show how far it is; returns the job.

        timeout: seconds; None waits as long as it takes, approval included. Raises Refused,
        JobFailed, and StillWaiting (a TimeoutError) after `timeout`: the job goes on, and `wait`
        may be called again.
        """
        done = watching.ended if until == "ended" else watching.decided
        with _display() if progress else nullcontext(watching.silent) as show:
            self._take(watching.watch(lambda: self._api.job(self.id), done, show, timeout))
        return self._checked()

    def _checked(self) -> Self:
        """Raises Refused or JobFailed where it can't succeed any more."""
        if self.state == "refused":
            raise Refused(self.document)
        if self.state in watching.UNSUCCESSFUL:
            raise JobFailed(self.document)
        return self

    def cancel(self) -> Self:
        """Ask it to stop. Once a worker reads the data, the whole reservation is charged."""
        self._api.cancel(self.id)
        return self.refresh()

    def approve(self, reason: str) -> Self:
        """Say yes, as a steward: it is reserved and queued, or refused where it no longer fits."""
        self._api.approve(self.id, reason)
        return self.refresh()

    def refuse(self, reason: str) -> Self:
        """Say no, as a steward."""
        self._api.refuse(self.id, reason)
        return self.refresh()

    def comment(self, text: str, *, asks: bool = False) -> Self:
        """Say something about it; with `asks`, as a steward, wait for its analyst's answer."""
        self._api.comment(self.id, text, asks=asks)
        return self.refresh()

    # --- results
    # --------------------------------------------------------------------------------------

    def results(self) -> list[Json]:
        """Return its published rows, one dictionary a text (or figure); the bytes are those that
        the ledger names.

        Waits for nothing: raises Refused or JobFailed where there will be none, NotFound where
        there is none yet, and Altered where the bytes are not what was released.
        """
        file = io.BytesIO()
        self._save(Hashing(file))
        return [json.loads(line) for line in file.getvalue().splitlines()]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return its rows as a DataFrame; `attrs` say where it is from. Raises NoPandas."""
        try:
            import pandas
        except ImportError:
            raise NoPandas from None
        frame = pandas.DataFrame.from_records(self.results())
        facts = self.facts
        frame.attrs["exchequer"] = {
            "job": facts.id,
            "dataset": facts.dataset,
            "mechanism": facts.mechanism,
            "model": facts.model,
            "epsilon_alone": facts.epsilon_alone,
            "delta": facts.delta,
            "sha256": facts.output_sha256,
        }
        return frame

    def to_mlflow(self, evaluation: "Job | None" = None) -> None:
        """Log it to the active MLflow run: parameters, price, texts and data card, and where they
        come from.

        With `evaluation`, a job that looked at its texts, its figures too; whole, with their
        settings, in `evaluation.json`. Raises NoMlflow.
        """
        try:
            import mlflow
        except ImportError:
            raise NoMlflow from None
        facts = self.facts
        texts, figures = self.results(), [] if evaluation is None else evaluation.results()
        mlflow.log_params({name: json.dumps(value) for name, value in facts.parameters.items()})
        tags = {
            "job": facts.id,
            "dataset": facts.dataset,
            "mechanism": facts.mechanism,
            "model": facts.model,
        }
        tags |= {"output_sha256": facts.output_sha256}
        mlflow.set_tags(
            {f"exchequer.{name}": str(value) for name, value in tags.items() if value is not None}
        )
        priced = {"epsilon_alone": facts.epsilon_alone, "delta": facts.delta}
        # Of two figures of one name, which differ in their settings, the first is the metric.
        measured = {figure["name"]: figure["value"] for figure in reversed(figures)}
        for name, value in {**measured, **priced}.items():
            if value is not None:
                mlflow.log_metric(_NOT_IN_A_METRIC.sub("_", name), value)
        mlflow.log_text("".join(f"{json.dumps(text)}\n" for text in texts), f"{facts.id}.jsonl")
        mlflow.log_dict(self.card(), "card.json")
        if figures:
            mlflow.log_dict(figures, "evaluation.json")

    def download(
        self, path: str | Path, *, format: str = "jsonl", card: bool = False, **about: str | None
    ) -> Path:
        """Save what it published, as `jsonl`, `csv` or `parquet`; with `card`, in a zip with its
        data card, which states the `license` and `language` of `about`.

        The file appears when it is whole. JSON Lines are what was released: their hash is the
        ledger's.
        """
        target = Path(path)
        with draft(target) as file:
            if format == "jsonl" and not card:
                self._save(Hashing(file))
            else:
                self._ready()._api.save_output(self.id, format, file, card=card, **about)
        return target

    def card(self) -> Json:
        """Return its data card: what was published, and what holds of it."""
        return self._ready()._api.card(self.id)

    def _save(self, file: Hashing) -> None:
        self._ready()._api.save_result(self.id, file)
        file.check(self.facts.output_sha256)

    def _ready(self) -> Self:
        """Return the job as it stands now. Raises Refused or JobFailed if it can't succeed."""
        if self.state not in watching.ENDED:
            self.refresh()
        return self._checked()

    def artifacts(self) -> list[Artifact]:
        """Return what it released besides texts; jobs that read only these are free."""
        return [read(Artifact, artifact) for artifact in self._api.artifacts(job=self.id)]

    # --- showing
    # --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        facts = self.facts
        return (
            f"<Job {facts.id}: {facts.mechanism} on {facts.dataset}, "
            f"{watching.state_text(self.document)}>"
        )

    def _repr_html_(self) -> str:
        facts = self.facts
        epsilon = (
            None
            if facts.epsilon_alone is None
            else f"{up(facts.epsilon_alone, 6):.6g} at δ {up(facts.delta or 0, 6):g}"
        )
        table = facts_html(
            f"Job {facts.id}",
            (
                ("state", watching.state_text(self.document)),
                ("dataset", facts.dataset),
                ("mechanism", facts.mechanism),
                ("model", facts.model),
                ("ε alone", epsilon),
                ("progress", watching.amount_text(self.document)),
                ("by", facts.analyst),
                ("purpose", facts.purpose or None),
            ),
        )
        return table + (
            lines_html(Refused(self.document).lines()) if self.state == "refused" else ""
        )


def _display() -> Any:
    """Return a bar on standard error or in a notebook; lines where nobody looks."""
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    line: Callable[[str], None] = lambda text: print(text, file=sys.stderr)  # noqa: E731
    return watching.shown(console, line)
