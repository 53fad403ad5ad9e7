"""The facts of a run, from the database, the witness and the files: with SQL and arithmetic of its
own.

Nothing here calls the code that admits, charges or verifies. Costs are computed from stored events
and limits from stored allowances by the published formulas, in floating point, and compared with a
slack that is a millionth of what one job costs; balances and chains are compared exactly.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import rfc8785

from tests.faults.backups import UNDECIDED, forgotten
from tests.faults.costs import cost_of, delta_of, fraction, limit_of
from tests.faults.traffic import Answer

ENDED = {"refused", "expired", "succeeded", "failed", "cancelled"}
FILTERS = ("renyi", "gaussian", "renyi2", "basic")
PROMISES = ("overspends", "uncharged jobs", "lost jobs", "double releases", "broken chains")
GUARDS = "writes that only a constraint stopped"
SLACK = 1e-6
FREE = {"events": [], "type": "composed"}  # of a job that reads what was released

Row = dict[str, Any]


@dataclass
class Findings:
    """The findings: for each promise the cases that break it, and further remarks."""

    broken: dict[str, list[str]] = field(
        default_factory=lambda: {name: [] for name in (*PROMISES, GUARDS)}
    )
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not any(self.broken.values())


def check(
    dsn: str,
    folder: Path,
    results: Path,
    answers: Iterable[Answer],
    gone: list[tuple[float, float]],
) -> Findings:
    """Join ledger, jobs, witness, outputs and the clients' answers; `gone`: see
    tests.faults.backups.
    """
    found = Findings()
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        jobs = {str(row["id"]): row for row in connection.execute("SELECT * FROM jobs")}
        accounts = connection.execute(
            "SELECT a.*, d.name FROM accounts a JOIN datasets d ON d.id = a.dataset_id"
        ).fetchall()
        entries = connection.execute("SELECT * FROM entries ORDER BY dataset_id, seq").fetchall()
        artifacts = connection.execute("SELECT * FROM artifacts").fetchall()
        shared = connection.execute("SELECT DISTINCT job_id FROM parts WHERE number > 0").fetchall()
    chains: dict[Any, list[Row]] = defaultdict(list)
    for entry in entries:
        chains[entry["dataset_id"]].append(entry)
    for account in accounts:
        chain = chains[account["dataset_id"]]
        check_chain(found, account, chain)
        check_budget(found, account, chain)
    by_job: dict[str, list[Row]] = defaultdict(list)
    for entry in entries:
        if entry["job_id"] is not None:
            by_job[str(entry["job_id"])].append(json.loads(entry["document"]))
    witness = read_lines(folder / "witness.jsonl")
    check_charged(found, jobs, by_job, witness)
    check_lost(found, jobs, by_job, list(answers), gone)
    check_released(found, jobs, by_job, witness, results)
    check_artifacts(found, by_job, artifacts, results)
    found.broken[GUARDS] += [str(line["error"]) for line in read_lines(folder / "guards.jsonl")]
    found.counts |= Counter(entry["kind"] for entry in entries)
    found.counts |= Counter(row["state"] for row in jobs.values())
    found.counts["attempts that read data"] = len(witness)
    found.counts["artifacts published"] = len(artifacts)
    found.counts["jobs of several parts"] = len(shared)
    found.counts["jobs of artifacts"] = sum(
        is_free(body) for job in by_job.values() for body in bodies_of(job, "RESERVE")
    )
    return found


def read_lines(path: Path) -> list[Row]:
    """JSON Lines; a last line that was cut off by a kill is left out."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


# --- chains -------------------------------------------------------------------------------------


def check_chain(found: Findings, account: Row, chain: list[Row]) -> None:
    """Numbers without gaps, each hash that of its bytes, each entry naming the hash before it."""
    previous, name = "0" * 64, account["name"]
    for number, entry in enumerate(chain, 1):
        document = json.loads(entry["document"])
        same = all(
            str(_plain(document[field])) == str(entry[column])
            for field, column in (
                ("kind", "kind"),
                ("job", "job_id"),
                ("seq", "seq"),
                ("actor", "actor"),
            )
        )
        if (
            entry["seq"] != number
            or entry["previous"] != previous
            or document["previous"] != previous
        ):
            found.broken["broken chains"].append(f"{name}: entry {entry['seq']} does not follow")
        if hashlib.sha256(_hashed(document)).hexdigest() != entry["hash"] or not same:
            found.broken["broken chains"].append(
                f"{name}: entry {entry['seq']} is not what was hashed"
            )
        previous = entry["hash"]
    if (account["chain_seq"], account["chain_head"]) != (len(chain), previous):
        found.broken["broken chains"].append(f"{name}: the account's head is not the last entry")


# --- budgets ------------------------------------------------------------------------------------


class Tally:
    """Reserved and spent amounts by filter; a cost that is None counts as a closing step."""

    def __init__(self) -> None:
        self.filters: list[Row] = []
        self.limits: dict[str, float] = {}
        self.total: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        # the basic filter's share of delta, and delta, in 10^-21
        self.own_delta = self.all_delta = 0.0

    def allow(self, body: Row) -> None:
        self.filters = body.get("filters", self.filters)
        for each in self.filters:
            self.limits[each["kind"]] = limit_of(each, float(body["epsilon"]), float(body["delta"]))
            if each["kind"] == "basic":
                self.all_delta = float(body["delta"]) * (1 + SLACK) * 1e21
                self.own_delta = fraction(each["share"]) * self.all_delta

    def add(self, body: Row, sign: int) -> None:
        # a job may close the basic filter, so that half of its delta stays
        closes = body["costs"]["basic"] is None
        charged = 0 if closes else delta_of(body)
        for kind, cost in cost_of(body["event"], self.filters, charged).items():
            # a first job may take all of delta
            shut = cost is None or ("whole" in body and kind != "basic")
            shut = shut or (closes and kind == "basic")
            self.total[kind] += 0 if cost is None or shut else sign * cost
            self.closed[kind] += sign * shut
        self.total["delta"] += sign * charged
        self.total["whole"] += sign * ("whole" in body)

    def holds(self) -> bool:
        own_delta = self.all_delta if self.total["whole"] else self.own_delta
        return any(
            not self.closed[kind]
            and self.total[kind] <= limit + SLACK
            and (kind != "basic" or self.total["delta"] <= own_delta)
            for kind, limit in self.limits.items()
        )


def check_budget(found: Findings, account: Row, chain: list[Row]) -> None:
    """After every entry at least one filter holds; at the end the cached balances are the sums."""
    live, spent = check_limits(found, account["name"], chain)
    for kind in FILTERS:
        for part, bodies in (("reserved", live), ("spent", spent)):
            amounts = [body["costs"][kind] for body in bodies.values()]
            total = sum(int(amount["main"]) for amount in amounts if amount is not None)
            if total != account[f"{kind}_{part}"]:
                found.broken["overspends"].append(
                    f"{account['name']}: {kind} {part} is not the sum of its entries"
                )


def check_exports(folder: Path) -> Findings:
    """Check the limits again by the exports that an earlier run left behind."""
    found = Findings()
    for path in sorted(folder.glob("data-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        entries = [line for line in lines if "seq" in line]
        chain = [
            {"kind": each["kind"], "seq": each["seq"], "document": json.dumps(each)}
            for each in entries
        ]
        check_limits(found, path.stem, chain)
    return found


def check_limits(
    found: Findings, name: str, chain: list[Row]
) -> tuple[dict[str, Row], dict[str, Row]]:
    """After every entry at least one filter holds. Returns what is reserved and what is spent, by
    job.
    """
    tally = Tally()
    live: dict[str, Row] = {}
    spent: dict[str, Row] = {}
    void: dict[str, Row] = {}
    # a correction may pass the limits; what costs nothing is admitted until a filter holds
    overdrawn = False
    for entry in chain:
        document = json.loads(entry["document"])
        body, job = document["body"], document["job"]
        if entry["kind"] == "ALLOW":
            tally.allow(body)
        elif entry["kind"] in ("REGISTER", "POLICY"):
            continue  # rules, which charge nothing
        elif entry["kind"] == "RESERVE":
            live[job] = body
            tally.add(body, 1)
        elif entry["kind"] == "VOID":
            void[job] = live.pop(job)
            tally.add(void[job], -1)
        elif entry["kind"] == "COMMIT":  # charged as reserved, so the tally stays
            check_settlement(found, job, live.pop(job, None), body, spent)
        # two stewards charge it for what was reserved
        elif entry["kind"] == "REVERSAL" and job in void:
            spent[job] = void.pop(job)
            tally.add(spent[job], 1)
            overdrawn = overdrawn or not tally.holds()
            if (body["event"], body["costs"]) != (spent[job]["event"], spent[job]["costs"]):
                found.broken["overspends"].append(
                    f"job {job}: corrected to another charge than was reserved"
                )
        else:
            found.notes["entries that the checker does not know"].append(f"{name}: {entry['kind']}")
        overdrawn = overdrawn and not tally.holds()
        charges = entry["kind"] == "RESERVE" and body["event"] != FREE
        if tally.limits and not tally.holds() and (not overdrawn or charges):
            found.broken["overspends"].append(f"{name}: no filter holds after entry {entry['seq']}")
    return live, spent


def check_settlement(
    found: Findings, job: str, held: Row | None, body: Row, spent: dict[str, Row]
) -> None:
    if held is None or job in spent:
        found.broken["overspends"].append(f"job {job}: a COMMIT without a live reservation")
    elif body["event"] != held["event"] or (body["costs"] != held["costs"] and "whole" not in held):
        found.broken["overspends"].append(
            f"job {job}: a count costs what it reserved, and was charged otherwise"
        )
    spent[job] = body


# --- jobs ---------------------------------------------------------------------------------------


def check_charged(
    found: Findings, jobs: dict[str, Row], entries: dict[str, list[Row]], witness: list[Row]
) -> None:
    """Check that everything read or published is charged, once."""
    read = {line["job"] for line in witness}
    for job, row in jobs.items():
        kinds = [entry["kind"] for entry in entries[job]]
        if kinds.count("COMMIT") > 1 or kinds.count("RESERVE") > 1 or kinds.count("VOID") > 1:
            found.broken["uncharged jobs"].append(f"{job}: {kinds}")
        ended = row["state"] in ENDED
        if job in read and ended and "COMMIT" not in kinds:
            found.broken["uncharged jobs"].append(
                f"{job}: {row['state']} after a worker read data, {kinds}"
            )
        if row["state"] == "succeeded" and "COMMIT" not in kinds:
            found.broken["uncharged jobs"].append(f"{job}: published, {kinds}")
    for job in read - set(jobs):
        found.broken["uncharged jobs"].append(
            f"{job}: a worker read data for a job that is not there"
        )


def check_lost(
    found: Findings,
    jobs: dict[str, Row],
    entries: dict[str, list[Row]],
    answers: list[Answer],
    gone: list[tuple[float, float]],
) -> None:
    """Everything admitted has ended, and everything that was answered is there, once."""
    for job, row in jobs.items():
        kinds = [entry["kind"] for entry in entries[job]]
        if row["state"] not in ENDED:
            found.broken["lost jobs"].append(
                f"{job}: still {row['state']}, attempt {row['attempt']}"
            )
        elif "RESERVE" in kinds and not {"COMMIT", "VOID"} & set(kinds):
            found.broken["lost jobs"].append(f"{job}: {row['state']} with a live reservation")
    by_key: dict[str, set[str]] = defaultdict(set)
    for answer in answers:
        if answer.job is not None:
            restored = forgotten(answer, gone)
            if not restored:
                by_key[answer.key].add(answer.job)
            if answer.job in jobs:
                continue
            told = f"{answer.job}: answered to key {answer.key}, and not there"
            if restored and answer.state in UNDECIDED:
                found.notes["requests not decided on, lost with a restore"].append(told)
            else:
                found.broken["lost jobs"].append(told)
    stored = Counter(row["idempotency_key"] for row in jobs.values())
    for key, made in by_key.items():
        if len(made) > 1 or stored[key] > 1:
            found.broken["lost jobs"].append(f"key {key}: {len(made)} jobs")


def check_released(
    found: Findings,
    jobs: dict[str, Row],
    entries: dict[str, list[Row]],
    witness: list[Row],
    results: Path,
) -> None:
    """A job publishes once, and is charged for the newest attempt that read.

    Of several parts one publishes for all, and each has its place in the output once.
    """
    newest: dict[str, int] = defaultdict(int)
    for line in witness:
        newest[line["job"]] = max(newest[line["job"]], int(line["attempt"]))
    for job, row in jobs.items():
        bodies = [entry["body"] for entry in entries[job] if entry["kind"] == "COMMIT"]
        kinds = {entry["kind"] for entry in entries[job]}
        published = [body for body in bodies if body["output_sha256"] is not None]
        files = {path.name for path in (results / "drafts").glob(f"{job}.*")}
        if row["state"] != "succeeded":
            if published or row["output_sha256"] is not None:
                found.broken["double releases"].append(
                    f"{job}: {row['state']}, and something is published"
                )
            found.notes["staged files left behind"] += [f"{job}/{token}" for token in files]
            continue
        body = published[0] if len(published) == 1 else {"attempt": None, "output_sha256": None}
        path = results / str(body["output_sha256"])
        data = path.read_bytes() if path.exists() else b""
        free = all(
            map(is_free, bodies_of(entries[job], "RESERVE"))
        )  # it opens no data, so nothing witnesses it
        if free and job in newest:
            found.broken["uncharged jobs"].append(f"{job}: a free job read data")
        if not free and newest[job] != body["attempt"]:
            found.broken["double releases"].append(
                f"{job}: attempt {newest[job]} read last, charged for {body['attempt']}"
            )
        labels = [json.loads(line).get("label") for line in data.splitlines()]
        if row["mechanism"] == "noisy-count" and labels != ["a", "b", "c"]:
            found.broken["double releases"].append(f"{job}: released counts of {labels}")
        if (
            hashlib.sha256(data).hexdigest() != body["output_sha256"]
            or row["output_sha256"] != body["output_sha256"]
        ):
            found.broken["double releases"].append(
                f"{job}: the output is not the one that was charged"
            )
        if "VOID" in kinds:
            found.broken["double releases"].append(f"{job}: published under a void reservation")
        found.notes["staged files left behind"] += [f"{job}/{each}" for each in files]


def check_artifacts(
    found: Findings, entries: dict[str, list[Row]], rows: list[Row], results: Path
) -> None:
    """Artifacts are those that a COMMIT names, and a job reads only what an earlier COMMIT
    named.
    """
    charged = {
        job: {
            each["name"]: each["sha256"]
            for body in bodies_of(own, "COMMIT")
            for each in body.get("artifacts", ())
        }
        for job, own in entries.items()
    }
    stored: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        job, path = str(row["job_id"]), results / row["sha256"]
        stored[job][row["name"]] = row["sha256"]
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
            found.broken["double releases"].append(
                f"{job}: the artifact {row['name']} is not the one that is named"
            )
    for job in charged.keys() | stored.keys():
        if charged.get(job, {}) != stored.get(job, {}):
            found.broken["double releases"].append(
                f"{job}: its artifacts are not those that were charged"
            )
    for job, own in entries.items():
        for body in bodies_of(own, "RESERVE"):
            source = body.get("source", {})
            for read in (source, *source.get("sources", {}).values()):
                if read.get("artifacts", {}).items() - charged.get(read.get("job", ""), {}).items():
                    found.broken["double releases"].append(f"{job}: reads what no COMMIT released")


def bodies_of(entries: list[Row], kind: str) -> list[Row]:
    return [entry["body"] for entry in entries if entry["kind"] == kind]


def is_free(body: Row) -> bool:
    return bool(body["event"] == {"type": "composed", "events": []})


def _hashed(value: Any) -> bytes:
    """The bytes behind an entry's hash: every private value, {"salt", "value"}, stands as its
    SHA-256.
    """
    return rfc8785.dumps(_committed(value))


def _plain(value: Any) -> Any:
    return value["value"] if isinstance(value, dict) and set(value) == {"salt", "value"} else value


def _committed(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"salt", "value"}:
        return {"sha256": hashlib.sha256(rfc8785.dumps(value)).hexdigest()}
    if isinstance(value, dict):
        return {name: _committed(each) for name, each in value.items()}
    return [_committed(each) for each in value] if isinstance(value, list) else value
