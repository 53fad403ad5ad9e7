"""The sources of jobs: a version of the data, what earlier jobs released, or public things.

After release everything is free: a job that reads only artifacts costs nothing, nor does a public
job. Its RESERVE names the earlier job and the artifacts' hashes; that job's COMMIT named the same
hashes when it released them. The two are compared here.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import VerificationFailed
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.reservations import read_event
from accountant.core.privacy.events import spends


def of_version(number: int) -> dict[str, Any]:
    """Return the source of a job that reads records: the version number of the dataset."""
    return {"version": number}


def of_artifacts(job: str, hashes: Mapping[str, str]) -> dict[str, Any]:
    """Return the source of a job that reads artifacts: the job that released them, and their
    SHA-256 by name.
    """
    return {"job": job, "artifacts": dict(hashes)}


def of_output(job: str, sha256: str) -> dict[str, Any]:
    """Return the source of a job that reads the published texts of another."""
    return {"job": job, "output": sha256}


def output_key(job: str, sha256: str) -> bytes:
    """16 bytes that stand for a job and what it published."""
    return hashlib.sha256(f"{job} {sha256}".encode()).digest()[:16]


def is_free(body: Mapping[str, Any]) -> bool:
    """Return whether a RESERVE's job is charged nothing."""
    return "ex_post" not in body and "secret" not in body and not spends(read_event(body["event"]))


def _is_public(body: Mapping[str, Any]) -> bool:
    """Return whether the job's mechanism reads public things only."""
    mechanism = mechanisms.find(body.get("mechanism"))
    return mechanism is not None and mechanism.public


def jobs_read(body: Mapping[str, Any]) -> set[str]:
    """Return the jobs of the same dataset whose releases a RESERVE's job reads."""
    source = body["source"]
    named = [source, *source.get("sources", {}).values()]
    return {each["job"] for each in named if "job" in each and "dataset" not in each}


def check_named(body: Mapping[str, Any]) -> None:
    """Raise VerificationFailed unless what a RESERVE's job reads is what its parameters name."""
    parameters, source = body["parameters"], body["source"]
    if len(source) == 1 and "version" in source:
        return
    named = {"from_job": source["job"]} if "job" in source else {}
    named |= {field: each["job"] for field, each in source.get("sources", {}).items()}
    named |= {field: each["name"] for field, each in source.get("public", {}).items()}
    for field, read in named.items():
        if parameters.get(field) != read:
            own = parameters.get(field)
            raise VerificationFailed(
                f"its parameters name {own!r:.80} as {field}, and it reads {read!r:.80}"
            )


@dataclass(frozen=True)
class PublicRelease:
    """What a public job released: its mechanism, and the SHA-256 of its artifacts by name."""

    mechanism: str
    artifacts: Mapping[str, str]


@dataclass(frozen=True)
class Elsewhere:
    """What a job reads of a public job of another dataset, which that dataset's ledger proves."""

    seq: int
    dataset: str
    job: str
    read: PublicRelease

    def __str__(self) -> str:
        return (
            f"not provable: that what entry {self.seq} reads of {self.dataset!r:.80} is public: "
            "verify an "
            "export of that dataset together with this one"
        )

    def check(self, releases: Mapping[str, PublicRelease]) -> None:
        """Raise VerificationFailed unless these are among the releases of the other dataset's
        public jobs.
        """
        made = releases.get(self.job)
        if (
            made is None
            or made.mechanism != self.read.mechanism
            or not self.read.artifacts.items() <= made.artifacts.items()
        ):
            raise VerificationFailed(
                f"it reads artifacts of {self.dataset!r:.80} that no public job there released",
                self.seq,
            )


class Lineage:
    """Checks, entry by entry, that jobs read only what was released before, and that nothing else
    is free.

    Holds the hashes of released artifacts, not the entries.
    """

    def __init__(self) -> None:
        self._released: dict[str, dict[str, str]] = {}
        self._ex_post: set[str] = set()
        self._unread: set[str] = set()  # free jobs that have not ended
        self._public: dict[str, str] = {}  # mechanisms of public jobs that have not ended
        self.public_releases: dict[str, PublicRelease] = {}
        self.elsewhere: list[Elsewhere] = []
        self._outputs: set[bytes] = set()  # 16 bytes for each: a ledger may have a million jobs

    def add(self, entry: Entry) -> None:
        """Check one more entry. Raises VerificationFailed if it contradicts an earlier one."""
        job = entry.job or ""
        if entry.kind is EntryKind.RESERVE:
            self._reserve(job, entry.body)
            self._note_elsewhere(entry)
        elif entry.kind is EntryKind.COMMIT:
            self._commit(job, entry.body)
        elif entry.kind is EntryKind.VOID:
            self._unread.discard(job)
            self._public.pop(job, None)

    def _reserve(self, job: str, body: Mapping[str, Any]) -> None:
        if "ex_post" in body:
            self._ex_post.add(job)
        source, free = body["source"], is_free(body)
        if free:
            self._unread.add(job)
        if _is_public(body):
            self._public[job] = body["mechanism"]
            if not free or source.keys() & {"version", "output", "artifacts"}:
                raise VerificationFailed(
                    "its mechanism reads public things only, and it says otherwise"
                )
        elif free and "output" not in source and "artifacts" not in source:
            raise VerificationFailed(
                "it is charged nothing, and does not read what was released before"
            )
        for each in source.get("sources", {}).values():
            if "dataset" in each:
                self._reads_elsewhere(each)
            else:
                self._reads_artifacts(each)
        if "output" in source:
            self._reads_output(source, body)
        if "artifacts" not in source:
            return
        if not free:
            raise VerificationFailed("it reads artifacts only, and is charged")
        self._reads_artifacts(source)

    def _reads_artifacts(self, source: Mapping[str, Any]) -> None:
        released = self._released.get(source["job"], {})
        if not source["artifacts"] or not source["artifacts"].items() <= released.items():
            raise VerificationFailed("it reads artifacts that no job before it released")

    def _reads_elsewhere(self, source: Mapping[str, Any]) -> None:
        """Check a public job of another dataset, whose COMMIT stands in that dataset's ledger."""
        if not source["artifacts"] or not _is_public(source):
            raise VerificationFailed(
                "it reads artifacts of another dataset whose mechanism is not public"
            )

    def _note_elsewhere(self, entry: Entry) -> None:
        """Keep what the ledgers of other datasets have to prove."""
        for each in entry.body["source"].get("sources", {}).values():
            if "dataset" not in each:
                continue
            if each["dataset"] == entry.dataset:
                raise VerificationFailed("it names its own dataset as another")
            read = PublicRelease(each["mechanism"], each["artifacts"])
            self.elsewhere.append(Elsewhere(entry.seq, each["dataset"], each["job"], read))

    def _reads_output(self, source: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """Check a job that reads an output. The output was published whole, so reading it is
        free.
        """
        if not is_free(body):
            raise VerificationFailed("it reads a published output only, and is charged")
        if output_key(source["job"], source["output"]) not in self._outputs:
            raise VerificationFailed("it reads an output that no job before it published")

    def _commit(self, job: str, body: Mapping[str, Any]) -> None:
        if job in self._unread and body["read"]:
            raise VerificationFailed("it was charged nothing, and records were read")
        self._unread.discard(job)
        if body["output_sha256"] is not None:
            self._outputs.add(output_key(job, body["output_sha256"]))
        left = body.get("artifacts", [])
        if left and (body["outcome"] != "succeeded" or job in self._ex_post):
            raise VerificationFailed("it releases artifacts of a job that may leave none")
        public = self._public.pop(job, None)
        if left:
            self._released[job] = {each["name"]: each["sha256"] for each in left}
        if left and public is not None:
            self.public_releases[job] = PublicRelease(public, self._released[job])
