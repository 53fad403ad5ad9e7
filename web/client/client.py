"""The service as typed objects; `Client.api` has every route with its JSON documents."""

from collections.abc import Iterator
from typing import Any, Self

from accountant.schema.jobs import Artifact
from accountant.schema.models import Corpus, Mechanism, Model
from accountant.schema.people import Me
from web.client import profiles
from web.client.api import Api
from web.client.datasets import Dataset
from web.client.facts import facts_html, read
from web.client.jobs import Job
from web.client.transport import ATTEMPTS


class Client:
    """Talks to one server as one person. Close it, or use it in a `with` statement.

    Reads and submissions are repeated while the server is away or busy; a submission has an
    idempotency key, so that it is one job however often it is sent. Raises the errors of
    web.client.errors.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        attempts: int = ATTEMPTS,
    ):
        self.api = Api(url, token, timeout_seconds=timeout_seconds, attempts=attempts)

    @property
    def url(self) -> str:
        """The server's address."""
        return self.api.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self.api.close()

    def whoami(self) -> Me:
        """Return the token's owner, and what the token may do."""
        return read(Me, self.api.me())

    # --- data
    # -----------------------------------------------------------------------------------------

    def datasets(self, **wanted: Any) -> list[Dataset]:
        """Return the catalogue. `wanted`: q (name, description, labels), mechanism, open."""
        return [Dataset(self.api, row) for row in self.api.datasets(**wanted)]

    def dataset(self, name: str) -> Dataset:
        """Return one dataset. Raises NotFound, with the names that are close."""
        return Dataset(self.api, self.api.dataset(name))

    def add_dataset(self, name: str, uri: str | None, **declaration: Any) -> Dataset:
        """Register a dataset, as a steward; a worker then checks its data.

        uri: None if the data never comes here. Then only charges are made.
        declaration: label_column, labels, text_template, unit_column, max_records_per_unit,
        neighbours, public_size, description, policy.
        """
        return Dataset(self.api, self.api.add_dataset({"name": name, "uri": uri, **declaration}))

    def models(self) -> list[Model]:
        """Return registered models."""
        return [read(Model, model) for model in self.api.models()]

    def corpora(self) -> list[Corpus]:
        """Return registered public corpora."""
        return [read(Corpus, row) for row in self.api.corpora()]

    def mechanisms(self) -> list[Mechanism]:
        """Return the mechanisms that can be asked for, with the JSON Schema of the parameters."""
        return [read(Mechanism, mechanism) for mechanism in self.api.mechanisms()]

    # --- jobs
    # -----------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """Return one job by its id."""
        return Job(self.api, self.api.job(job_id))

    def jobs(self, **wanted: str | None) -> Iterator[Job]:
        """Return jobs that you may see, newest first, read a page at a time.

        wanted: dataset, state, mechanism, analyst, since, until (a day, or a time with its offset).
        """
        return (Job(self.api, row) for row in self.api.all_jobs(**wanted))

    def artifacts(self, *, job: str | None = None, dataset: str | None = None) -> list[Artifact]:
        """Return everything that jobs released besides texts, newest first."""
        return [
            read(Artifact, artifact) for artifact in self.api.artifacts(job=job, dataset=dataset)
        ]

    # --- showing
    # --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Client({self.url!r})"  # never the token

    def _repr_html_(self) -> str:
        return facts_html("Exchequer", (("server", self.url),))


def connect(profile: str | None = None) -> Client:
    """Return a client as `exchequer login` left it: the profile named, that of EXCHEQUER_PROFILE,
    or the one in use.

    Raises NoSuchProfile. Where nobody signed in, the first request raises NotSignedIn and says what
    to do.
    """
    chosen = profiles.chosen(profile)
    return Client(chosen.url, chosen.token)
