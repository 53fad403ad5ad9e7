"""Errors between a program and the service. They carry facts; texts are made from them here.

ExchequerError
├── Unreachable             no answer from the server, after the retries
├── Unreadable              an answer that this version of the client can't read
├── ApiProblem              the server's answer: status, code and text
│   ├── InvalidRequest      which fields are wrong, and what is allowed
│   ├── NotSignedIn         no token, or one that has ended
│   ├── Forbidden           the role or the dataset's policy forbids it
│   ├── NotFound            with the names that are close, where a name was wrong
│   ├── Conflict            the state of the thing, or of an idempotency key, forbids it
│   ├── RateLimited         too many requests; how long to wait
│   └── ServiceUnavailable  the server, or its database, is not ready
├── Refused                 a job that may not run: binding cap, asked, left, the largest that fits
├── JobFailed               a job that failed, was cancelled or expired
└── StillWaiting            the wait is over and the job goes on (a TimeoutError, too)
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from accountant.core.errors import ExchequerError, FieldProblem
from accountant.core.names import FILTER_NAMES

Json = dict[str, Any]


class Unreachable(ExchequerError):
    """No answer from the server. `key`: of a submission that may have arrived."""

    code = "unreachable"

    def __init__(self, url: str, reason: str):
        self.url, self.reason = url, reason
        self.key: str | None = None
        super().__init__(f"no answer from {url}: {reason}")


class Unreadable(ExchequerError):
    """The server speaks another version."""

    code = "unreadable"


class ApiProblem(ExchequerError):
    """An error answer of the server; `problems` names the fields that were wrong, if any."""

    def __init__(
        self, status: int, code: str, detail: str, problems: tuple[FieldProblem, ...] = ()
    ):
        self.status, self.code, self.detail, self.problems = status, code, detail, problems
        self.key: str | None = None
        self.retry_after: float | None = None
        self.near: tuple[str, ...] = ()
        super().__init__("; ".join(map(str, problems)) or detail)

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.suggestion}" if self.near else super().__str__()

    @property
    def suggestion(self) -> str:
        """The names that may have been meant, as a question."""
        return f"Did you mean {' or '.join(map(repr, self.near))}?" if self.near else ""

    def facts(self) -> Json:
        """Return the facts that a program may branch on."""
        problems = [
            {"field": problem.field, "problem": problem.problem, "allowed": problem.allowed}
            for problem in self.problems
        ]
        return {"status": self.status, "problems": problems, "near": list(self.near)}

    @staticmethod
    def of(response: httpx2.Response) -> "ApiProblem":
        """Return the problem that a response states, or says by its status alone."""
        try:
            body = response.json()
        except ValueError:  # a proxy's page, or an old server
            body = None
        body = body if isinstance(body, dict) else {}
        problems = tuple(
            FieldProblem(
                *(str(problem.get(name) or "") for name in ("field", "problem", "allowed"))
            )
            for problem in body.get("problems") or ()
            if isinstance(problem, dict)
        )
        detail = body.get("detail") or body.get("title")
        code = body.get("code") or ("error" if detail else FROM_ELSEWHERE)
        kind = KINDS.get(response.status_code, ApiProblem)
        error = kind(response.status_code, str(code), str(detail or _elsewhere(response)), problems)
        error.retry_after = retry_after(response.headers)
        return error


#: The code of an answer that is not the service's: of a proxy before it, or of another server.
FROM_ELSEWHERE = "from-elsewhere"

_BY_STATUS = {
    413: "it takes no body of this size. Send a smaller file, or have its administrator raise its "
    "limit (nginx: client_max_body_size; the service takes EXCHEQUER_UPLOAD_BYTES)",
    502: "it got no answer from the service. It may be restarting: try again in a minute, then ask "
    "its administrator",
    503: "the service is switched off or overloaded. Try again in a minute, then ask its "
    "administrator",
    504: "it waited too long for the service, which may have done it all the same. Look before you "
    "repeat it; its administrator can raise its limit (nginx: proxy_read_timeout)",
}


def _elsewhere(response: httpx2.Response) -> str:
    """Return the words for an answer that states no problem, as a proxy's own page."""
    server = "".join(filter(str.isprintable, response.headers.get("Server", "")))[:40]
    sender = f"a proxy before the service ({server})" if server else "a proxy before the service"
    status, target = response.status_code, response.headers.get("Location")
    if target is not None:
        shown = "".join(filter(str.isprintable, target))[:200]
        return (
            f"the server sends to another address ({status}), {shown}. If that is the service, "
            "name it: `exchequer login URL`; if it is a page to sign in, the proxy must let "
            "programs with a token pass"
        )
    error_class = _BY_STATUS.get(status)
    if error_class is None:
        host = response.request.url.host
        return f"the server answered {status} without a word of the service: is {host} the address?"
    return f"{sender} answered {status}: {error_class}"


class InvalidRequest(ApiProblem):
    """Fields that can't be accepted; nothing was changed."""


class NotSignedIn(ApiProblem):
    """No token, or one that has ended: `exchequer login URL`."""


class Forbidden(ApiProblem):
    """The role or the dataset's policy forbids it."""


class NotFound(ApiProblem):
    """There is no such thing, or it isn't yours to see. `near`: names that you may have meant."""


class Conflict(ApiProblem):
    """The state of the thing, or of the idempotency key, forbids it."""


class RateLimited(ApiProblem):
    """Too many requests; `retry_after` is in seconds, where the server said it."""

    def facts(self) -> Json:
        return {**super().facts(), "retry_after": self.retry_after}


class ServiceUnavailable(ApiProblem):
    """The server, its database, or a proxy before it is not ready."""


KINDS: Mapping[int, type[ApiProblem]] = {
    400: InvalidRequest,
    401: NotSignedIn,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
    502: ServiceUnavailable,
    503: ServiceUnavailable,
    504: ServiceUnavailable,
}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return seconds that a `Retry-After` header asks for, given as a number or as a date."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


# --- jobs -----------------------------------------------------------------------------------------

#: Caps that no other size of the job would satisfy.
PEOPLE_AND_MODELS = frozenset({"steward", "model"})


def cap_text(cap: str) -> str:
    """Return the name of a cap as people read it."""
    return FILTER_NAMES.get(cap, cap.replace("_", " "))


class Refused(ExchequerError):
    """A job that may not run. Nothing was spent.

    cap: what binds; asked, left: decimals in its unit; largest: the largest value of `size_field`
    that would fit, None where none would.
    """

    code = "refused"

    def __init__(self, job: Mapping[str, Any]):
        refusal = job["refusal"]
        self.job_id: str = job["id"]
        self.cap: str = refusal["cap"]
        self.why: str = refusal["why"]
        self.asked: str | None = refusal.get("asked")
        self.left: str | None = refusal.get("left")
        self.size_field: str | None = refusal.get("size_field")
        self.largest: int | float | None = refusal.get("largest")
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return binding cap, what was asked, what is left, and what would fit, one fact a line."""
        sentences = [f"the job was refused: {self.why}"]
        if self.cap in PEOPLE_AND_MODELS:
            return sentences
        sentences.append(
            f"binding cap: {cap_text(self.cap)}; asked: {self.asked}; left: {self.left}"
        )
        if self.largest is not None:
            sentences.append(f"the largest that fits: {self.size_field} = {self.largest}")
        elif self.size_field:
            sentences.append(f"no {self.size_field} fits: other parameters, or a larger allowance")
        return sentences

    def facts(self) -> Json:
        return {
            "job": self.job_id,
            "cap": self.cap,
            "asked": self.asked,
            "left": self.left,
            "size_field": self.size_field,
            "largest": self.largest,
        }


class JobFailed(ExchequerError):
    """A job that ended without a result; `state` is failed, cancelled or expired."""

    code = "job-failed"

    def __init__(self, job: Mapping[str, Any]):
        self.job_id: str = job["id"]
        self.state: str = job["state"]
        self.failure: str | None = job.get("failure")
        reason = self.failure or ("no reason is public" if self.state == "failed" else None)
        text = f"the job {self.state}" if self.state == "failed" else f"the job is {self.state}"
        super().__init__(f"{text}: {reason}" if reason else text)

    def facts(self) -> Json:
        return {"job": self.job_id, "state": self.state, "failure": self.failure}


class StillWaiting(ExchequerError, TimeoutError):
    """The time to wait is over. The job goes on, and `wait` may be called again."""

    code = "still-waiting"

    def __init__(self, job: Mapping[str, Any], seconds: float):
        self.job_id, self.state = str(job["id"]), str(job["state"])
        self.mechanism = str(job["mechanism"])
        state = self.state.replace("_", " ")
        super().__init__(f"job {self.job_id} is still {state} after {seconds:g} s; it goes on")

    def facts(self) -> Json:
        return {"job": self.job_id, "state": self.state}
