"""Every error that the service raises on purpose.

    ExchequerError
    ├── InvalidRequest       fields with what was wrong and what is allowed
    ├── NotFound             no such thing, or not for you
    ├── NotPermitted         the role or the policy forbids it
    │   └── SignatureNeeded  the policy asks that it is signed with a passkey
    ├── Conflict             the state of the thing, or of the idempotency key, forbids it
    ├── MeterExceeded        a mechanism asked for noise that its reservation does not cover
    ├── LeaseLost            another attempt owns the job, or nobody does
    ├── KeyMismatch          a worker's key is not the one that the job's other attempts and parts
                             have
    ├── Cancelled            a person asked for the job to stop
    ├── TimeLimit            an attempt takes longer than it may
    ├── Drained              its worker is to stop
    ├── TooLarge             more bytes than an upload may have
    ├── NoRoom               the disk is full
    ├── LedgerBehind         a dataset's ledger in the database is not that in the log outside it
    ├── LogUnusable          the log outside the database can't be read or written, or is another's
    │   └── LogCut           it lacks lines that the database has marked, or has others
    ├── ResultsAway          the place of results does not answer
    ├── UploadsAway          that of uploads does not
    ├── UnderMaintenance     nothing is admitted until an administrator ends it
    ├── SignerSilent         the process that signs checkpoints does not answer
    ├── DataError            a dataset can't be read as declared (shown to its steward only)
    └── VerificationFailed   an exported ledger does not hold

Errors carry facts as attributes; texts are made from them, in one place.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


class ExchequerError(Exception):
    """Base of the tree above. `code` is stable and names the kind of problem to programs."""

    code = "error"

    def facts(self) -> dict[str, Any]:
        """Return the error's facts for programs, beyond its text."""
        return {}


@dataclass(frozen=True)
class FieldProblem:
    """A field's problem, and what is allowed instead."""

    field: str
    problem: str
    allowed: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" + (
            f" (allowed: {self.allowed})" if self.allowed else ""
        )


#: What reading a value of the wrong kind or size may raise: foreign ledgers hold anything that JSON
#: can.
UNREADABLE = (
    ExchequerError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)


class InvalidRequest(ExchequerError):
    """Invalid input. Nothing was changed."""

    code = "invalid"

    def __init__(self, problems: Iterable[FieldProblem]):
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    def facts(self) -> dict[str, Any]:
        return {"problems": [asdict(problem) for problem in self.problems]}


def invalid(field: str, problem: str, allowed: str = "") -> InvalidRequest:
    """Return the error for one field."""
    return InvalidRequest([FieldProblem(field, problem, allowed)])


class NotFound(ExchequerError):
    """The object does not exist, or is not visible to the caller: the two give the same answer."""

    code = "not-found"

    def __init__(self, kind: str, name: str):
        self.kind, self.name = kind, name
        super().__init__(f"there is no {kind} {name!r}, or it is not yours to see")


class NotPermitted(ExchequerError):
    """The role or the dataset's policy forbids it."""

    code = "not-permitted"


class SignatureNeeded(NotPermitted):
    """The dataset's policy asks that the act is signed with a passkey. Nothing was changed.

    `act`: what there is to sign, but for its nonce. `keys`: fingerprints of the person's keys that
    may.
    """

    def __init__(self, act: dict[str, Any], keys: tuple[str, ...]):
        self.act, self.keys = act, keys
        super().__init__(
            f"signature: missing: the policy of {act['dataset']!r} asks that you sign this with a "
            "passkey, in a browser on the page where it is decided; a token can't sign"
        )


class Conflict(ExchequerError):
    """The current state forbids it; reading the state again shows why."""

    code = "conflict"


class MeterExceeded(ExchequerError):
    """A release was refused because the reservation does not cover it. No noise was drawn."""

    code = "meter-exceeded"


class LeaseLost(ExchequerError):
    """The worker's claim has ended; nothing it made may be published."""

    code = "lease-lost"


class KeyMismatch(ExchequerError):
    """The worker can't have the key under which the job began. It takes nothing of it."""

    code = "key-mismatch"


class Cancelled(ExchequerError):
    """A person asked for the job to be stopped."""

    code = "cancelled"


class TimeLimit(ExchequerError):
    """An attempt exceeded its time limit."""

    code = "time-limit"


class Drained(ExchequerError):
    """The worker is being stopped by plan: its attempt goes on elsewhere."""

    code = "drained"


class Unwritable(ExchequerError):
    """The results folder takes no output: the disk is full or away. The job read nothing."""

    code = "unwritable"


class TooLarge(ExchequerError):
    """An upload has more bytes than the service accepts. Nothing of it was kept."""

    code = "too-large"


class NoRoom(ExchequerError):
    """The disk is too full for an upload. Nothing of it was kept."""

    code = "no-room"


class LedgerBehind(ExchequerError):
    """The log outside the database holds entries that the database lacks, or others: nothing is
    done.

    `database` and `log` are the numbers of the last entries there; `seq` is that of one that
    differs.
    """

    code = "ledger-behind"

    def __init__(self, dataset: str, database: int, log: int, seq: int | None = None):
        self.dataset, self.database, self.log, self.seq = dataset, database, log, seq
        if seq is None:
            position = f"the database ends at entry {database}, and its log outside at entry {log}"
        else:
            position = f"entry {seq} is another one in the database than in its log outside"
        super().__init__(
            f"the ledger of {dataset!r} is not what was answered for: {position}. Nothing is "
            "admitted, run or handed out until an operator has recovered it (`exchequer ledger "
            "recover`)"
        )

    def facts(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "database": self.database,
            "log": self.log,
            "differs_at": self.seq,
        }


class LogUnusable(ExchequerError):
    """The log outside the database can't be read or written, or is not this database's: nothing is
    answered.

    What was committed stands in the database, and is appended when the log is there again.
    """

    code = "ledger-log"

    def __init__(self, problem: str):
        self.problem = problem
        super().__init__(f"the log outside the database can't be used: {problem}")

    def facts(self) -> dict[str, Any]:
        return {"problem": self.problem}


class LogCut(LogUnusable):
    """The log lacks lines that the database has marked, or has others in their place."""

    def __init__(self, problem: str):
        super().__init__(f"{problem}. Stop all services, then `exchequer ledger recover`")


class ResultsAway(ExchequerError):
    """The place of results does not answer: the output may be there."""

    code = "results-away"

    def __init__(self) -> None:
        super().__init__("the place of results does not answer; try again later")


class UploadsAway(ExchequerError):
    """The place of uploads does not answer. Nothing was kept, or nothing destroyed."""

    code = "uploads-away"

    def __init__(self) -> None:
        super().__init__("the place of uploads does not answer; try again later")


class UnderMaintenance(ExchequerError):
    """An administrator stopped admissions for a while. Nothing was recorded, and reads go on."""

    code = "maintenance"
    retry_after_seconds = 120  # more than a client waits for by itself

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"the service is under maintenance and admits nothing now: {reason}")


class SignerSilent(ExchequerError):
    """The process that signs checkpoints does not answer: nothing that needs one is handed out."""

    code = "signer-silent"

    def __init__(self) -> None:
        super().__init__(
            "the process that signs checkpoints does not answer: it must run, with its own key"
        )


class DataError(ExchequerError):
    """A dataset can't be read as declared. The text may state positions, never contents."""

    code = "data"


class VerificationFailed(ExchequerError):
    """An exported ledger is not valid. `seq` is the number of the entry at fault, if any."""

    code = "verification-failed"

    def __init__(self, message: str, seq: int | None = None):
        self.seq = seq
        super().__init__(f"entry {seq}: {message}" if seq is not None else message)
