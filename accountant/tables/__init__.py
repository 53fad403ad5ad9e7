"""The database tables, in SQLAlchemy Core.

Every statement that changes a balance is visible where it is made. Amounts are NUMERIC without decimals and
arrive as Python integers, never as floats.
"""

from accountant.tables.books import (
    RARE_KINDS,
    accounts,
    checkpoints,
    entries,
    signing_keys,
    spending,
    spending_marks,
    standings,
    usage,
)
from accountant.tables.columns import Units, metadata
from accountant.tables.hooks import hook_deliveries, hooks
from accountant.tables.people import (
    ACTIVITY_DATASET,
    activity,
    api_tokens,
    external_accounts,
    idempotency_keys,
    sessions,
    sign_in_limits,
    sign_ins,
    users,
)
from accountant.tables.sources import (
    corpora,
    dataset_versions,
    datasets,
    fingerprint_key,
    fingerprints,
    models,
    probes,
    uploads,
)
from accountant.tables.work import (
    artifacts,
    job_keys,
    jobs,
    kept_draws,
    offers,
    outbox,
    parts,
    proposals,
    realized_ex_post,
)

__all__ = [
    "ACTIVITY_DATASET",
    "RARE_KINDS",
    "Units",
    "accounts",
    "activity",
    "api_tokens",
    "artifacts",
    "checkpoints",
    "corpora",
    "dataset_versions",
    "datasets",
    "entries",
    "external_accounts",
    "fingerprint_key",
    "fingerprints",
    "hook_deliveries",
    "hooks",
    "idempotency_keys",
    "job_keys",
    "jobs",
    "kept_draws",
    "metadata",
    "models",
    "offers",
    "outbox",
    "parts",
    "probes",
    "proposals",
    "realized_ex_post",
    "sessions",
    "sign_in_limits",
    "sign_ins",
    "signing_keys",
    "spending",
    "spending_marks",
    "standings",
    "uploads",
    "usage",
    "users",
]
