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
from accountant.core.ledger.entry_fields import kinds_read
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.reservations import read_event
from accountant.core.privacy.events import spends


def of_version(number: int) -> dict[str, Any]:
    """Return the source of a job that reads records: the version number of the dataset."""
    return {"version": number}


def of_artifacts(job: str, hashes: Mapping[str, str]) -> dict[str, Any]:
    """Return the source of a job that reads artifacts: their job, and SHA-256 by name."""
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
    return {job["job"] for job in named if "job" in job and "dataset" not in job}


def corpora_named(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return (field, name) of the public corpora that a RESERVE's job reads."""
    public = body["source"].get("public", {})
    return tuple(
        (field, corpus["name"]) for field, corpus in public.items() if corpus["kind"] == "corpus"
    )


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
            choice = parameters.get(field)
            raise VerificationFailed(
                f"its parameters name {choice!r:.80} as {field}, and it reads {read!r:.80}"
            )


def check_charged(body: Mapping[str, Any]) -> bool:
    """Check that what a RESERVE's job reads goes together with what it is charged.

    Returns whether it is charged nothing. Raises VerificationFailed.
    """
    source, free = body["source"], is_free(body)
    if _is_public(body):
        if not free or source.keys() & {"version", "output", "artifacts"}:
            raise VerificationFailed(
                "its mechanism reads public things only, and it says otherwise"
            )
    elif free and "output" not in source and "artifacts" not in source:
        raise VerificationFailed(
            "it is charged nothing, and does not read what was released before"
        )
    if not free and "output" in source:
        raise VerificationFailed("it reads a published output only, and is charged")
    if not free and "artifacts" in source:
        raise VerificationFailed("it reads artifacts only, and is charged")
    for each in source.get("sources", {}).values():
        if "dataset" in each and (not each["artifacts"] or not _is_public(each)):
            raise VerificationFailed(
                "it reads artifacts of another dataset whose mechanism is not public"
            )
    return free


# --- releases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """What a job released.

    Args:
        artifacts: the SHA-256 of each artifact by its name.
        kinds: the kind of each artifact by its name.
        corpora: the names of the public corpora that the job read.
    """

    mechanism: str
    artifacts: Mapping[str, str]
    kinds: Mapping[str, str]
    corpora: tuple[str, ...] = ()

    def holds(self, hashes: Mapping[str, str], kind: str | None = None) -> bool:
        """Return whether these artifacts are among those released, and all of `kind`."""
        return (
            bool(hashes)
            and hashes.items() <= self.artifacts.items()
            and (kind is None or all(self.kinds[name] == kind for name in hashes))
        )


class Releases:
    """What the jobs of one ledger released, COMMIT by COMMIT. Holds hashes, not entries."""

    def __init__(self) -> None:
        self.of: dict[str, Release] = {}
        self._outputs: set[bytes] = set()  # 16 bytes for each: a ledger may have a million jobs

    def add(self, job: str, reserve: Mapping[str, Any], commit: Mapping[str, Any]) -> None:
        """Take in a COMMIT. Raises VerificationFailed if its job may leave no artifacts."""
        if commit["output_sha256"] is not None:
            self._outputs.add(output_key(job, commit["output_sha256"]))
        left = commit.get("artifacts", [])
        if not left:
            return
        if commit["outcome"] != "succeeded" or "ex_post" in reserve:
            raise VerificationFailed("it releases artifacts of a job that may leave none")
        self.of[job] = Release(
            reserve["mechanism"],
            {each["name"]: each["sha256"] for each in left},
            {each["name"]: each["kind"] for each in left},
            tuple(name for _, name in corpora_named(reserve)),
        )

    def check(self, body: Mapping[str, Any]) -> None:
        """Raise VerificationFailed unless jobs of this ledger released what a RESERVE reads."""
        source = body["source"]
        if "artifacts" in source:
            source_job = self.of.get(source["job"])
            if source_job is None or source_job.mechanism != body["mechanism"]:
                raise VerificationFailed("it reads artifacts that no job before it released")
            self._check_held(source)
        if "output" in source and output_key(source["job"], source["output"]) not in self._outputs:
            raise VerificationFailed("it reads an output that no job before it published")
        for field, each in source.get("sources", {}).items():
            if "dataset" not in each:
                self._check_held(each, kinds_read(body)[field])

    def _check_held(self, source: Mapping[str, Any], kind: str | None = None) -> None:
        release = self.of.get(source["job"])
        if release is None or not release.holds(source["artifacts"], kind):
            raise VerificationFailed("it reads artifacts that no job before it released")


@dataclass(frozen=True)
class Elsewhere:
    """What a job reads of a public job of another dataset, which that dataset's ledger proves.

    Args:
        read: what the RESERVE states of it.
        kind: the kind of artifact that the job reads there.
    """

    seq: int
    dataset: str
    field: str
    read: Mapping[str, Any]
    kind: str

    def __str__(self) -> str:
        return (
            f"not provable: that what entry {self.seq} reads of {self.dataset!r:.80} is public: "
            "verify an export of that dataset together with this one"
        )

    def check(self, releases: Mapping[str, Release]) -> None:
        """Raise VerificationFailed unless the other dataset's public jobs released these."""
        release = releases.get(self.read["job"])
        if (
            release is None
            or release.mechanism != self.read["mechanism"]
            or not release.holds(self.read["artifacts"], self.kind)
        ):
            raise VerificationFailed(
                f"it reads artifacts of {self.dataset!r:.80} that no public job there released",
                self.seq,
            )


def read_elsewhere(entry: Entry) -> list[Elsewhere]:
    """Return what the ledgers of other datasets have to prove of a RESERVE."""
    readings = []
    for field, source in entry.body["source"].get("sources", {}).items():
        if "dataset" not in source:
            continue
        if source["dataset"] == entry.dataset:
            raise VerificationFailed("it names its own dataset as another")
        kind = kinds_read(entry.body)[field]
        readings.append(Elsewhere(entry.seq, source["dataset"], field, source, kind))
    return readings


class Lineage:
    """Checks, entry by entry, that jobs read only earlier releases, and nothing else is free."""

    def __init__(self) -> None:
        self.releases = Releases()
        self.elsewhere: list[Elsewhere] = []
        self._live: dict[str, tuple[bool, Mapping[str, Any]]] = {}  # jobs that have not ended

    def add(self, entry: Entry) -> None:
        """Check one more entry. Raises VerificationFailed if it contradicts an earlier one."""
        job, body = entry.job or "", entry.body
        match entry.kind:
            case EntryKind.RESERVE:
                self._live[job] = check_charged(body), body
                self.releases.check(body)
                self.elsewhere += read_elsewhere(entry)
            case EntryKind.COMMIT:
                free, reserve = self._live.pop(job, (False, {}))
                if free and body["read"]:
                    raise VerificationFailed("it was charged nothing, and records were read")
                self.releases.add(job, reserve, body)
            case EntryKind.VOID:
                self._live.pop(job, None)
