"""What each process may do to each table: one database role a process, and nothing that is not
stated here.

    web ── people's requests     worker ── jobs that it leases
    relay ── messages, leases that ran out, jobs that wait for a release
    checks ── looks at data and models, fingerprints     signer ── checkpoints

The migrator owns the tables and runs once. A right is a word of SQL, for a whole table or for
columns in brackets; `FOR UPDATE` asks for UPDATE of any column. A table that is named nowhere here
may be touched by nobody: whoever adds one says here who may do what to it. What rows a right
reaches is for the owner's triggers (migrations/schema); docs/powers.md says what a stolen process
can do.
"""

import os
import re
from collections.abc import Mapping
from typing import Literal, get_args

__all__ = ["KEYS", "PROCESSES", "RIGHTS", "Process", "process_urls", "rights_of", "stated"]

Process = Literal["web", "relay", "worker", "checks", "signer"]
PROCESSES: tuple[Process, ...] = get_args(Process)

_READ = "SELECT"
_ADD = "SELECT, INSERT"
_CHANGE = "SELECT, INSERT, UPDATE"
_FORGET = "SELECT (job_id), DELETE"  # a job's secrets end with it, whoever ends it

#: What ends a job, or queues another attempt at it.
_ENDS = "state, attempt, failure, finished_at"
_PARTS_SHOWN = (
    "job_id, number, state, hardware, attempt, handed_back, progress_done, progress_total, "
    "lease_token, lease_expires, lease_secret_sha256"
)
_PARTS_STOP = (
    "state, lease_token, lease_expires, draft, staged_sha256, realized, "
    "realized_ex_post, ex_post_curve"
)
_PARTS_END = f"{_PARTS_STOP}, attempt, handed_back, progress_done"
#: What a decision on a waiting job states anew (transactions.job_requests.RESTATED and
#: decision.Verdict).
_RELEASED = "terms, epsilon_alone, breakdown, refusal, decision_reason, approval_expires, queued_at"
_DECIDES = f"state, attempt, finished_at, {_RELEASED}"
_CHECKED = "state, facts, error"

RIGHTS: Mapping[Process, Mapping[str, str]] = {
    "web": {
        # People, and what they do.
        **dict.fromkeys(("users", "api_tokens", "external_accounts", "sessions"), _CHANGE),
        **dict.fromkeys(("activity", "sign_ins", "idempotency_keys", "key_checks"), _ADD),
        "passkeys": "SELECT, INSERT, UPDATE (sign_count, last_used_at, removed_at)",
        **dict.fromkeys(
            ("passkey_challenges", "logout_tokens"), "SELECT, INSERT, DELETE"
        ),  # each is taken once
        # what nobody tried for long is forgotten
        "sign_in_limits": "SELECT, INSERT, UPDATE, DELETE",
        "hooks": "SELECT, INSERT, DELETE",  # what waits for one goes with it
        "hook_deliveries": "INSERT",
        # What is registered.
        **dict.fromkeys(("datasets", "dataset_versions", "models", "uploads"), _CHANGE),
        "corpora": _ADD,
        "probes": _READ,
        # Jobs, and what is decided on them.
        "jobs": f"SELECT, INSERT, UPDATE ({_DECIDES}, to_reserve, decided_by, decided_at, "
        "cancel_requested, failure, started_at, reading_began_at)",
        # Charges of other programs are begun and settled here: guard_leases keeps it to them.
        "parts": f"SELECT ({_PARTS_SHOWN}), INSERT, UPDATE ({_PARTS_STOP}, worker, progress_done, "
        "progress_total, lease_secret_sha256)",
        "decisions": "SELECT, INSERT, UPDATE (state, answered_by, answered_at, answer, entry_seq, "
        "made_job, made_decision)",
        "comments": _ADD,
        **dict.fromkeys(("job_keys", "kept_draws"), _FORGET),
        **dict.fromkeys(
            ("artifacts", "realized_ex_post", "stopped_workers", "live_workers", "refused_parts"),
            _READ,
        ),
        "maintenance": "SELECT, INSERT, DELETE",
        "outbox": _ADD,
        # The ledger.
        **dict.fromkeys(("accounts", "usage"), _CHANGE),
        "entries": _ADD,
        **dict.fromkeys(
            ("standings", "spending", "spending_marks", "checkpoints", "signing_keys"), _READ
        ),
        **dict.fromkeys(("checkpoint_requests", "ledger_log_marks"), _ADD),
        "alembic_version": _READ,
    },
    "relay": {
        "outbox": "SELECT, INSERT, UPDATE (sent_at, first_sent_at, sends), DELETE",
        "jobs": f"SELECT, UPDATE ({_ENDS}, {_RELEASED})",
        "parts": f"SELECT, INSERT, UPDATE ({_PARTS_END})",
        **dict.fromkeys(("job_keys", "kept_draws"), _FORGET),
        **dict.fromkeys(
            ("artifacts", "refused_parts", "live_workers", "maintenance", "probes"), _READ
        ),
        "decisions": "SELECT, UPDATE (state, answered_at)",
        **dict.fromkeys(("datasets", "dataset_versions", "models", "corpora"), _READ),
        "accounts": "SELECT, UPDATE",
        "usage": "SELECT, INSERT, UPDATE (spent, reserved, cap)",
        **dict.fromkeys(("entries", "ledger_log_marks"), _ADD),
        **dict.fromkeys(("spending", "spending_marks"), _CHANGE),
        "uploads": "SELECT, UPDATE (removed_at)",
        "hooks": _READ,
        "hook_deliveries": "SELECT, UPDATE (attempts, due_at, claim), DELETE",
        # Whether who approved what waits for a release left, or has an account that is too new.
        "users": "SELECT (id, name, active, roles, created_at)",
        "external_accounts": "SELECT (user_id, created_at)",
        # What is old ends (identities.retention); a trigger keeps the young rows of the two logs.
        "sessions": "SELECT (id, created_at, ended_at), DELETE",
        "activity": "SELECT (id, at, action, object_kind, object_id, detail), DELETE",
        "sign_ins": "SELECT (id, at), DELETE",
    },
    "worker": {
        "jobs": f"SELECT, UPDATE ({_ENDS}, started_at, reading_began_at, output_sha256)",
        "parts": f"SELECT, UPDATE ({_PARTS_END}, worker, progress_total, lease_secret_sha256)",
        **dict.fromkeys(("job_keys", "kept_draws"), "SELECT, INSERT, DELETE"),
        **dict.fromkeys(("artifacts", "key_checks"), _ADD),
        "realized_ex_post": "INSERT",
        **dict.fromkeys(("stopped_workers", "live_workers"), "SELECT, INSERT, UPDATE, DELETE"),
        "refused_parts": _CHANGE,
        "outbox": _ADD,
        **dict.fromkeys(
            ("datasets", "dataset_versions", "models", "corpora", "maintenance"), _READ
        ),
        "accounts": "SELECT, UPDATE",
        "usage": "SELECT, UPDATE (spent, reserved)",
        **dict.fromkeys(("entries", "ledger_log_marks"), _ADD),
    },
    "checks": {
        "jobs": f"SELECT, UPDATE ({_DECIDES})",
        "parts": "SELECT, INSERT",
        "outbox": _ADD,
        "probes": _ADD,
        **dict.fromkeys(("fingerprints", "corpus_fingerprints", "fingerprint_key"), _ADD),
        "activity": "SELECT (id), INSERT",  # whose data a registration met, for auditors
        "dataset_versions": "SELECT, UPDATE (state, error, shared_with, data)",
        "models": f"SELECT, UPDATE ({_CHECKED})",
        "corpora": f"SELECT, UPDATE ({_CHECKED}, shared_with)",
        **dict.fromkeys(("datasets", "artifacts", "live_workers", "maintenance"), _READ),
        "users": "SELECT (id, name, active, roles)",  # whether who asked left while it waited
        "accounts": "SELECT, UPDATE",
        "usage": "SELECT, INSERT, UPDATE (reserved, cap)",
        **dict.fromkeys(("entries", "ledger_log_marks"), _ADD),
    },
    "signer": {
        **dict.fromkeys(
            ("accounts", "datasets", "entries", "standings", "ledger_log_marks"), _READ
        ),
        **dict.fromkeys(("checkpoints", "signing_keys"), _ADD),
        "checkpoint_requests": "SELECT, DELETE",
    },
}

#: Which process needs which key (settings.Settings.secret). None needs another's.
KEYS: Mapping[str, tuple[Process, ...]] = {
    "session": ("web",),  # cookies
    "units": ("worker",),  # under which the keys of jobs are kept
    "identity": ("checks",),  # fingerprints of privacy units
    "checkpoint": ("signer",),
    "checkpoint_next": ("signer",),
    "public_log": ("signer",),  # signs the heads of the published log
}

_TERM = re.compile(r"\s*([A-Z]+)\s*(?:\(([^)]*)\))?\s*(?:,|$)")


def rights_of(process: Process, table: str) -> str:
    """Return a process's rights on a table, as GRANT takes them; "" where it has none."""
    return RIGHTS[process].get(table, "")


def stated(rights: str) -> set[tuple[str, str | None]]:
    """(right, column) of each right in a statement of `RIGHTS`; column None: of the whole table."""
    wanted_rights: set[tuple[str, str | None]] = set()
    for right, columns in _TERM.findall(rights):
        wanted_rights |= (
            {(right, part.strip()) for part in columns.split(",")} if columns else {(right, None)}
        )
    return wanted_rights


def process_urls(variables: Mapping[str, str] = os.environ) -> dict[Process, str]:
    """Return the database addresses of processes with a role, such as DATABASE_WEB_URL."""
    named = {process: variables.get(f"DATABASE_{process.upper()}_URL") for process in PROCESSES}
    return {process: url for process, url in named.items() if url}
