"""Artifacts on their way out and in: staged beside their attempt's output, checked when read again.

A file is named by the lease token and the SHA-256 of its bytes: the leftovers of a lost attempt are deleted
with its output, and nothing that another attempt published is touched.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import fsspec

from accountant.core.errors import DataError
from accountant.transactions.artifacts import Stored
from accountant.transactions.settlement import Output
from workers.interface import SUFFIXES, Artifact, Count, Released, Text
from workers.jobs import staging


def write(uri: str, items: Iterable[Text | Count | Artifact]) -> Output:
    """Stage a runner's results: texts as JSON Lines at `uri`, artifacts as files beside it."""
    stored: list[Stored] = []
    output = staging.write(uri, _texts(uri, items, stored))
    return replace(output, artifacts=tuple(stored))


def _texts(
    uri: str, items: Iterable[Text | Count | Artifact], stored: list[Stored]
) -> Iterator[dict[str, Any]]:
    for item in items:
        if not isinstance(item, Artifact):
            yield item.to_json()
            continue
        if any(item.name == each.name for each in stored):
            raise ValueError(f"two artifacts of one job are called {item.name!r}")
        stored.append(_store(uri, item))


def _store(uri: str, artifact: Artifact) -> Stored:
    sha256 = hashlib.sha256(artifact.content).hexdigest()
    address = staging.artifact_uri(uri, sha256, SUFFIXES[artifact.media_type])
    with fsspec.open(address, "wb", auto_mkdir=True) as file:
        file.write(artifact.content)
    return Stored(artifact.name, artifact.kind, artifact.media_type, sha256, len(artifact.content), address)


def read(rows: Sequence[Any]) -> dict[str, Released]:
    """The artifacts in rows of `artifacts`, by name. Raises DataError if bytes are not those of the ledger.

    Nothing is parsed before a file is known to be the one released.
    """
    found = {}
    for row in rows:
        try:
            with fsspec.open(row.uri, "rb") as file:
                content = file.read(row.size + 1)
        except OSError:
            raise DataError(f"the artifact {row.name!r} is not where it was published") from None
        if hashlib.sha256(content).hexdigest() != row.sha256:
            raise DataError(f"the artifact {row.name!r} is not what was released: its bytes changed")
        found[row.name] = Released(row.name, row.kind, row.media_type, content)
    return found
