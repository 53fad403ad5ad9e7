"""Expected errors as sentences that say what to do next, as JSON, and as exit codes.

Exit codes: 0 done; 1 refused or failed; 2 bad usage or input; 3 the server does not answer, or asks
for patience; 4 the time to wait is over, and the job goes on; 130 interrupted. With --json an error
is one document on standard error:
    {"error": {"code", "message", "next", "exit_code", ...what a program may branch on}}
"""

import errno
import importlib.util
import re
import shlex
from dataclasses import dataclass, field
from typing import Any

from accountant.core import errors as core
from accountant.core.errors import ExchequerError, FieldProblem, VerificationFailed
from web.cli.output import (
    BAD_INPUT,
    REFUSED,
    STILL_WAITING,
    UNREACHABLE,
    Failed,
    Mode,
    complain,
    err,
    print_error,
    printable,
)
from web.client.errors import (
    FROM_ELSEWHERE,
    ApiProblem,
    Conflict,
    Forbidden,
    NotFound,
    NotSignedIn,
    RateLimited,
    Refused,
    ServiceUnavailable,
    StillWaiting,
    Unreachable,
)
from web.client.profiles import NoSuchProfile
from web.version import DISTRIBUTION, ROOT, is_checkout

CORRECT_IT = "Correct it and run the command again."
_ELSEWHERE = (
    "Set EXCHEQUER_HOME (state of the stack) or XDG_CONFIG_HOME (who is signed in) to a folder "
    "that you may write to"
)
_LISTS = {
    "dataset": "`exchequer dataset list`",
    "job": "`exchequer job list`",
    "model": "`exchequer model list`",
    "corpus": "`exchequer corpus list`",
    "decision": "`exchequer decision list`",
    "artifact": "`exchequer artifact list`",
    "mechanism": "`exchequer mechanism list`",
}


@dataclass(frozen=True)
class Told:
    """An error as a command tells it: sentences, what to do next, and the exit code."""

    lines: tuple[str, ...]
    next: str | None
    exit_code: int
    facts: dict[str, Any] = field(default_factory=dict)


def sentence(problem: FieldProblem) -> str:
    """Return one field: what was wrong, what is allowed."""
    allowed = f" Allowed: {problem.allowed}." if problem.allowed else ""
    return f"{problem.field}: {problem.problem}.{allowed}"


def told(error: ExchequerError) -> Told:
    """Return the words for an error."""
    problems: tuple[FieldProblem, ...] = getattr(error, "problems", ())
    if problems:
        step = getattr(error, "suggestion", "") or CORRECT_IT
        return Told(tuple(map(sentence, problems)), step, BAD_INPUT)
    match error:
        case ApiProblem():
            return _answer(error)
        case Unreachable():
            step = (
                "Start the service here with `exchequer stack up`, or sign in to one elsewhere: "
                "`exchequer login URL`."
            )
            return Told((f"{error}.",), _again(error.key) or step, UNREACHABLE)
        case NoSuchProfile():
            step = "`exchequer profile list` shows them. `exchequer login URL` adds one."
            return Told((f"{error}.",), step, BAD_INPUT)
        case Refused():
            return Told(tuple(error.lines()), None, REFUSED)
        case StillWaiting():
            step = f"Go on waiting with `exchequer job show {error.job_id} --wait`."
            if error.mechanism == "charge":
                step = "Run the same command again: the charge begins once it is approved."
            return Told((f"{error}.",), step, STILL_WAITING)
        case core.InvalidRequest() | core.NotFound():
            return Told((str(error),), None, BAD_INPUT)
        case _:
            return Told((str(error),), None, REFUSED)


def _answer(error: ApiProblem) -> Told:
    sentences = (_full_stop(str(error)),)
    match error:
        case NotSignedIn():
            return Told(sentences, "Sign in with `exchequer login`.", REFUSED)
        case Forbidden():
            step = (
                "`exchequer profile show` shows your roles; `exchequer dataset policy` the rules."
            )
            return Told(sentences, step, REFUSED)
        case NotFound():
            return Told(sentences, None if error.near else _where_to_look(error.detail), BAD_INPUT)
        case RateLimited():
            when = "later" if error.retry_after is None else f"in {error.retry_after:.0f} s"
            return Told(sentences, _again(error.key) or f"Run it again {when}.", UNREACHABLE)
        case ServiceUnavailable():
            if error.code == FROM_ELSEWHERE:
                return Told(sentences, _again(error.key), UNREACHABLE)
            step = _again(error.key) or "Try again, or look at `exchequer stack status`."
            return Told((f"the server is not ready: {sentences[0]}",), step, UNREACHABLE)
        case Conflict():
            return Told(sentences, None, REFUSED)
        case _ if error.status >= 500:
            step = "Its log says why; the request can be repeated."
            return Told((f"the server failed: {sentences[0]}",), step, REFUSED)
        case _:
            return Told(sentences, None, BAD_INPUT if error.status == 400 else REFUSED)


def _again(key: str | None) -> str | None:
    """Return the advice to repeat a submission that may have arrived."""
    if key is None:
        return None
    return f"It may have arrived: run it again with `--key {shlex.quote(key)}`, and it is one job."


def _where_to_look(detail: str) -> str | None:
    kind = re.match(r"there is no (\w+)", detail)
    where = _LISTS.get(kind[1]) if kind else None
    return where and f"{where} shows what there is."


def _full_stop(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


# --- the operating system -------------------------------------------------------------------------

_SYSTEM = {
    errno.ENOSPC: "Make room on that disk",
    errno.EDQUOT: "Make room on that disk",
    errno.EROFS: f"It is read-only. {_ELSEWHERE}",
    errno.EACCES: f"You may not do that. {_ELSEWHERE}",
    errno.EPERM: f"You may not do that. {_ELSEWHERE}",
    errno.EMFILE: "Run `ulimit -n 1024` first",
    errno.ENFILE: "The machine has too many files open: end other programs",
    errno.ENOMEM: "The machine has no memory left: end other programs",
}


def system_error(error: OSError | ImportError) -> Failed:
    """Return what the operating system refused as a sentence with the path and a remedy."""
    if isinstance(error, ImportError):
        return Failed(
            f"a library can't be loaded: {error}. Install what the system lacks by its package "
            "manager, or Exchequer again (in a checkout: `make clean`, then `make up`)."
        )
    places = " → ".join(
        str(filename) for filename in (error.filename, error.filename2) if filename is not None
    )
    remedy = _SYSTEM.get(error.errno or 0, "Mend that")
    what = error.strerror or str(error) or type(error).__name__
    return Failed(
        f"{places or 'the operating system says'}: {what}. {remedy}, then run the command again."
    )


# --- telling --------------------------------------------------------------------------------------


def report(error: ExchequerError, next_step: str | None = None, **more: Any) -> int:
    """Tell an expected error, with another next step or more facts; returns the exit code."""
    sentence = told(error)
    step = next_step or sentence.next
    if Mode.json:
        facts = {**error.facts(), **sentence.facts, **more}
        message = " ".join(sentence.lines) if not isinstance(error, Refused) else sentence.lines[0]
        document = {
            "code": error.code,
            "message": message,
            "next": step,
            "exit_code": sentence.exit_code,
        }
        print_error({"error": facts | document})
        return sentence.exit_code
    if isinstance(error, VerificationFailed):
        err.print(f"verify: failed: {printable(error)}", style="red", soft_wrap=True)
        return sentence.exit_code
    if isinstance(error, Refused):
        complain(sentence.lines[0])
        for line in sentence.lines[1:]:
            err.print(f"  {printable(line)}", soft_wrap=True)
        if step:
            err.print(f"  {printable(step)}", soft_wrap=True)
        return sentence.exit_code
    for line in sentence.lines[:-1]:
        complain(f"{line} {CORRECT_IT}" if step == CORRECT_IT else line)
    complain(" ".join(filter(None, (sentence.lines[-1], step))))
    return sentence.exit_code


def report_usage(error: Any) -> int:
    """Tell wrong usage, with what to type; returns the exit code."""
    message, command = _full_stop(error.format_message()), error.ctx.command
    path = error.ctx.command_path
    needed = [
        (f"{param.opts[0]} " if param.opts[0].startswith("-") else "")
        + (param.metavar or param.name.upper())
        for param in command.params
        if param.required
    ]
    form = f"Type: {' '.join((path, *needed))}\n" if needed else ""
    step = f"{form}`{path} --help` says more."
    if Mode.json:
        document = {"code": "usage", "message": message, "next": step, "exit_code": BAD_INPUT}
        print_error({"error": document})
    else:
        complain(f"{message}\n{step}")
    return BAD_INPUT


def require_installed(user: str, *packages: str) -> None:
    """Check that this is a checkout in which these packages are installed.

    `user` names the command or part that needs them. Raises Failed with what to do.
    """
    if not is_checkout():
        raise Failed(
            f"{user} needs the service, and this is its client alone (the package {DISTRIBUTION}). "
            "Run it in a clone of Exchequer's repository, where `make demo` installs everything."
        )
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise Failed(
                f"{name} is not installed, and {user} needs it. `make demo` in {ROOT} installs "
                "everything."
            )
