"""Published outputs: with artifacts the only files that the web opens, named by the hash in their
COMMIT.

    stored JSON Lines ── bytes compared with the ledger's hash ──▶ jsonl, csv, parquet [──▶ zip with
      its card and Croissant metadata]

Files are read twice, once to check and find columns and once to send, and never held. They are
compared each time (accountant.results).
"""

import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from hashlib import sha256
from heapq import nsmallest
from itertools import islice
from typing import IO, Any
from uuid import UUID

from flask import Response, current_app, request

from accountant.core.errors import Conflict, InvalidRequest, NotFound, ResultsAway, invalid
from accountant.core.files import parquet, rows
from accountant.core.files.rows import Column, Pieces
from accountant.core.ledger.data_card import DataFile, croissant, front_matter, markdown
from accountant.core.mechanisms.batches import LEFT_OUT
from accountant.identities import activity_log
from accountant.queries import data_cards, jobs
from accountant.results import Changed, Published, Results
from web.auth import current_actor
from web.context import engine, settings

_BLOCK_BYTES = 2**16
_LONGEST_LINE_BYTES = 2**20
#: How often, and how long, a file is waited for that a worker is about to publish.
_TRIES, _PAUSE_SECONDS = 30, 0.1
#: Lines of an output that a look at it reads.
MOST_SAMPLED = 5_000
FORMATS = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
}
ZIP = "application/zip"
#: What `datasets` loads; an archive of anything else names no file to it.
_LOADED = (*FORMATS.values(), "application/json")
#: As the Hugging Face Hub names licences and languages: `cc-by-4.0`, `en,de`.
LICENSE, LANGUAGE = r"[a-z0-9][a-z0-9.+-]{0,39}", r"[a-z]{2,3}(,[a-z]{2,3}){0,9}"
#: The query of a route that hands out an archive.
ARCHIVE: dict[str, dict[str, Any]] = {
    "card": {"type": "string", "enum": ["true", "false"], "default": "false"},
    "license": {"type": "string", "pattern": f"^{LICENSE}$"},
    "language": {"type": "string", "pattern": f"^{LANGUAGE}$"},
}
# when a job ended depends on its data, so an archive tells no time
_LEAST_TIME = (1980, 1, 1, 0, 0, 0)


def download(job_id: UUID) -> Response:
    """Return a published output as JSON Lines, with its SHA-256 as the ETag."""
    actor = current_actor()
    output = jobs.output(engine(), job_id, actor)
    # The bytes that the ledger's hash is of: no reader may take them for text and decode them.
    response = Response(
        blocks(open_output(output.sha256, job_id)), mimetype="application/octet-stream"
    )
    response.headers["Content-Disposition"] = f'attachment; filename="{job_id}.jsonl"'
    response.headers["Cache-Control"] = "private, no-cache"
    response.set_etag(output.sha256)
    response.make_conditional(request)
    if request.method == "GET" and response.status_code == 200:
        activity_log.note(
            engine(), actor, "result downloaded", "job", str(job_id), dataset=output.dataset
        )
    return response


def read_about(query: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the licence and the languages that a query states for an archive."""
    stated = {name: query.get(name) or "" for name in ("license", "language")}
    for name, form in (("license", LICENSE), ("language", LANGUAGE)):
        if stated[name] and not re.fullmatch(form, stated[name]):
            raise invalid(name, repr(stated[name][:60]), "as the Hub names it: cc-by-4.0; en,de")
    languages = [name for name in stated["language"].split(",") if name]
    return {"license": stated["license"] or "unknown", "language": languages}


def export(job_id: UUID, form: str, with_card: bool) -> Response:
    """Return a published output in a format of FORMATS; `with_card`: in a zip with its data card.

    Raises InvalidRequest for another format, or where Parquet can't be made here, and Conflict
    where the file is not the one that the ledger names.
    """
    if form not in FORMATS:
        raise invalid("format", repr(form[:40]), ", ".join(FORMATS))
    if form == "parquet":
        parquet.available()
    actor = current_actor()
    published = jobs.output(engine(), job_id, actor)
    about = read_about(request.args)
    body = _body(job_id, form, published.sha256)
    if with_card:
        file = _data_file(job_id, form, published.sha256)
        body = archive(file, body, card(job_id), about)
    response = Response(body, mimetype=ZIP if with_card else FORMATS[form])
    name = f"{job_id}.zip" if with_card else f"{job_id}.{form}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "private, no-cache"
    if not with_card:  # a card says what holds now
        response.set_etag(published.sha256 if form == "jsonl" else f"{published.sha256}-{form}")
        response.make_conditional(request)
    if request.method == "GET" and response.status_code == 200:
        activity_log.note(
            engine(), actor, "result downloaded", "job", str(job_id), dataset=published.dataset
        )
    return response


def card(job_id: UUID) -> dict[str, Any]:
    """Return the data card of a job, with how many texts public rules left out where it counted
    them.
    """
    document: dict[str, Any] = data_cards.card(engine(), job_id, current_actor()).document()
    for artifact in document["artifacts"]:
        if artifact["name"] == LEFT_OUT:
            # without its file a card still says all that the ledger holds
            away = suppress(Conflict, NotFound, ResultsAway)
            with away, open_output(artifact["sha256"], job_id) as file:
                document["output"] |= json.load(file)
    return document


def _body(job_id: UUID, form: str, output_sha256: str) -> Iterator[bytes]:
    """Return the output in one format; what can't be one is refused before the first byte."""
    file = open_output(output_sha256, job_id)
    if form == "jsonl":
        return blocks(file)
    table = rows.columns(file)
    file.seek(0)
    lines = _lines(file)
    if form == "csv":
        return _joined(rows.csv_lines(lines, table))
    return parquet.write_output(
        lines, table, {"exchequer.job": str(job_id), "exchequer.sha256": output_sha256}
    )


def _columns(job_id: UUID, output_sha256: str) -> tuple[Column, ...]:
    """Return the columns of an output; none if it is no table."""
    try:
        with open_output(output_sha256, job_id) as file:
            return rows.columns(file)
    except InvalidRequest:
        return ()


def _lines(file: Published) -> Iterator[bytes]:
    with file:
        yield from file


def _joined(pieces: Iterator[str]) -> Iterator[bytes]:
    """Yield the same in larger pieces: one write to the network for each line would be slow."""
    block = bytearray()
    for piece in pieces:
        block += piece.encode("utf-8", "replace")
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def archive(
    file: DataFile,
    body: Iterator[bytes],
    card: dict[str, Any],
    about: dict[str, Any],
    made: date | None = None,
) -> Iterator[bytes]:
    """Yield a zip of a file and its card, made while it is sent; unpacked, a folder for
    `load_dataset` and for readers of Croissant.
    """
    sink, digest = Pieces(), sha256()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as zipped:
        with zipped.open(_member(file.name), "w", force_zip64=True) as member:
            for piece in body:
                digest.update(piece)
                member.write(piece)
                yield sink.take()
        hashed = replace(file, sha256=digest.hexdigest())
        for name, text in _texts_beside(hashed, card, about, made).items():
            zipped.writestr(_member(name), text)
    yield sink.take()


def _texts_beside(
    file: DataFile, card: dict[str, Any], about: dict[str, Any], made: date | None
) -> dict[str, str]:
    """Return the texts that say what a file is, by name."""
    loaded = file.name if file.media_type in _LOADED else ""
    described = croissant(card, file, about, made or datetime.now(UTC).date())
    documents = {"card.json": card, "croissant.json": described}
    return {
        "README.md": front_matter(card, loaded, about) + markdown(card),
        **{
            name: json.dumps(document, ensure_ascii=False, indent=2) + "\n"
            for name, document in documents.items()
        },
    }


def hashes(job_id: UUID, card: dict[str, Any], about: dict[str, Any], made: date) -> dict[str, str]:
    """Return the SHA-256 of each file in the archive of a result, by name."""
    output = jobs.output(engine(), job_id, current_actor())
    file = replace(_data_file(job_id, "jsonl", output.sha256), sha256=output.sha256)
    texts = _texts_beside(file, card, about, made)
    digests = {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return {file.name: file.sha256, **digests}


def zipped(job_id: UUID, card: dict[str, Any], about: dict[str, Any], made: date) -> Response:
    """Return the archive of a result whose card is as it was then."""
    output = jobs.output(engine(), job_id, current_actor())
    file = _data_file(job_id, "jsonl", output.sha256)
    body = archive(file, _body(job_id, "jsonl", output.sha256), card, about, made)
    # Programs that make clients of the API's description know no zip.
    response = Response(body, mimetype="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{job_id}.zip"'
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _data_file(job_id: UUID, form: str, output_sha256: str) -> DataFile:
    columns = _columns(job_id, output_sha256)
    return DataFile(f"{job_id}.{form}", FORMATS[form], columns=columns)


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _LEAST_TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def first_texts(sha256: str, job_id: UUID, count: int) -> list[dict[str, Any]] | None:
    """Return the first texts of an output that the caller may read; None where the file is gone."""
    try:
        file = open_output(sha256, job_id, whole=False)
    except (NotFound, Conflict):
        return None
    with file:
        lines = iter(lambda: file.readline(_LONGEST_LINE_BYTES), b"")
        return [_text(line) for line in islice(lines, count)]


def search(
    job_id: UUID, count: int, skipped: int = 0, words: str = "", label: str = ""
) -> list[dict[str, Any]] | None:
    """So many lines after those `skipped` that hold all of `words`, in any case, and have the
    label.

    Each with `line`, its number in the file from 1. None where the file is gone. It is read from
    its beginning, a line at a time, as far as it takes.
    """
    read, wanted = _texts(job_id, skipped), words.casefold().split()
    if read is None:
        return None
    return list(islice((line for line in read if _matches(line, wanted, label)), count))


def sample(job_id: UUID, count: int, seed: str) -> list[dict[str, Any]] | None:
    """Return the labels of an output with how many texts each has, how many of these are cut, and
    so many `shown` of all, drawn by `seed`. None where the file is gone.

    No more than MOST_SAMPLED lines are read, and only what is shown is held.
    """
    read = _texts(job_id)
    if read is None:
        return None
    groups: dict[str, dict[str, Any]] = {}

    def counted() -> Iterator[dict[str, Any]]:
        for text in islice(read, MOST_SAMPLED):
            empty: dict[str, Any] = {"label": text.get("label"), "texts": 0, "cut": 0, "shown": []}
            group = groups.setdefault(str(text.get("label")), empty)
            group["texts"] += 1
            group["cut"] += text.get("complete") is False
            yield text

    def place(text: dict[str, Any]) -> bytes:
        return sha256(f"{seed} {text['line']}".encode()).digest()

    for text in sorted(nsmallest(count, counted(), key=place), key=lambda text: text["line"]):
        groups[str(text.get("label"))]["shown"].append(text)
    return list(groups.values())


def _texts(job_id: UUID, skipped: int = 0) -> Iterator[dict[str, Any]] | None:
    """Return the lines of an output, each with its number from 1; None where the file is gone."""
    try:
        output = jobs.output(engine(), job_id, current_actor())
        return _numbered(open_output(output.sha256, job_id, whole=False), skipped)
    except (NotFound, Conflict):
        return None


def _numbered(file: Published, skipped: int) -> Iterator[dict[str, Any]]:
    with file:
        lines = enumerate(iter(lambda: file.readline(_LONGEST_LINE_BYTES), b""), 1)
        for number, line in islice(lines, skipped, None):
            yield {**_text(line), "line": number}


def _matches(found: dict[str, Any], wanted: list[str], label: str) -> bool:
    text = str(found.get("text", found)).casefold() if wanted else ""
    return (not label or found.get("label") == label) and all(word in text for word in wanted)


def _text(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:  # longer than a page should show
        row = None
    return row if isinstance(row, dict) else {"text": line.decode("utf-8", "replace")}


def open_output(output_sha256: str, job_id: UUID, *, whole: bool = True) -> Published:
    """Open what a job published, an output or an artifact.

    Waits for a moment where the worker has just written the COMMIT. Raises NotFound where the file
    is gone, Conflict where its bytes changed, and ResultsAway where a store gives no answer.
    """
    try:
        return _opened(output_sha256, job_id, whole)
    except (Conflict, NotFound):
        raise
    except Exception as error:  # of whatever library reads this kind of address
        current_app.logger.warning("results do not answer: %s", type(error).__name__)
        raise ResultsAway from None


def _opened(output_sha256: str, job_id: UUID, whole: bool) -> Published:
    results = Results(settings().results)
    for _ in range(_TRIES):
        try:
            return results.open(output_sha256, whole=whole)
        except Changed as error:
            raise Conflict(str(error)) from None
        except (PermissionError, TimeoutError):  # of a store: the file may be there
            raise
        except OSError:
            if all(job != job_id for _, job, _ in results.drafts()):
                break
        time.sleep(_PAUSE_SECONDS)
    try:
        return results.open(output_sha256, whole=whole)
    except OSError:
        raise NotFound("file of the result of job", str(job_id)) from None


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of a file, a block at a time; it is closed at the end."""
    with file:
        while block := file.read(_BLOCK_BYTES):
            yield block
