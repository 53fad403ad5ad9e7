"""A dataset's report, to be printed and kept: what was allowed, spent, refused and corrected, and
whether the ledger holds. Reads only.

Lists are bounded, and say of how many they show the newest: a report of a million entries has the
length of one of a hundred. A public one leaves out what a public export hides: names, reasons, and
what ex-post jobs really cost.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, literal, select, union_all

from accountant import tables
from accountant.core.ledger.accounts import Settlement
from accountant.core.mechanisms.base import pure
from accountant.core.privacy.events import from_json
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import one_moment, reading
from accountant.identities.actor import Actor
from accountant.queries import audit_log, datasets, integrity, ledgers, spending
from accountant.queries import jobs as job_queries
from accountant.queries.dataset_rows import dataset_row
from accountant.schema.base import documents
from accountant.schema.ledgers import Report

#: How many of a list are shown, and up to how many entries the whole ledger is verified for a
#: report.
NEWEST = 50
MOST_VERIFIED = 20_000

#: Every term that the report uses, in one sentence.
DEFINITIONS = {
    "(ε, δ)": "Whatever the jobs of the dataset publish, the step from the data to a neighbour "
    "changes the probability of any outcome by a factor of at most e^ε, and by δ beyond that.",
    "privacy unit": "Whose presence is protected: one record, or everything of one value of a "
    "column.",
    "neighbours": "add-remove compares the data with the same data without one unit, replace-one "
    "with the same data where one unit is another.",
    "filter": "An account that adds up what jobs cost in its own measure and has a limit and a "
    "share of δ; a job is admitted while at least one filter still fits everything so far and the "
    "job.",
    "reserved": "Set aside for a job that is admitted and not settled yet; it counts as used.",
    "spent": "Charged to jobs that ended, at what they released or, where they failed after "
    "reading began, at all that was reserved.",
    "closed": "A filter that could not price a job decides nothing any more, unless that job is "
    "voided.",
    "ALLOW": "An entry that sets what is allowed.",
    "RESERVE": "An entry that sets a job's price aside before it may run.",
    "COMMIT": "An entry that charges what a job released, never more than was reserved; only an "
    "ex-post cost that is settled as realized may pass its cap.",
    "VOID": "An entry that gives a reservation back, possible only before private data was read.",
    "REGISTER": "An entry that states the terms of the data, or a version of it that was found "
    "right.",
    "POLICY": "An entry that states who may ask, who must approve and what takes two people.",
    "REVERSAL": "An entry by which two people raise a charge; it lowers none.",
    "LOSS": "An entry by which two people say that entries are lost; all that was left is charged.",
    "ex-post cap": "A planning figure for jobs whose cost depends on the data; it is neither a "
    "bound nor a mean of what they really cost.",
    "hash": "The SHA-256 of an entry, which covers the hash of the entry before it, so that no "
    "entry can be changed without changing all that follow.",
    "checkpoint": "A statement signed by the service of what the ledger was at one entry: whoever "
    "keeps it can show that the entries up to it were changed, if they ever are.",
}


def build(
    engine: Engine, name: str, viewer: Actor, *, public: bool = False, verify: bool = True
) -> Report:
    """Return a dataset's report of one moment (stewards, auditors). Raises NotFound, NotPermitted.

    Args:
        verify: replay the ledger too, which takes as long as it has entries.
    """
    with one_moment(engine), reading(engine) as connection:
        row = dataset_row(connection, name, viewer)
        return _built(engine, connection, row, viewer, public, verify)


def _built(
    engine: Engine, connection: Connection, row: Row[Any], viewer: Actor, public: bool, verify: bool
) -> Report:
    name = row.name
    facts = datasets.dataset(engine, name, viewer).document()
    counted = _counts(connection, row.id)
    newest = documents(ledgers.newest(connection, row.id, ("ALLOW", "REVERSAL"), NEWEST))
    report = {
        "dataset": _public_facts(facts) if public else facts,
        "public": public,
        "made_at": datetime.now(UTC).isoformat(),
        "made_by": None if public else viewer.name,
        "entries": row.chain_seq,
        "head": row.chain_head,
        "key": max(counted["key"], key=counted["key"].__getitem__, default=None),
        "by_kind": counted["entries"],
        "jobs_by_state": counted["jobs"],
        "spending": _spending(engine, name, viewer, public),
        "policies": audit_log.policies(connection, name, NEWEST),
        "allowances": _lines(entry for entry in newest if entry["kind"] == "ALLOW"),
        "corrections": _lines(entry for entry in newest if entry["kind"] == "REVERSAL"),
        "newest": _lines(newest),
        "releases": _releases(connection, row.id),
        "refusals": documents(ledgers.refusals(engine, viewer, dataset=name, limit=NEWEST)),
        "realized_ex_post": None if public else _realized(counted["realized"]),
        "checkpoints": documents(ledgers.checkpoints(engine, viewer, dataset=name, limit=NEWEST)),
        "verification": _verification(engine, row, verify, public),
        "shown": NEWEST,
        "definitions": DEFINITIONS,
    }
    if public:  # without names, reasons and figures that follow from realized costs
        report = {**_without_people(report), "definitions": DEFINITIONS}
    return Report(**report)


def _spending(engine: Engine, name: str, viewer: Actor, public: bool) -> dict[str, Any]:
    """Return the use of the allowance. A public report has analysts' measures and no names."""
    document = spending.figures(engine, name, viewer, over_time=not public).document()
    if not public:
        return document
    outside = spending.figures(engine, name, Actor(uuid4(), "", frozenset())).document()
    measures = [outside_measure["name"] for outside_measure in outside["measures"]]
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for job in document["spending"]:
        key = (job["month"], job["mechanism"])
        empty = {"month": key[0], "analyst": None, "mechanism": key[1], "jobs": 0}
        row = sums.setdefault(key, {**empty, **dict.fromkeys(measures, Decimal(0))})
        for measure in ("jobs", *measures):
            row[measure] += type(row[measure])(job[measure])
    merged = [
        {key: f"{v:f}" if isinstance(v, Decimal) else v for key, v in row.items()}
        for row in sums.values()
    ]
    return {**outside, "spending": merged}


def _lines(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = ("seq", "kind", "at", "actor", "job", "job_name", "mechanism", "hash")
    return [
        {**{key: entry[key] for key in columns}, "body": _short(entry["body"])}
        for entry in islice(entries, NEWEST)
    ]


def _releases(connection: Connection, dataset_id: UUID) -> list[dict[str, Any]]:
    """Return the newest jobs that succeeded; the day says when a job was asked for."""
    jobs, users = tables.jobs, tables.users
    shown = (jobs.c.id, jobs.c.mechanism, jobs.c.purpose, jobs.c.epsilon_alone)
    query = (
        select(*shown, jobs.c.created_at, jobs.c.event, jobs.c.parameters, users.c.name)
        .join(users, users.c.id == jobs.c.analyst_id)
        .where(jobs.c.dataset_id == dataset_id, jobs.c.state == "succeeded")
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(NEWEST)
    )
    return [
        {
            "day": f"{row.created_at:%Y-%m-%d}",
            "id": str(row.id),
            "mechanism": row.mechanism,
            "analyst": row.name,
            "purpose": row.purpose,
            "epsilon_alone": row.epsilon_alone,
            "pure": None if row.event is None else pure(from_json(row.event)),
            "ex_post_cap": row.parameters.get("ex_post_cap"),
        }
        for row in connection.execute(query)
    ]


def _short(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an entry that a line of the report shows."""
    fields = (
        "version",
        "epsilon",
        "delta",
        "reason",
        "costs",
        "outcome",
        "proposed_by",
        "confirmed_by",
        "confirmation",
    )
    layout = {"layout": True} if "layout" in body else {}  # what it says is private
    return {key: body[key] for key in fields if key in body} | layout


def _counts(connection: Connection, dataset_id: UUID) -> dict[str, dict[str, int]]:
    """Return entries by kind, jobs by state, and the number and sum of realized ex-post costs.

    Beside them the keys that signed, each with the time of its introduction.
    """
    entries, jobs, realized = tables.entries, tables.jobs, tables.realized_ex_post
    keys = tables.signing_keys
    signed = func.extract("epoch", keys.c.introduced_at)
    by_kind = select(literal("entries"), entries.c.kind, func.count())
    by_state = select(literal("jobs"), jobs.c.state, func.count())
    costs = select(literal("realized"), literal("jobs"), func.count())
    amount = select(literal("realized"), literal("amount"), func.sum(realized.c.amount))
    query = union_all(
        select(literal("key"), keys.c.id, signed),
        by_kind.where(entries.c.dataset_id == dataset_id).group_by(entries.c.kind),
        by_state.where(jobs.c.dataset_id == dataset_id).group_by(jobs.c.state),
        *(
            part.select_from(realized)
            .join(jobs, jobs.c.id == realized.c.job_id)
            .where(jobs.c.dataset_id == dataset_id)
            for part in (costs, amount)
        ),
    )
    counted: dict[str, dict[str, int]] = {
        name: {} for name in ("entries", "jobs", "realized", "key")
    }
    for what, name, number in connection.execute(query):
        counted[what][name] = int(number or 0)
    return counted


def _realized(sums: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the sum of ex-post jobs' real costs, for stewards and auditors alone."""
    if not sums["jobs"]:
        return None
    return {
        "jobs": sums["jobs"],
        "epsilon": to_decimal(sums["amount"], EPSILON_UNITS),
        "note": job_queries.EX_POST_NOTE,
    }


def verdict(engine: Engine, name: str, viewer: Actor, *, public: bool = False) -> dict[str, Any]:
    """Return the report's verification alone, of one moment. Raises NotFound, NotPermitted."""
    with one_moment(engine), reading(engine) as connection:
        return _verification(engine, dataset_row(connection, name, viewer), True, public)


def _verification(engine: Engine, row: Row[Any], verify: bool, public: bool) -> dict[str, Any]:
    """Replay the ledger and report problems, unless it has more than MOST_VERIFIED entries."""
    checked = verify and row.chain_seq <= MOST_VERIFIED
    problems = integrity.check(engine, row.name) if checked else []
    if problems and public:
        problems = [f"{len(problems)} checks fail: the full report names them"]
    return {
        "checked": checked,
        "at": datetime.now(UTC).isoformat() if checked else None,
        "problems": problems,
        "most": MOST_VERIFIED,
    }


# --- for publication ----------------------------------------------------------------------------

#: Values that name people or are their words; a public export commits to them and does not show
#: them.
_PRIVATE = frozenset(
    {
        "actor",
        "analyst",
        "analysts",
        "auditors",
        "by",
        "confirmation",
        "confirmed_by",
        "job_name",
        "project",
        "proposed_by",
        "purpose",
        "reason",
        "stewards",
    }
)


#: What else a refusal by this cap tells: a steward's words, and what is left after realized costs.
_OF_REFUSALS = {"steward": frozenset({"why"}), "ex-post": frozenset({"left", "why", "largest"})}


def _public_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dataset as analysts see it: no address, no use per person, nothing realized."""
    hidden = {"versions", "text_template", "label_column", "caps"}
    shown_facts = {key: value for key, value in facts.items() if key not in hidden}
    if shown_facts["ex_post"]["settlement"] == Settlement.REALIZED:
        shown_facts["ex_post"] = {
            **shown_facts["ex_post"],
            "spent": None,
            "reserved": None,
            "left": None,
        }
        shown_facts["overdrawn"] = shown_facts["remaining"] = None
    return shown_facts


def _without_people(value: Any) -> Any:
    """Return the same with None in place of what is private, wherever it stands."""
    if isinstance(value, list):
        return [_without_people(item) for item in value]
    if not isinstance(value, dict):
        return value
    hidden = _PRIVATE | _OF_REFUSALS.get(str(value.get("cap")), frozenset())
    return {key: None if key in hidden else _without_people(part) for key, part in value.items()}
