"""One request's answer to its sender: status, headers, body, and the statements that it cost."""

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq
from sqlalchemy import Engine, event

#: What differs between any two runs: ids, hashes, moments, tokens, secrets that are shown once.
OWN: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{8,}|\d{4}-\d\d-\d\d[T ][0-9:.+Z]+|\d\d:\d\d(:\d\d)?"
    r"|(?:challenge|id)&#34;: ?&#34;[\w-]{20,}"  # of a passkey
    r"|csrf_token\" value=\"[^\"]+|\.[A-Za-z0-9_-]{20,}|exq_[\w-]{20,}|whsec_[\w+/=-]{20,}"
)
#: Written at most once a minute, whatever was asked: when somebody's session or token was last
#: used.
BY_THE_CLOCK: Final = ("UPDATE sessions SET seen_at", "UPDATE api_tokens SET last_used_at")
#: And between two sites on one database, which see each other in lists and have names of their own.
ALSO_NAMES: Final = re.compile(
    rf"<option[^>]*>[^<]*</option>|(data|model|analyst|steward|auditor)-[0-9a-f]{{8}}|{OWN.pattern}"
)


@dataclass(frozen=True)
class Look:
    """An answer, with what differs between any two runs taken out, and its statements in order."""

    status: int
    headers: dict[str, str]
    body: str
    statements: tuple[str, ...]


def noting(statements: list[str]) -> Callable[..., None]:
    """A listener that adds each statement but those of the signer, who looks for work all the
    time.
    """

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "checkpoint_requests" not in statement:
            statements.append(statement)

    return note


def look(ask: Callable[[], Any], mask: re.Pattern[str] = OWN) -> Look:
    """Return the answer of `ask`; the length of a body is compared by the body."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        # the signer's
        if not statement.startswith(BY_THE_CLOCK) and "checkpoint_requests" not in statement:
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        answer = ask()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    headers = {
        name: mask.sub("*", value)
        for name, value in answer.headers
        if name not in ("Set-Cookie", "Content-Length")
    }
    return Look(answer.status_code, headers, mask.sub("*", shown(answer)), tuple(statements))


def shown(answer: Any) -> str:
    """The body as text; of a zip what is in it, with the times that it states."""
    if not answer.data.startswith(b"PK"):
        return _text(bytes(answer.data))
    with zipfile.ZipFile(io.BytesIO(answer.data)) as archive:
        files = [(each.filename, each.date_time, archive.read(each)) for each in archive.infolist()]
    return "\n".join(f"{name} {moment} {_text(content)}" for name, moment, content in files)


def _text(content: bytes) -> str:
    """Bytes as text; of Parquet its rows and what it states beside them, as ids lie encoded in its
    bytes.
    """
    if not content.startswith(b"PAR1"):
        return content.decode(errors="replace")
    file = pq.ParquetFile(io.BytesIO(content))
    return f"{file.schema_arrow} {file.metadata.num_row_groups} {file.read().to_pylist()}"
