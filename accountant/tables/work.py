"""The tables of jobs, their outputs, decisions of a second person, and messages to workers."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    FetchedValue,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from accountant.core.states import JOB_STATES
from accountant.tables.columns import Units, key, metadata, moment

jobs = Table(
    "jobs",
    metadata,
    key(),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("version_id", ForeignKey("dataset_versions.id"), nullable=False),
    Column("model_id", ForeignKey("models.id")),  # NULL: the mechanism uses none
    Column("analyst_id", ForeignKey("users.id"), nullable=False),
    Column("mechanism", Text, nullable=False),
    Column("parameters", JSONB, nullable=False),
    Column("terms", JSONB, nullable=False),
    # public things, with hashes
    Column("resources", JSONB, nullable=False, server_default=text("'{}'")),
    Column("event", JSONB(none_as_null=True)),  # NULL: the price has no (epsilon, delta) part
    Column("epsilon_alone", Double),
    Column("breakdown", JSONB, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("project", Text),  # a public name; caps may count by it
    Column("idempotency_key", Text),
    Column("request_sha256", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("refusal", JSONB(none_as_null=True)),
    Column("decided_by", ForeignKey("users.id")),
    Column("decision_reason", Text),
    moment("created_at", default=True),
    # among the jobs of its dataset, from 1 on; the database gives it
    Column("place", Integer, nullable=False, server_default=FetchedValue()),
    moment("approval_expires"),
    moment("decided_at"),
    moment("queued_at"),
    moment("started_at"),
    moment("finished_at"),
    # the most that any part has had
    Column("attempt", Integer, nullable=False, server_default="0"),
    moment("reading_began_at"),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("output_sha256", Text),
    Column("failure", Text),
    # the job whose artifacts it reads instead of records
    Column("source_job_id", ForeignKey("jobs.id")),
    Column("sources", JSONB, nullable=False, server_default=text("'{}'")),  # further jobs, by field
    Column("reads_records", Boolean, nullable=False, server_default=text("true")),
    # The RESERVE of a job that waits for a look at its model or for a release, should it fit then
    # (decision.consider). NULL: a steward decides, or it fits no account.
    Column("to_reserve", JSONB(none_as_null=True)),
    UniqueConstraint("analyst_id", "idempotency_key"),
    UniqueConstraint("dataset_id", "place", name="uq_jobs_place"),
    Index(None, "dataset_id", "created_at"),
    Index(None, "analyst_id", "created_at"),
    Index("ix_jobs_state", "state", "created_at"),
    Index(
        "uq_jobs_signature",
        text("(parameters ->> 'signature')"),
        unique=True,
        postgresql_where=text("mechanism = 'charge'"),
    ),
    Index("ix_jobs_mechanism", "mechanism", "created_at"),
    Index("ix_jobs_created_at", "created_at", "id"),
    Index(
        "ix_jobs_decided_at",
        "decided_at",
        "id",
        "dataset_id",
        postgresql_where=text("decided_by IS NOT NULL"),
    ),
    Index(
        "ix_jobs_decided_by",
        "decided_by",
        "decided_at",
        postgresql_where=text("decided_by IS NOT NULL"),
    ),
    Index(
        "ix_jobs_refused",
        "finished_at",
        "id",
        "dataset_id",
        "analyst_id",
        postgresql_where=text("state = 'refused'"),
    ),
    Index(
        "ix_jobs_waiting",
        "analyst_id",
        "state",
        postgresql_where=text(
            "reads_records AND state IN "
            "('submitted','awaiting_approval','awaiting_release','queued')"
        ),
    ),
    Index(
        "ix_jobs_live", "state", postgresql_where=text("state IN ('queued','running','settling')")
    ),
    Index(
        "ix_jobs_approval_expires",
        "approval_expires",
        postgresql_where=text("state = 'awaiting_approval'"),
    ),
    CheckConstraint("state IN (" + ",".join(f"'{s}'" for s in JOB_STATES) + ")", name="state"),
    CheckConstraint("(event IS NULL) = (epsilon_alone IS NULL)", name="event"),
    CheckConstraint("(state = 'refused') = (refusal IS NOT NULL)", name="refusal"),
    # what a charge made lies elsewhere
    CheckConstraint(
        "(state = 'succeeded' AND mechanism <> 'charge') = (output_sha256 IS NOT NULL)",
        name="output",
    ),
    CheckConstraint("reads_records OR reading_began_at IS NULL", name="reads_no_records"),
    CheckConstraint("source_job_id IS NULL OR NOT reads_records", name="source"),
)

# The work of a job: one or more parts, each of them claimed, run and lost on its own. How many is
# public.
parts = Table(
    "parts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    # the class of workers that it waits for (transactions.hardware); "": any
    Column("hardware", Text, nullable=False, server_default=""),
    Column("attempt", Integer, nullable=False),
    Column("lease_token", Uuid),
    Column("lease_secret_sha256", LargeBinary),
    moment("lease_expires"),
    Column("worker", Text),
    # attempts that ended by plan
    Column("handed_back", Integer, nullable=False, server_default="0"),
    Column("progress_done", BigInteger, nullable=False, server_default="0"),
    Column("progress_total", BigInteger, nullable=False, server_default="0"),  # of the whole job
    # What a part that is done leaves for the settlement. The figures may depend on the data, so
    # they are shown to nobody and taken away when the job ends.
    Column("draft", Text),  # its name (accountant.results)
    Column("staged_sha256", Text),
    Column("realized", JSONB(none_as_null=True)),
    Column("realized_ex_post", Units),
    Column("ex_post_curve", JSONB(none_as_null=True)),
    Index("ix_parts_live", "state", postgresql_where=text("state IN ('queued','running')")),
    CheckConstraint("number >= 0", name="number"),
    CheckConstraint("handed_back >= 0 AND handed_back < attempt", name="handed_back"),
    CheckConstraint("state IN ('queued','running','done','stopped')", name="state"),
    CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name="lease"),
    CheckConstraint("(lease_token IS NULL) = (lease_expires IS NULL)", name="expiry"),
)

# The key of a job's coins, encrypted under the workers' key `units`: from its first claim to its
# end.
job_keys = Table(
    "job_keys",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)

# The draws of a part's attempts, encrypted under a key made from the job's: until the job ends.
kept_draws = Table(
    "kept_draws",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("sealed", LargeBinary, nullable=False),
    ForeignKeyConstraint(["job_id", "part"], ["parts.job_id", "parts.number"]),
    CheckConstraint("number >= 0", name="number"),
)

# What ex-post jobs really cost: it depends on the data. Stewards and auditors read it
# (queries.jobs.ex_post); nothing that an analyst can reach may.
realized_ex_post = Table(
    "realized_ex_post",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("amount", Units, nullable=False),
    Column("curve", JSONB(none_as_null=True)),  # core.privacy.ex_post_curves
    CheckConstraint("amount >= 0", name="not_negative"),
    CheckConstraint("amount < 'NaN'", name="numbers"),
)

# Workers that take no jobs, as each says again and again while it lasts
# (transactions.stopped_workers).
stopped_workers = Table(
    "stopped_workers",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("why", Text, nullable=False),
    moment("at", required=True),
)

# Workers that take jobs, with the classes that each serves, as it says again and again while it
# lasts (transactions.hardware).
live_workers = Table(
    "live_workers",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("classes", ARRAY(Text), nullable=False),
    moment("at", required=True),
)

# Why nothing is admitted or begun now; no row: the service is open (transactions.maintenance).
maintenance = Table(
    "maintenance",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=true()),
    Column("reason", Text, nullable=False),
    Column("by", Text, nullable=False),
    moment("since", default=True),
    CheckConstraint("one", name="one"),
)

# Parts that a worker refused, as the entries make no order for them: nobody is sent a message
# about one for a while (transactions.messages).
refused_parts = Table(
    "refused_parts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    moment("at", default=True),
)

# What jobs released besides their texts; written with their one COMMIT, which names the hashes.
artifacts = Table(
    "artifacts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size", BigInteger, nullable=False),  # bytes
    moment("created_at", default=True),
    Index("ix_artifacts_sha256", "sha256"),
    CheckConstraint("size >= 0", name="size"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
    CheckConstraint(
        "media_type IN ('application/json','application/x-safetensors','text/html')",
        name="media_type",
    ),
)

# What a second person is asked, and what they answered. `basis_seq` is the entry that a yes would
# replace. An offer names the job that was refused for it: under the `terms` in `asked` it had the
# price that was seen.
decisions = Table(
    "decisions",
    metadata,
    key(),
    Column("kind", Text, nullable=False),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("job_id", ForeignKey("jobs.id")),
    Column("asked", JSONB, nullable=False),
    Column("basis_seq", BigInteger),  # 0: there is no allowance yet
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("asked_by", ForeignKey("users.id"), nullable=False),
    moment("created_at", default=True),
    moment("expires_at"),  # NULL: never
    Column("answered_by", ForeignKey("users.id")),
    moment("answered_at"),
    Column("answer", Text),
    Column("entry_seq", BigInteger),
    Column("made_job", ForeignKey("jobs.id")),
    Column("made_decision", ForeignKey("decisions.id")),
    Index("ix_decisions_open", "created_at", "id", postgresql_where=text("state = 'open'")),
    Index("ix_decisions_asked_by", "asked_by", "created_at"),
    Index(
        "uq_decisions_access",
        "dataset_id",
        "asked_by",
        unique=True,
        postgresql_where=text("kind = 'access' AND state = 'open'"),
    ),
    Index(
        "uq_decisions_loss",
        "dataset_id",
        unique=True,
        postgresql_where=text("kind = 'loss' AND state = 'open'"),
    ),
    Index("uq_decisions_offer", "job_id", unique=True, postgresql_where=text("kind = 'offer'")),
    CheckConstraint(
        "kind IN ('offer','allowance','correction','policy','access','loss','overdraft','push')",
        name="kind",
    ),
    CheckConstraint("state IN ('open','accepted','refused','withdrawn','expired')", name="state"),
    CheckConstraint("(kind IN ('offer','correction','push')) = (job_id IS NOT NULL)", name="job"),
    CheckConstraint("(kind IN ('allowance','correction')) = (basis_seq IS NOT NULL)", name="basis"),
    CheckConstraint("(state IN ('open','expired')) = (answered_by IS NULL)", name="answered"),
    CheckConstraint(
        "state <> 'accepted' OR kind = 'offer' OR answered_by <> asked_by", name="two_people"
    ),
    CheckConstraint(
        "(state = 'accepted' AND kind IN ('allowance','correction','loss')) = "
        "(entry_seq IS NOT NULL)",
        name="entry",
    ),
    CheckConstraint(
        "(state = 'accepted' AND kind IN ('offer','overdraft')) = (made_job IS NOT NULL)",
        name="made_job",
    ),
)

# What an analyst and stewards say to one another about a job; never changed. The last question
# without an answer after it is what its analyst is waited for.
comments = Table(
    "comments",
    metadata,
    key(),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("author_id", ForeignKey("users.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    moment("created_at", default=True),
    Index("ix_comments_job_id", "job_id", "created_at", "id"),
    CheckConstraint("kind IN ('comment','question','answer')", name="kind"),
    CheckConstraint("length(text) BETWEEN 1 AND 2000", name="text"),
)

# Messages written in the transaction that makes them true; the relay sends them, and takes away
# what is done.
outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task", Text, nullable=False),
    Column("subject", Uuid, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("part", Integer, nullable=False, server_default="0"),
    Column("analyst_id", Uuid),  # whose turn a job's message takes; NULL: it waits for none
    moment("created_at", default=True),
    moment("sent_at"),  # NULL: to be sent, for the first time or again
    moment("first_sent_at"),
    Column("sends", Integer, nullable=False, server_default="0"),
    Index("ix_outbox_unsent", "analyst_id", "task", "id", postgresql_where=text("sent_at IS NULL")),
    Index("ix_outbox_sent", "sent_at", postgresql_where=text("sent_at IS NOT NULL")),
    Index("ix_outbox_subject", "subject", "id"),
    CheckConstraint(
        "task IN ('generate','free','probe','check_dataset','check_model','check_corpus')",
        name="task",
    ),
)
