"""Rows beside the entries that state the same: what `exchequer ledger check` compares, column by
column.

    entries, checkpoints                ── their own document
    jobs, artifacts, realized_ex_post   ── the RESERVE, and the COMMIT or VOID
    datasets, dataset_versions          ── REGISTER, POLICY
    decisions                           ── ALLOW, REVERSAL
    standings                           ── the books after that entry

Columns that no entry states (a purpose, an address of a file) have nothing to be compared with.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, func, select, text

from accountant import tables
from accountant.core.ledger.books import Books
from accountant.core.ledger.hash_chain import format_time
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import read_event, reserved_columns, settled_columns
from accountant.core.ledger.rules import register_body
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE, Event, to_json
from accountant.core.privacy.pld_bounds import quoted
from accountant.tables.accounts_row import read_books

entries, jobs, datasets, versions = (
    tables.entries,
    tables.jobs,
    tables.datasets,
    tables.dataset_versions,
)

Document = Mapping[str, Any]

#: Relative difference up to which two numerically computed epsilons are one.
_SLACK = 1e-9


# --- entries and the rows of their jobs ---------------------------------------------------------


def stated(connection: Connection, dataset_id: UUID) -> Iterator[Row[Any]]:
    """Yield a dataset's entries in order, each with the rows of its job, as they are read."""
    analysts, deciders = tables.users.alias("analyst"), tables.users.alias("decider")
    released = (
        select(
            func.json_agg(
                func.json_build_object(
                    "name",
                    tables.artifacts.c.name,
                    "kind",
                    tables.artifacts.c.kind,
                    "sha256",
                    tables.artifacts.c.sha256,
                )
            )
        )
        .where(tables.artifacts.c.job_id == entries.c.job_id, entries.c.kind == "COMMIT")
        .scalar_subquery()
    )
    query: Select[Any] = (
        select(
            *(column.label(f"entry_{column.name}") for column in entries.c),
            *(column.label(f"job_{column.name}") for column in jobs.c),
            analysts.c.name.label("analyst"),
            deciders.c.name.label("decider"),
            versions.c.number.label("version"),
            versions.c.dataset_id.label("version_of"),
            tables.models.c.name.label("model"),
            tables.models.c.facts.label("facts"),
            tables.realized_ex_post.c.amount.label("realized"),
            released.label("artifacts"),
        )
        .select_from(entries)
        .outerjoin(jobs, jobs.c.id == entries.c.job_id)
        .outerjoin(analysts, analysts.c.id == jobs.c.analyst_id)
        .outerjoin(deciders, deciders.c.id == jobs.c.decided_by)
        .outerjoin(versions, versions.c.id == jobs.c.version_id)
        .outerjoin(tables.models, tables.models.c.id == jobs.c.model_id)
        .outerjoin(tables.realized_ex_post, tables.realized_ex_post.c.job_id == jobs.c.id)
        .where(entries.c.dataset_id == dataset_id)
        .order_by(entries.c.seq)
    )
    options = {"stream_results": True, "yield_per": 500}
    yield from connection.execute(query, execution_options=options)


def differing(row: Row[Any], document: Document, settles_realized: bool) -> Iterator[str]:
    """Yield the columns that an entry's plain document, hash checked, contradicts."""
    seq, body = row.entry_seq, document["body"]
    pairs = {
        "kind": (row.entry_kind, document["kind"]),
        "at": (format_time(row.entry_at), document["at"]),
        "actor": (row.entry_actor, document["actor"]),
        "job_id": (_text(row.entry_job_id), document["job"]),
        "previous": (row.entry_previous, document["previous"]),
        "seq": (seq, document["seq"]),
    }
    yield from _named(f"entry {seq}", "entries", pairs)
    if document["job"] is None:
        return
    where = f"entry {seq} and job {document['job']}"
    if document["kind"] == "RESERVE":
        yield from _named(where, "jobs", _reserved(row, document))
    elif document["kind"] == "COMMIT":
        yield from _named(where, "jobs", _settled(row, body))
        yield from _named(
            where,
            "artifacts",
            {"rows": (_released(row.artifacts), _released(body.get("artifacts")))},
        )
        if settles_realized and row.realized is not None and "ex_post" in body:
            amount = {"amount": (str(row.realized), body["ex_post"]["cap"])}
            yield from _named(where, "realized_ex_post", amount)
    elif document["kind"] == "VOID":
        yield from _named(
            where, "jobs", _settled(row, body) | {"failure": (row.job_failure, body.get("reason"))}
        )


def _reserved(row: Row[Any], document: Document) -> dict[str, tuple[Any, Any]]:
    body = document["body"]
    approval, model, event = body["approval"], body["model"], row.job_event
    pairs = _stated(row, reserved_columns(body)) | {
        "dataset_id": (row.job_dataset_id, row.entry_dataset_id),
        "analyst_id": (row.analyst, document["actor"]),
        "event": (to_json(FREE) if event is None else event, body["event"]),
        "epsilon_alone": (_same_epsilon(row, body), True),
        "model_id": (row.model, None if model is None else model["name"]),
        "decided_by": (row.decider, None if approval is None else approval["by"]),
        "queued_at": (
            None if row.job_queued_at is None else format_time(row.job_queued_at),
            document["at"],
        ),
        "created_at": (row.job_created_at <= row.entry_at, True),
    }
    if model is not None and row.facts is not None:
        pairs["model"] = (row.facts["sha256"], model["sha256"])
    if "version" in body["source"]:
        version = (body["source"]["version"], row.entry_dataset_id)
        pairs["version_id"] = ((row.version, row.version_of), version)
    return pairs


def _settled(row: Row[Any], body: Document) -> dict[str, tuple[Any, Any]]:
    began, ended = row.job_reading_began_at, row.job_finished_at
    return _stated(row, settled_columns(body)) | {
        "failure": (row.job_failure is None, body["outcome"] == "succeeded"),
        "finished_at": (ended is not None and ended >= row.entry_at, True),
        "reading_began_at": (began is not None and began <= row.entry_at, True)
        if body["read"]
        else (began, None),
    }


def _stated(row: Row[Any], columns: Document) -> dict[str, tuple[Any, Any]]:
    """Return each column of a job's row with what its entry states of it."""
    pairs = {name: (row._mapping[f"job_{name}"], value) for name, value in columns.items()}
    if "source_job_id" in pairs:
        pairs["source_job_id"] = (_text(row.job_source_job_id), columns["source_job_id"])
    return pairs


def _same_epsilon(row: Row[Any], body: Document) -> bool:
    if row.job_event is None or row.job_epsilon_alone is None:
        return row.job_event is None and row.job_epsilon_alone is None
    stated = row.job_epsilon_alone
    computed = _alone(read_event(body["event"]), body["terms"]["delta"])
    return any(abs(stated - figure) <= _SLACK * max(figure, 1e-12) for figure in computed)


@lru_cache(maxsize=4096)
def _alone(event: Event, delta: float) -> tuple[float, float]:
    """By our accountants, and with those that a server has besides (decision 0023)."""
    return epsilon_alone(event, delta)[0], quoted(event, delta)[0]


def _released(artifacts: Any) -> list[tuple[str, str, str]]:
    return sorted(
        (artifact["name"], artifact["kind"], artifact["sha256"]) for artifact in artifacts or ()
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _named(where: str, table: str, pairs: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    for column, (own, wanted) in pairs.items():
        if own != wanted:
            yield f"{where}: {table}.{column} is not what the entry states"


# --- what no entry states -----------------------------------------------------------------------


def unstated(connection: Connection, dataset_id: UUID) -> Iterator[str]:
    """Yield jobs, outputs and artifacts that no entry states, and parts that outlived a job."""
    queries = {
        "job {}: it is {}, and no entry reserves it": (
            "SELECT j.id, j.state FROM jobs j WHERE j.dataset_id = :id AND (j.state IN "
            "('queued','running','settling','succeeded','failed') OR j.output_sha256 IS NOT NULL) "
            "AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.job_id = j.id AND e.kind = 'RESERVE')"
        ),
        "job {}: it is {}, and no entry settles it": (
            "SELECT j.id, j.state FROM jobs j JOIN entries r ON r.job_id = j.id AND r.kind = "
            "'RESERVE' WHERE r.dataset_id = :id AND (j.state NOT IN "
            "('queued','running','settling') OR j.output_sha256 IS NOT NULL) AND NOT EXISTS "
            "(SELECT 1 FROM entries e WHERE e.job_id = j.id AND e.kind IN ('COMMIT','VOID'))"
        ),
        "job {}: it released the artifact {}, and no entry settles it": (
            "SELECT a.job_id, a.name FROM artifacts a JOIN jobs j ON j.id = a.job_id"
            " WHERE j.dataset_id = :id"
            " AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.job_id = j.id AND e.kind = 'COMMIT')"
        ),
        "job {}: it has a realized ex-post cost, and is {}": (
            "SELECT j.id, j.state FROM realized_ex_post x JOIN jobs j ON j.id = x.job_id"
            " WHERE j.dataset_id = :id AND j.state <> 'succeeded'"
        ),
        "job {}: its part {} outlived it": (
            "SELECT p.job_id, p.number FROM parts p JOIN jobs j ON j.id = p.job_id"
            " WHERE j.dataset_id = :id AND p.state <> 'stopped'"
            " AND j.state NOT IN ('queued','running','settling')"
        ),
    }
    for sentence, query in queries.items():
        for found in connection.execute(text(query), {"id": dataset_id}):
            yield sentence.format(*found)


# --- rules, standings, checkpoints, decisions ---------------------------------------------------


def rules(
    connection: Connection,
    row: Row[Any],
    terms: Document | None,
    policy: Policy | None,
    known: Mapping[int, Document],
) -> Iterator[str]:
    """Yield where a dataset's row and versions differ from the newest REGISTER and POLICY."""
    if terms is None or policy is None:
        yield "its ledger does not begin with its rules"
        return
    own = register_body(row)["terms"]
    for name in sorted(own.keys() | terms.keys()):
        if own.get(name) != terms.get(name):
            yield f"datasets.{name} is not what its newest REGISTER states"
    query = select(versions).where(versions.c.dataset_id == row.id, versions.c.state == "ready")
    ready = {version.number: version for version in connection.execute(query)}
    if ready.keys() != known.keys():
        yield "the versions that were found right are not those that are registered"
    for number in sorted(ready.keys() & known.keys()):
        own = register_body(row, ready[number])
        same = all(own.get(name) == known[number].get(name) for name in ("data", "layout"))
        if not same or ready[number].unit_column != row.unit_column:
            yield f"version {number} of the data is not what its REGISTER states"
    if Policy.model_validate(row.policy) != policy:
        yield "datasets.policy is not what its newest POLICY states"


def standings(connection: Connection, dataset_id: UUID) -> dict[int, Document]:
    """Return the kept rows of a dataset's account, by the entry that each stands after."""
    table = tables.standings
    query = select(table.c.seq, table.c.account).where(table.c.dataset_id == dataset_id)
    return {row.seq: row.account for row in connection.execute(query)}


def standing_problem(kept: Document, seq: int, head: str, books: Books) -> Iterator[str]:
    """Yield a kept row beside the books after its entry."""
    own = read_books(kept)
    if (kept["chain_seq"], kept["chain_head"]) != (seq, head):
        yield f"standings: the row after entry {seq} names another head"
    same = own.accounts == books.accounts and own.overdrawn == books.overdrawn
    if not same or own.history != books.history:
        yield f"standings: the balances after entry {seq} are not those of the entries"


def checkpoints(connection: Connection, dataset_id: UUID) -> Iterator[str]:
    """Yield where a checkpoint and its columns differ; signatures are checked elsewhere."""
    table = tables.checkpoints
    query = select(
        table.c.seq,
        table.c.key_id,
        table.c.at,
        text("document::jsonb -> 'checkpoint' AS stated"),
    ).where(table.c.dataset_id == dataset_id)
    for row in connection.execute(query):
        pairs = {
            "seq": (row.seq, row.stated["seq"]),
            "key_id": (row.key_id, row.stated["key"]),
            "at": (format_time(row.at), row.stated["at"]),
        }
        yield from _named(f"checkpoint at entry {row.seq}", "checkpoints", pairs)


def decisions(connection: Connection, dataset_id: UUID) -> Iterator[str]:
    """Compare accepted decisions with the entries that they became."""
    query = text(
        "SELECT p.id, p.kind, p.job_id, p.entry_seq, e.kind AS became, e.job_id AS of_job, "
        "p.reason, p.answer, a.name AS proposer, b.name AS confirmer, e.document::jsonb -> 'body' "
        "AS body FROM decisions p JOIN users a ON a.id = p.asked_by LEFT JOIN users b ON b.id = "
        "p.answered_by LEFT JOIN entries e ON e.dataset_id = p.dataset_id AND e.seq = p.entry_seq "
        "WHERE p.dataset_id = :id AND p.entry_seq IS NOT NULL"
    )
    became = {"allowance": "ALLOW", "correction": "REVERSAL", "loss": "LOSS"}
    for row in connection.execute(query, {"id": dataset_id}):
        body = {} if row.body is None else row.body
        pairs = {
            "kind": (became.get(row.kind), row.became),
            "job_id": (row.job_id, row.of_job),
            "asked_by": (row.proposer, _plain(body.get("proposed_by"))),
            "reason": (row.reason, _plain(body.get("reason"))),
            "answered_by": (row.confirmer, _plain(body.get("confirmed_by"))),
            "answer": (row.answer, _plain(body.get("confirmation"))),
        }
        yield from _named(f"decision {row.id}, entry {row.entry_seq}", "decisions", pairs)


def _plain(value: Any) -> Any:
    return value["value"] if isinstance(value, dict) and "value" in value else value
