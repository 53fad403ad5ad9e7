"""A service with a log outside its database, and backups of that database which can be restored."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import make_url, text

from accountant.core.transparency.witnesses import LogSigner
from accountant.database import connect, logging_to
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import publish_log
from accountant.ledger_log.signed import SignedPlaces
from accountant.transactions import recovery
from tests.conftest import as_application, as_superuser, fresh_database
from tests.object_stores import Prefix
from tests.support import Bench


class Ground:
    """One database, the place of its log, and a bench whose jobs are admitted without a
    steward.
    """

    def __init__(self, servers, owner_url: str, folder: Path, place: Prefix | None = None) -> None:
        self._servers, self.owner_url = servers, owner_url
        #: Where the log is: a folder, or a place in an object store.
        self.folder: Path | Prefix = folder if place is None else place
        #: What is published of the log, and what its signer remembers.
        self.public: Path | Prefix = self.folder.with_name("public-log")
        self.memory = folder.with_name("signed-logs")
        self.name = make_url(owner_url).database
        self._copies: list[str] = []
        self.restart()
        self.renew()

    def renew(self) -> None:
        """A dataset of its own for the next test, with its people and its model."""
        self.bench = Bench(self.engine, policy={"auto_approve_epsilon": "10"})
        self.bench.allow()
        self.bench.warm()

    def heal(self) -> None:
        """As after a recovery: the database is what its log holds."""
        self.restart()
        for plan in recovery.plan(self.engine):
            recovery.recover(self.engine, plan, lambda *_: None)
        for copy in self._copies:
            self._drop(copy)
        self._copies = []

    def restart(self, folder: Path | Prefix | None = None) -> None:
        """A new process: another engine, and the log read anew; `folder`: another one."""
        self.stop()
        url = as_application(self._servers, self.owner_url)
        signed = SignedPlaces(self.public, self.memory)
        self.engine = logging_to(connect(url), self.folder if folder is None else folder, signed)
        if hasattr(self, "bench"):
            self.bench.engine = self.engine

    def stop(self) -> None:
        if hasattr(self, "engine"):
            self.engine.dispose()

    def publish(self) -> None:
        """As the signer does it."""
        signer = LogSigner(self.memory, "exchequer.example/log", b"p" * 32)
        publish_log(log_at(self.folder), self.public, signer, {})

    def copy_folder(self, folder):
        """A copy of a folder, or of a place in a store, as it is now."""
        copy = folder.with_name(f"copy-{uuid.uuid4().hex[:12]}")
        copied(folder, copy)
        return copy

    def restore_folder(self, folder, copy) -> None:
        """A folder as it was."""
        removed(folder)
        copied(copy, folder)

    def backup(self) -> str:
        """A copy of the database as it is now; its log is not part of it."""
        copy = f"copy_{uuid.uuid4().hex[:12]}"
        self.stop()
        self._copy(self.name, copy)
        self._copies.append(copy)
        return copy

    def restore(self, copy: str) -> None:
        """The database as it was; the service goes on as the process that it was."""
        self.stop()
        self._drop(self.name)
        self._copy(copy, self.name)

    def _drop(self, name: str | None) -> None:
        with as_superuser(self._servers) as admin:
            admin.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))

    def _copy(self, source: str | None, target: str | None) -> None:
        owner = make_url(self.owner_url).username
        with as_superuser(self._servers) as admin:
            admin.execute(
                text(f"CREATE DATABASE {target} OWNER {owner} TEMPLATE {source} STRATEGY file_copy")
            )

    def execute(self, statement: str, **values: object) -> None:
        """As the owner of the tables, past the service."""
        engine = connect(self.owner_url)
        with engine.begin() as connection:
            connection.execute(text(statement), values)
        engine.dispose()

    def end(self) -> None:
        self.stop()
        for copy in self._copies:
            self._drop(copy)


def copied(place: Path | Prefix, copy: Any) -> None:
    place.copy(copy) if isinstance(place, Prefix) else shutil.copytree(place, copy)


def removed(place: Path | Prefix) -> None:
    place.remove() if isinstance(place, Prefix) else shutil.rmtree(place)


@contextmanager
def ground(servers, folder: Path, place: Prefix | None = None) -> Iterator[Ground]:
    with fresh_database(servers) as owner_url:
        made = Ground(servers, owner_url, folder, place)
        try:
            yield made
        finally:
            made.end()


def accounts(engine, dataset: str) -> dict:
    """The books in a dataset's row, with the head of its chain."""
    query = text(
        "SELECT a.* FROM accounts a JOIN datasets d ON d.id = a.dataset_id WHERE d.name = :name"
    ).bindparams(name=dataset)
    with engine.connect() as connection:
        return dict(connection.execute(query).one()._mapping)
