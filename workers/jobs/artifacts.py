"""Artifacts on their way out and in: drafts beside their attempt's texts, checked when read
again.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from accountant.core.errors import DataError
from accountant.results import Changed, Results
from accountant.transactions.artifacts import Stored
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output
from workers.interface import Artifact, Count, Released, Text
from workers.jobs import staging
from workers.jobs.staging import Drafts


def write(
    drafts: Drafts, claim: Claim, room: int, items: Callable[[], Iterable[Text | Count | Artifact]]
) -> Output:
    """Stage a runner's results: texts as JSON Lines in one draft, artifacts in others.

    `items` is called when the draft of texts is open and has `room` in bytes: no record is read for
    an output that can't be written. Raises Unwritable then.
    """
    stored: list[Stored] = []
    name = staging.name_of(claim)
    with drafts.create(name, room, staging.SEND_SECONDS) as file:
        sha256 = staging.write(file, _texts(drafts, claim, items(), stored))
    return Output(name, sha256, tuple(stored))


def _texts(
    drafts: Drafts, claim: Claim, items: Iterable[Text | Count | Artifact], stored: list[Stored]
) -> Iterator[dict[str, Any]]:
    for item in items:
        if not isinstance(item, Artifact):
            yield item.to_json()
            continue
        if any(item.name == text.name for text in stored):
            raise ValueError(f"two artifacts of one job are called {item.name!r}")
        name = staging.name_of(claim, f"artifact{len(stored)}")
        with drafts.create(name, send_seconds=staging.SEND_SECONDS) as file:
            file.write(item.content)
        sha256, size = hashlib.sha256(item.content).hexdigest(), len(item.content)
        stored.append(Stored(item.name, item.kind, item.media_type, sha256, size, name))


def read(results: Results, hashes: Mapping[str, str]) -> dict[str, Released]:
    """Return the artifacts with these SHA-256, by name. Raises DataError if bytes are not those of
    the ledger.

    Nothing is parsed before a file is known to be the one released.
    """
    contents = {}
    for name, sha256 in hashes.items():
        try:
            with results.open(sha256) as file:
                content = file.read()
        except Changed:
            raise DataError(
                f"the artifact {name!r} is not what was released: its bytes changed"
            ) from None
        except OSError:
            raise DataError(f"the artifact {name!r} is not where it was published") from None
        contents[name] = Released(name, content)
    return contents
