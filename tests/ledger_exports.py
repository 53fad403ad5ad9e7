"""Exports made by hand: an honest ledger of people, terms and jobs, and its edits with all hashes
made anew.

That is what the owner of a database can do: change any entry, rehash everything after it, and state
the sums that follow. `exchequer verify` has only the rules to go by.
"""

import copy
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import ExchequerError
from accountant.core.ledger import commitments, export_formats
from accountant.core.ledger.accounts import demand, entry_part
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import GENESIS, EntryKind, canonical, digest
from accountant.core.ledger.lineage import of_artifacts, of_output, of_version
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.reservations import read_event
from accountant.core.ledger.reversals import TwoPeople, reversal_body
from accountant.core.ledger.rules import TERMS as TERMS_STATED
from accountant.core.ledger.rules import policy_body
from accountant.core.privacy.events import FREE, Event, from_releases, releases
from accountant.core.privacy.price import Terms

DATASET = "letters"
TERMS = Terms(delta=1e-6, public_size=1000, labels=("praise", "blame"))
VECTORS = {"vectors": "a" * 64}
STATED = {
    "unit_column": None,
    "neighbours": "add-remove",
    "max_records_per_unit": 1,
    "public_size": 1000,
    "labels": ["praise", "blame"],
    "groups": [],
}
#: What a REGISTER states of a version that was found right.
FILES = {"files": 1, "bytes": 5, "sha256": "d" * 64, "list": [["letters.csv", 5, "e" * 64]]}
LAYOUT = {
    "uri": "/data/letters.csv",
    "text_template": "{text}",
    "label_column": "label",
    "group_column": None,
    "secret_column": None,
    "secrets": None,
}
POLICY = {
    "auto_approve_epsilon": "0",
    "solo": False,
    "mechanisms": [],
    "analysts": [],
    "stewards": [],
    "auditors": [],
    "departed_analysts": False,
    "models": [],
    "share_artifacts": False,
    "secret_jobs": False,
    "approval_days": None,
    "analyst_epsilon": None,
    "project_epsilon": None,
    "stated_charges_epsilon": None,
    "signed_charges_epsilon": None,
    "shared_epsilon": None,
    "release_start": None,
    "release_months": None,
    "shares": [],
    "share_by_project": False,
    "wait_for_release": False,
    "runners": [],
    "two_people": True,
    "charge_each_attempt": False,
    "time_limit_seconds": None,
    "results_every_seconds": None,
    "signed": [],
    "signers": [],
}
#: Kinds that hold the rules of a dataset, and move no balances.
RULES = ("REGISTER", "POLICY")


def name_of(job: str) -> str:
    """The UUID of a job of this name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, job))


def output_of(job: str) -> str:
    """The SHA-256 of what a job of this name published."""
    return hashlib.sha256(job.encode()).hexdigest()


def two(proposer: str = "sam", confirmer: str = "tom") -> dict[str, str]:
    """What an entry says of the two people who made it."""
    return TwoPeople(proposer, "more is needed", confirmer, "seen").to_json()


@dataclass
class Line:
    """One entry in plain values; its place and its hashes follow when it is written."""

    kind: str
    actor: str
    job: str | None
    body: dict[str, Any]
    at: str
    #: Fields of the document as they are, whatever would follow.
    raw: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """Entries that add up, one after the other."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.replay = Replay()

    def add(self, kind: str, job: str | None, body: Mapping[str, Any], actor: str) -> None:
        at = f"2026-03-01T09:{len(self.lines):02}:00.000000Z"
        job = None if job is None else name_of(job)
        self.lines.append(Line(kind, actor, job, copy.deepcopy(dict(body)), at))
        if kind not in RULES:
            self.replay.apply(EntryKind(kind), job, body)

    def register(self, version: int | None = None, **terms: Any) -> None:
        read = {} if version is None else {"data": FILES, "layout": LAYOUT}
        self.add(
            "REGISTER", None, {"terms": {**STATED, **terms}, "version": version, **read}, "sam"
        )

    def policy(self, people: Mapping[str, str] | None = None, **changed: Any) -> None:
        actor = "sam" if people is None else people["confirmed_by"]
        self.add("POLICY", None, {"policy": {**POLICY, **changed}, **(people or {})}, actor)

    def allow(
        self, epsilon: object = "10", people: Mapping[str, str] | None = None, **others: Any
    ) -> None:
        body = allow_body(self.replay.books.account, epsilon, "1e-6", "as planned", **others)
        self.add("ALLOW", None, {**body, **(people or {})}, "sam" if people is None else "tom")

    def reserve(
        self,
        job: str,
        mechanism_id: str = "private-prediction",
        *,
        actor: str = "ana",
        approval: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> Event:
        """A RESERVE as the service writes it, approved by sam unless it is free; returns its
        event.
        """
        mechanism = mechanisms.get(mechanism_id)
        parsed = mechanism.parse(parameters, TERMS)
        asked = demand(mechanism.price(parsed, TERMS))
        free = not releases(asked.dp) and not asked.ex_post and asked.secret is None
        stated = (
            {"by": "sam", "reason": "within the plan"}
            if approval is None and not free
            else approval
        )
        body = reserve_body(
            self.replay.books.account,
            mechanism_id,
            mechanism.recorded(parsed),
            TERMS,
            asked.dp,
            model={"name": "small", "sha256": "c" * 64} if mechanism.uses_model else None,
            approval=stated,
            others=entry_part(self.replay.books.accounts, asked),
            source=of_version(1) if source is None else source,
        )
        self.add("RESERVE", job, body, actor)
        return asked.dp

    def commit(self, job: str, event: Event, outcome: str = "succeeded", **others: Any) -> None:
        done = outcome == "succeeded"
        output = output_of(job) if done else None
        live = self.replay.held(job)
        held = None if live is None else live.costs
        account = self.replay.books.account
        body = commit_body(account, event, outcome, 1, output, held=held, **others)
        self.add("COMMIT", job, body, "worker-1")

    def void(self, job: str) -> None:
        body = {
            "outcome": "cancelled",
            "reason": "cancelled before a worker took it",
            "read": False,
        }
        self.add("VOID", job, body, "ana")

    def reverse(self, job: str) -> None:
        """Two people charge a job for all that was reserved."""
        documents = written(self.lines)[0]
        own = [each for each in documents if each["job"] == name_of(job)]
        event = read_event(opened(own[0])["body"]["event"])
        people = TwoPeople("sam", "the meter was wrong", "tom", "agreed")
        body = reversal_body(self.replay.books.accounts, own[0], own[-1], event, 0, people)
        self.add("REVERSAL", job, body, "tom")


def fewer(event: Event) -> Event:
    """Half of the releases of an event."""
    return from_releases(
        type(releases(event))({leaf: count // 2 for leaf, count in releases(event).items()})
    )


def honest() -> Ledger:
    """A ledger with every kind of entry."""
    ledger = Ledger()
    ledger.register()
    ledger.policy()
    ledger.register(version=1)
    ledger.allow(people=two())
    event = ledger.reserve("early", tokens_per_batch=40, batches_per_label=1)
    ledger.commit("early", fewer(event))
    ledger.commit("count", ledger.reserve("count", "noisy-count", epsilon=0.2))
    ledger.commit(
        "lost", ledger.reserve("lost", tokens_per_batch=10, batches_per_label=1), "failed"
    )
    ledger.reserve("void", tokens_per_batch=10, batches_per_label=1)
    ledger.void("void")
    vectors = ledger.reserve("vectors", "epsvec", epsilon=0.3)
    kinds = [
        {"name": name, "kind": "vectors", "sha256": sha256} for name, sha256 in VECTORS.items()
    ]
    ledger.commit("vectors", vectors, artifacts=kinds)
    vectors_job = name_of("vectors")
    ledger.reserve(
        "reuse", "epsvec", source=of_artifacts(vectors_job, VECTORS), from_job=vectors_job
    )
    ledger.commit("reuse", FREE, read=False)
    early = name_of("early")
    public = {"public": {"corpus": {"kind": "corpus", "name": "novels", "sha256": "d" * 64}}}
    ledger.reserve(
        "judged",
        "evaluation",
        source={**of_output(early, output_of("early")), **public},
        from_job=early,
        corpus="novels",
        metrics="lengths",
    )
    ledger.commit("judged", FREE, read=False)
    ledger.reverse("early")
    ledger.allow("12", people=two())
    ledger.policy(analysts=["ana", "sam"], auto_approve_epsilon="0")
    ledger.reserve("live", tokens_per_batch=5, batches_per_label=1)
    ledger.policy(two(), analysts=["ana", "sam"], solo=True)
    ledger.reserve("own", actor="sam", tokens_per_batch=5, batches_per_label=1)
    return ledger


def rules(terms: Terms, **policy: Any) -> list[tuple[EntryKind, dict[str, Any]]]:
    """The entries with which a ledger begins: terms, version 1 of the data, and a policy that asks
    little.
    """
    stated = {"groups": [], **terms.to_json(), "unit_column": None}
    registered = {"terms": {name: stated[name] for name in TERMS_STATED}}
    open_ = Policy(auto_approve_epsilon="1000000", **policy)
    return [
        (EntryKind.REGISTER, {**registered, "version": None}),
        (EntryKind.REGISTER, {**registered, "version": 1, "data": FILES, "layout": LAYOUT}),
        (EntryKind.POLICY, policy_body(open_)),
    ]


# --- writing ------------------------------------------------------------------------------------


def written(
    lines: Iterable[Line], dataset: str = DATASET
) -> tuple[list[dict[str, Any]], list[str]]:
    """The documents of entries and their hashes, numbered, chained and quoted as they stand now."""
    documents: list[dict[str, Any]] = []
    hashes: list[str] = []
    for line in lines:
        body = dict(line.body)
        if line.kind == "REVERSAL":  # what it quotes was forged before it: quoted as it is now
            own = [each for each in documents if each["job"] == line.job]
            for name in ("reserve", "corrects"):
                same = [each for each in own if each["kind"] == body[name]["kind"]]
                body[name] = same[-1] if same else body[name]
        plain = {
            "version": 2,
            "dataset": dataset,
            "seq": len(documents) + 1,
            "kind": line.kind,
            "at": line.at,
            "actor": line.actor,
            "job": line.job,
            "body": body,
            "previous": hashes[-1] if hashes else GENESIS,
            **line.raw,
        }
        secret = hashlib.sha256(str(len(documents)).encode()).digest()
        document = commitments.sealed(plain, secret)
        try:
            hashes.append(digest(document))
        except ValueError:  # no canonical form, so no hash
            hashes.append("f" * 64)
        documents.append(document)
    return documents, hashes


def export(lines: Iterable[Line], public: bool = False, dataset: str = DATASET) -> list[str]:
    """The lines of an export in JSON Lines, with the totals that its entries add up to where they
    do.
    """
    documents, hashes = written(lines, dataset)
    replay = Replay()
    for document in documents:
        if document["kind"] in RULES:
            continue
        try:
            replay.apply(EntryKind(document["kind"]), document["job"], opened(document)["body"])
        except (ExchequerError, ValueError, TypeError, KeyError, AttributeError):
            break  # it does not add up: whatever is stated
    claimed = export_formats.header(
        dataset, len(documents), hashes[-1], replay.books, replay.live_count, public=public
    )
    rows = [export_formats.json_header(claimed)]
    for document, hashed in zip(documents, hashes, strict=True):
        shown = commitments.hidden(document) if public else document
        try:
            rows.append(export_formats.json_row(hashed, canonical(shown).decode()))
        except ValueError:
            rows.append(json.dumps({**shown, "hash": hashed}) + "\n")
    return rows
