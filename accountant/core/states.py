"""The states of a job, all of them public (DESIGN section 5)."""

JOB_STATES = (
    "submitted",
    "awaiting_approval",
    "refused",
    "expired",
    "queued",
    "running",
    "settling",
    "succeeded",
    "failed",
    "cancelled",
)
