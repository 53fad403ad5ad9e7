"""Files that stewards send, over real HTTP: what is right is kept once, what is hostile leaves
nothing.
"""

import gzip
import hashlib
import io
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import fsspec
import httpx2
import pyarrow
import pytest
from pyarrow import parquet
from sqlalchemy import text

from accountant.catalogue import datasets, upload_places, uploads
from accountant.core.errors import InvalidRequest, NoRoom, NotFound, UploadsAway
from accountant.core.files.filetypes import HEAD_BYTES, Limits, Scanner
from accountant.identities import credentials
from accountant.results import S3_LIMITS
from accountant.settings import Settings
from tests.object_stores import CEPH, answering_503, bucket, ceph, frozen, s3
from tests.support import person
from tests.web.serving import Served, serving

__all__ = ["bucket", "ceph", "s3"]

MIB = 2**20
SETTINGS = {
    "upload_bytes": 48 * MIB,
    "upload_uncompressed_bytes": 96 * MIB,
    "upload_line_bytes": 2 * MIB,
}
CSV = b"title,text\nfirst,a letter\nsecond,another letter\n"
SECRET = b"Mrs Unmentionable has gout"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(database_url, tmp_path_factory) -> Iterator[Served]:
    with serving(database_url, tmp_path_factory.mktemp("home"), **SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def steward(engine):
    return person(engine, "steward")


@pytest.fixture(scope="module")
def token(engine, steward) -> dict[str, str]:
    return {"Authorization": f"Bearer {credentials.add_token(engine, steward.id, 'test', None)}"}


def send(server: Served, token: dict[str, str], content: object, **headers: str) -> httpx2.Response:
    return httpx2.post(
        f"{server.url}/api/v1/uploads", content=content, headers={**token, **headers}, timeout=300
    )


def rows(count: int, kind: str = "csv") -> bytes:
    if kind == "csv":
        return b"title,text\n" + b"".join(
            b"t%d,%s\n" % (n, os.urandom(40).hex().encode()) for n in range(count)
        )
    lines = ({"title": f"t{n}", "text": os.urandom(40).hex()} for n in range(count))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def as_parquet(table: dict[str, list], **options: object) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(table), sink, **options)
    return sink.getvalue()


# --- what is right ------------------------------------------------------------------------------

GOOD = {
    "csv": (CSV, ".csv", "csv", None),
    "csv with a mark": (b"\xef\xbb\xbf" + CSV, ".csv", "csv", None),
    "packed csv": (gzip.compress(CSV), ".csv.gz", "csv", "gzip"),
    "two members": (
        gzip.compress(CSV) + gzip.compress(b"third,one more\n") + b"\0" * 512,
        ".csv.gz",
        "csv",
        "gzip",
    ),
    "lines": (rows(3, "jsonl"), ".jsonl", "jsonl", None),
    "packed lines": (gzip.compress(rows(3, "jsonl")), ".jsonl.gz", "jsonl", "gzip"),
    "parquet": (as_parquet({"title": ["a", "b"], "text": ["c", "d"]}), ".parquet", "parquet", None),
    "over a MiB": (rows(30_000), ".csv", "csv", None),
    "a text of two lines": (b'title,text\na,"one\ntwo"\n', ".csv", "csv", None),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_file_becomes_an_address_that_a_dataset_may_name(server, token, engine, steward, case):
    content, suffix, form, compression = GOOD[case]
    answer = send(server, token, content)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    sha256 = hashlib.sha256(content).hexdigest()
    assert told["sha256"] == sha256
    assert told["address"] == str(server.uploads / f"{sha256}{suffix}")
    assert (told["format"], told["compression"]) == (form, compression)
    assert told["columns"] == ["title", "text"]
    assert told["bytes"] == len(content)
    kept = Path(told["address"])
    assert kept.read_bytes() == content
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.uploads.stat().st_mode) == 0o700
    # A worker with the same settings may open it, and reads the same columns.
    from workers.data import records

    settings = Settings(home=server.home, DATABASE_URL=None)
    assert records.check_address(told["address"], settings.data_root_list) == told["address"]
    found = list(records.rows(told["address"], told["columns"]))
    assert found
    assert all(not isinstance(each, records.Broken) for each in found)


def test_the_same_bytes_are_one_file(server, token, engine):
    content = rows(5)
    first, second = send(server, token, content), send(server, token, content)
    assert first.json()["address"] == second.json()["address"]
    assert sum(name.startswith(first.json()["sha256"]) for name in server.kept()) == 1


def test_the_kind_of_body_does_not_matter_and_a_form_is_told_what_to_send(server, token):
    content = rows(4)
    for named in ("application/x-www-form-urlencoded", "application/octet-stream", "text/csv"):
        assert send(server, token, content, **{"Content-Type": named}).status_code == 201
    answer = httpx2.post(
        f"{server.url}/api/v1/uploads",
        files={"file": ("x.csv", content)},
        headers=token,
        timeout=60,
    )
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["allowed"] == "the file itself as the body"


# --- what is hostile ----------------------------------------------------------------------------


def zipped() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.csv", CSV + b"a" * MIB)
    return sink.getvalue()


def bomb(mib: int) -> bytes:
    """A gzip stream of so many MiB of the same line: a thousandth of that."""
    packer = zlib.compressobj(9, wbits=31)
    line = b"t,aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n" * 4096
    pieces = [packer.compress(b"title,text\n")]
    pieces += [packer.compress(line) for _ in range(mib * MIB // len(line))]
    return b"".join([*pieces, packer.flush()])


def with_footer(content: bytes, change) -> bytes:
    """A Parquet file whose footer was changed, its length stated rightly."""
    length = struct.unpack("<I", content[-8:-4])[0]
    footer = change(content[-8 - length : -8])
    return content[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


TABLE = as_parquet({"title": ["a"] * 300, "text": ["b"] * 300}, compression="none")
MARKED = as_parquet({"title": ["a"], "text": [SECRET.decode()]}, compression="none")

BAD = {
    "nothing": (b"", "is empty"),
    "blank": (b"\n\n  \n", "is empty"),
    "only a header": (b"title,text\n", "no record"),
    "a zip archive": (zipped(), "zip"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + os.urandom(4000), "picture"),
    "noise": (bytes(range(128, 256)) * 40, "UTF-8"),
    "nul": (b"title,text\na," + SECRET + b"\0\n", "NUL"),
    "utf-16": ("title,text\na,b\n".encode("utf-16"), "UTF-16"),
    "latin-1": (b"title,text\na,caf\xe9 " + SECRET + b"\n", "UTF-8"),
    "cut inside a letter": ("title,text\na,é".encode()[:-1], "UTF-8"),
    "html": (b"<!doctype html><p>" + SECRET, "HTML"),
    "a json array": (b'[{"text": "' + SECRET + b'"}]', "JSON array"),
    "pretty json": (b'{\n "text": "' + SECRET + b'"\n}\n', "no JSON object"),
    "a broken line": (b'{"text": "a"}\n' + SECRET + b"\n", "line 2 is no JSON object"),
    "deep json": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "no JSON object"),
    "semicolons": (b"title;text\na;b\n", "separated by commas"),
    "ragged": (b"title,text\na,b\nc," + SECRET + b",d\n", "row 2 has 3 fields"),
    "a quote without end": (b'title,text\na,"b\n', "quoting"),
    "a name twice": (b"text,text\na,b\n", "same name"),
    "no header": (b"a long letter " * 40 + b",x\ny,z\n", "too long or not printable"),
    "a line in a name": (b'"tit\nle",text\na,b\n', "not printable"),
    "many columns": (
        b",".join(b"c%d" % n for n in range(1001)) + b"\n" + b"," * 1000 + b"\n",
        "1,001 columns",
    ),
    "many keys": (json.dumps({f"c{n}": n for n in range(1001)}).encode() + b"\n", "1,001 columns"),
    "a long line": (
        b"title,text\na,b\n" + b"c," + b"d" * (3 * MIB) + b"\n",
        "line that is too long",
    ),
    "no line end": (b"x" * (HEAD_BYTES + 5), "no line end"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "cut gzip": (gzip.compress(rows(1000))[:-20], "ends in the middle"),
    "broken gzip": (gzip.compress(CSV)[:-8] + bytes(8), "broken"),
    "noise after gzip": (gzip.compress(CSV) + b"noise" * 10, "broken"),
    "gzip in gzip": (gzip.compress(gzip.compress(CSV)), "packed twice"),
    "parquet in gzip": (gzip.compress(TABLE), "packed twice"),
    "a zip in gzip": (gzip.compress(zipped()), "zip"),
    "a bomb": (bomb(64), "far more"),
    "a hundred thousand members": (gzip.compress(b"a") * 100_000, "too many pieces"),
    "cut parquet": (TABLE[:-9], "does not end so"),
    "parquet of noise": (b"PAR1" + os.urandom(3000) + b"PAR1", "can't be read as Parquet"),
    "a footer beyond the file": (TABLE[:-8] + b"\xff\xff\xff\x7fPAR1", "can't be read as Parquet"),
    "parquet without records": (
        as_parquet({"text": pyarrow.array([], pyarrow.string())}),
        "no record",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_table_of_texts_is_refused_and_nothing_stays(server, token, engine, case):
    content, why = BAD[case]
    before = server.kept()
    answer = send(server, token, content)
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()["problems"][0]
    assert problem["field"] == "file"
    assert why in problem["problem"]
    assert "Unmentionable" not in answer.text
    assert server.kept() == before
    with engine.connect() as connection:
        known = text("SELECT count(*) FROM uploads WHERE sha256 = :sha256")
        assert (
            connection.execute(known, {"sha256": hashlib.sha256(content).hexdigest()}).scalar_one()
            == 0
        )


def test_metadata_that_lie_about_the_number_of_records_are_found_out(server, token):
    """300 rows: the zigzag varint of 300 is d8 04, of 299 d6 04; it stands in footer and row
    group.
    """
    fewer = with_footer(TABLE, lambda footer: footer.replace(b"\xd8\x04", b"\xd6\x04", 1))
    assert fewer != TABLE
    assert send(server, token, TABLE).status_code == 201
    answer = send(server, token, fewer)
    assert answer.status_code == 422, answer.text


def repeated(word_bytes: int, rows: int) -> bytes:
    """A Parquet file of one text in its dictionary, named by every row."""
    words, indices = pyarrow.array(["x" * word_bytes]), pyarrow.array([0] * rows, pyarrow.int32())
    table = pyarrow.table({"text": pyarrow.DictionaryArray.from_arrays(indices, words)})
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def test_a_parquet_bomb_ends_in_its_own_process(server, token):
    content = repeated(8 * MIB, 1_000_000)  # 8 TB
    assert len(content) < MIB
    before, kept = server.peak_bytes(), server.kept()
    answer = send(server, token, content)
    assert answer.status_code == 422, answer.text
    assert server.kept() == kept
    assert server.peak_bytes() - before < 32 * MIB


def test_the_process_that_reads_parquet_is_held_to_its_memory(tmp_path):
    """A batch of 1.75 GiB where one and a half may be had. (With room for it, it would tell the
    columns.)
    """
    file = tmp_path / "file"
    file.write_bytes(repeated(16 * MIB, 112))
    limits = {"memory": 3 * 2**29, "seconds": 60, "bytes": 10**15, "columns": 10}
    check = uploads._CHECK
    with file.open("rb") as source:
        ended = subprocess.run(
            [sys.executable, "-I", str(check), json.dumps(limits)],
            stdin=source,
            capture_output=True,
        )
    assert b"columns" not in ended.stdout


def stream(block: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield block


@pytest.mark.parametrize("chunked", [True, False])
def test_a_file_that_is_too_large_is_refused_in_little_memory(server, token, chunked):
    assert send(server, token, rows(100_000)).status_code == 201  # what an upload needs once
    before, kept = server.peak_bytes(), server.kept()
    block, count = rows(10_000), 200
    length = {} if chunked else {"Content-Length": str(len(block) * count)}
    assert len(block) * count > 3 * SETTINGS["upload_bytes"]
    try:
        answer = send(server, token, stream(block, count), **length)
    except (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError):
        assert chunked  # the server closed while we still sent
    else:
        assert answer.status_code == 413
        assert chunked or answer.json()["code"] == "too-large"
    assert server.kept() == kept
    assert server.peak_bytes() - before < 24 * MIB
    assert httpx2.get(f"{server.url}/healthz").status_code == 200


def test_a_bomb_is_refused_in_little_memory(server, token):
    send(server, token, rows(10))
    before = server.peak_bytes()
    assert send(server, token, bomb(200)).status_code == 422
    assert server.peak_bytes() - before < 24 * MIB


# --- who may ------------------------------------------------------------------------------------


def test_everybody_else_is_stopped_at_a_mib(server, engine, token):
    large = rows(30_000)
    assert len(large) > 2 * MIB
    before = server.kept()
    for role in ("analyst", "auditor", "administrator"):
        other = credentials.add_token(engine, person(engine, role).id, "test", None)
        assert send(server, {"Authorization": f"Bearer {other}"}, CSV).status_code == 403
    assert send(server, {}, CSV).status_code == 401
    assert send(server, {"Authorization": "Bearer exq_none"}, large).status_code == 401
    assert send(server, {}, large).status_code == 413  # a stranger's body is not even taken in
    answer = httpx2.post(f"{server.url}/api/v1/corpora", content=large, headers=token, timeout=60)
    assert answer.status_code == 413
    assert server.kept() == before


def test_a_page_takes_a_large_form_from_stewards_alone(site):
    """The form is read for its token before the view asks who sends it: a stranger's is not read at
    all.
    """
    large = rows(30_000)

    def sent(client) -> int:
        return client.post("/uploads", data={"file": (io.BytesIO(large), "x.csv")}).status_code

    assert sent(site.app.test_client()) == 413
    assert sent(site.pages("analyst").client) == 413
    assert sent(site.pages("steward").client) != 413


# --- what breaks --------------------------------------------------------------------------------


def begin(server: Served, token: dict[str, str], stated: int | None, sent: bytes) -> socket.socket:
    """A request whose body has begun; `stated` None: in chunks, the last of which is still to
    come.
    """
    connection = socket.create_connection(("127.0.0.1", server.port))
    how = "Transfer-Encoding: chunked" if stated is None else f"Content-Length: {stated}"
    if stated is None:
        sent = b"%x\r\n%b\r\n" % (len(sent), sent)
    lines = ["POST /api/v1/uploads HTTP/1.1", "Host: x", how]
    lines += [f"{name}: {value}" for name, value in token.items()]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + sent)
    return connection


def until(look, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_upload_that_breaks_off_leaves_nothing(database_url, token, engine, tmp_path):
    with serving(database_url, tmp_path, gunicorn=True, **SETTINGS) as server:
        for stated in (10 * MIB, None):
            connection = begin(server, token, stated, rows(20_000))
            until(server.kept)  # the draft
            assert stat.S_IMODE((server.uploads / server.kept()[0]).stat().st_mode) == 0o600
            connection.close()
            until(lambda: not server.kept())

        connection = begin(server, token, 10 * MIB, rows(20_000))
        until(lambda: server.kept() and (server.uploads / server.kept()[0]).stat().st_size > 10**6)
        time.sleep(1)
        # A living draft is nobody's leftover, however old it looks; a killed process's is.
        draft = server.uploads / server.kept()[0]
        os.utime(draft, (0, 0))
        store = uploads.Store.of(Settings(home=server.home, DATABASE_URL=None))
        assert uploads.sweep(engine, store) == 0
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
        connection.close()
        os.utime(draft, (0, 0))
        until(lambda: uploads.sweep(engine, store) == 1)  # its workers die a little later
        assert server.kept() == []


def test_a_full_disk_is_told_and_nothing_stays(database_url, token, tmp_path):
    with serving(database_url, tmp_path, gunicorn=True, file_bytes=MIB, **SETTINGS) as server:
        answer = send(server, token, rows(30_000))
        assert answer.status_code == 507, answer.text
        assert answer.json()["code"] == "no-room"
        assert server.kept() == []
        assert send(server, token, CSV).status_code == 201


# --- how long -----------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "s3", CEPH])
def store(request, tmp_path) -> uploads.Store:
    place = tmp_path / "uploads"
    if request.param != "folder":
        place = f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}"
    return uploads.Store.of(Settings(home=tmp_path, DATABASE_URL=None, uploads_folder=str(place)))


def content_at(address: str) -> bytes:
    with fsspec.open(address, "rb", use_listings_cache=False) as file:
        content: bytes = file.read()
    return content


def aged(engine, sha256: str) -> None:
    with engine.begin() as connection:
        older = text(
            "UPDATE uploads SET uploaded_at = uploaded_at - interval '4 days' WHERE sha256 = "
            ":sha256"
        )
        connection.execute(older, {"sha256": sha256})


def test_what_nothing_names_is_destroyed_in_time_and_what_a_dataset_names_stays(
    engine, steward, store
):
    named, unnamed, young = (uploads.receive(engine, store, [rows(3)], steward) for _ in range(3))
    spec = {"name": f"data-{uuid.uuid4().hex[:8]}", "uri": named["address"]}
    datasets.add_dataset(engine, datasets.read_dataset(spec), steward)
    for each in (named, unnamed):
        aged(engine, each["sha256"])
    assert uploads.sweep(engine, store) == 1
    left = {each["address"] for each in (named, young)}
    assert {store.place.address(name) for name in store.place.names()} == left
    told = {each["sha256"]: each for each in uploads.listing(engine, store, steward, limit=200)}
    assert told[named["sha256"]]["datasets"] == [spec["name"]]
    assert told[named["sha256"]]["expires_at"] is None
    assert unnamed["sha256"] not in told
    # Sent again it is there again, for as long as any other.
    content = rows(6)
    first = uploads.receive(engine, store, [content], steward)
    aged(engine, first["sha256"])
    assert uploads.sweep(engine, store) == 1
    again = uploads.receive(engine, store, [content], steward)
    assert uploads.sweep(engine, store) == 0
    assert content_at(again["address"]) == content


def test_of_a_file_that_is_refused_breaks_off_or_is_unknown_nothing_stays(
    engine, steward, store, monkeypatch
):
    def broken() -> Iterator[bytes]:
        yield CSV
        raise ConnectionError

    with pytest.raises(ConnectionError):
        uploads.receive(engine, store, broken(), steward)
    with pytest.raises(InvalidRequest):
        uploads.receive(engine, store, [b"title,text\na," + SECRET + b"\0\n"], steward)
    assert not store.place.names()
    content = as_parquet({"title": [uuid.uuid4().hex], "text": ["b"]})
    kept = uploads.receive(engine, store, [content], steward)
    assert content_at(kept["address"]) == content
    assert not store.place.is_lost(kept["address"].rpartition("/")[2])  # it is young
    monkeypatch.setattr(upload_places, "_DRAFT_SECONDS", 0.0)
    unknown = f"{uuid.uuid4().hex * 2}.csv"
    with store.place.draft() as draft:  # a process that was killed before its row was written
        draft.write(CSV)
        store.place.send(draft, unknown)
        store.place.keep(draft, unknown)
    assert uploads.sweep(engine, store) == 1
    assert [store.place.address(name) for name in store.place.names()] == [kept["address"]]


def test_a_file_that_a_sweep_takes_while_it_is_sent_is_sent_again(engine, steward, store):
    """It ran between the sending and the row."""
    real = store.place.send

    def send(draft, name):
        real(draft, name)
        if len(sent) == 0:
            upload_places.remove(store.place.address(name))
        sent.append(name)

    sent: list[str] = []
    if not hasattr(store.place, "_store"):
        pytest.skip("a rename under the lock is not sent before")
    with mock.patch.object(store.place, "send", send):
        kept = uploads.receive(engine, store, [rows(3)], steward)
    assert len(sent) == 2
    assert content_at(kept["address"])
    uploads.discard(engine, kept["sha256"], steward)
    assert not store.place.names()


def test_what_lies_in_a_store_is_what_a_worker_of_these_settings_opens(
    engine, steward, bucket, tmp_path
):
    from workers.data import records

    place = f"{bucket}/{uuid.uuid4().hex}"
    settings = Settings(home=tmp_path, DATABASE_URL=None, uploads_folder=f"{place}/")
    kept = uploads.receive(engine, uploads.Store.of(settings), [CSV], steward)
    address = records.check_address(kept["address"], settings.data_root_list)
    assert address == f"{place}/{hashlib.sha256(CSV).hexdigest()}.csv"
    assert list(records.rows(address, kept["columns"]))


@pytest.mark.parametrize("away", [answering_503, frozen])
def test_a_store_that_is_away_is_told_and_nothing_of_the_file_is(
    engine, steward, s3, tmp_path, monkeypatch, caplog, away
):
    monkeypatch.setitem(S3_LIMITS, "read_timeout", 0.4)
    monkeypatch.setattr("accountant.results.S3_SECONDS", 1)
    place = f"{s3}/{uuid.uuid4().hex}"
    store = uploads.Store.of(Settings(home=tmp_path, DATABASE_URL=None, uploads_folder=place))
    kept = uploads.receive(engine, store, [rows(3)], steward)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    content = b"title,text\nthird," + SECRET + b"\n"
    with away():
        assert store.place.problem().startswith("uploads can't be kept: ")
        for step in (
            lambda: uploads.receive(engine, store, [content], steward),
            lambda: uploads.discard(engine, kept["sha256"], steward),
            lambda: uploads.sweep(engine, store),
        ):
            with pytest.raises(UploadsAway) as told:
                step()
            assert "Unmentionable" not in str(told.value) + caplog.text
            assert told.value.__cause__ is None
    assert list(tmp_path.iterdir()) == []
    assert store.place.problem() is None
    assert uploads.show(engine, store, kept["sha256"], steward) == kept
    uploads.discard(engine, kept["sha256"], steward)
    assert store.place.names() == []


@pytest.mark.parametrize("code", upload_places._FULL_CODES)
def test_a_store_without_room_says_what_a_full_disk_says(engine, steward, tmp_path, code):
    place = f"memory://{uuid.uuid4().hex}"
    store = uploads.Store.of(Settings(home=tmp_path, DATABASE_URL=None, uploads_folder=place))
    cause = Exception()
    cause.response = {"Error": {"Code": code}}

    def put_file(*_):
        raise OSError(5, "as a library says it") from cause

    with mock.patch.object(store.place._store[0], "put_file", put_file), pytest.raises(NoRoom):
        uploads.receive(engine, store, [rows(3)], steward)


def test_a_steward_destroys_what_nothing_names(site, engine):
    from web.context import settings

    api = site.api("steward")
    sent = api.raw("/uploads", rows(3)).json
    assert api.get("/uploads").json["uploads"][0]["sha256"] == sent["sha256"]
    assert api.get(f"/uploads/{sent['sha256']}").json == sent
    assert (
        api.client.delete(f"/api/v1/uploads/{sent['sha256']}", headers=api.headers).status_code
        == 200
    )
    assert not Path(sent["address"]).exists()
    assert api.get(f"/uploads/{sent['sha256']}").status_code == 404
    kept = api.raw("/uploads", rows(3)).json
    datasets.add_dataset(
        engine,
        datasets.read_dataset({"name": f"d-{uuid.uuid4().hex[:8]}", "uri": kept["address"]}),
        site.actor("steward"),
    )
    assert (
        api.client.delete(f"/api/v1/uploads/{kept['sha256']}", headers=api.headers).status_code
        == 409
    )
    assert site.api("analyst").get("/uploads").status_code == 403
    with site.app.app_context():
        assert settings().uploads == Path(kept["address"]).parent


# --- the page -----------------------------------------------------------------------------------


def test_a_page_takes_a_file_and_says_what_is_wrong_with_it(site):
    browser = site.pages("steward")
    assert (
        "No files yet" in browser.get("/uploads").text or "Destroy" in browser.get("/uploads").text
    )

    def put(content: bytes):
        form = {"csrf_token": browser.token("/uploads"), "file": (io.BytesIO(content), "notes.csv")}
        return browser.client.post("/uploads", data=form, content_type="multipart/form-data")

    assert put(rows(30_000)).status_code == 303  # over a MiB
    assert "title, text" in browser.get("/uploads").text
    refused = put(b"\x89PNG\r\n")
    assert refused.status_code == 422
    assert "is a picture" in refused.text
    assert browser.post("/uploads", "/uploads").status_code == 422  # no file at all

    other = site.pages("analyst")
    form = {"csrf_token": other.token("/"), "file": (io.BytesIO(rows(30_000)), "notes.csv")}
    assert (
        other.client.post("/uploads", data=form, content_type="multipart/form-data").status_code
        == 413
    )
    small = {"csrf_token": other.token("/"), "file": (io.BytesIO(CSV), "notes.csv")}
    assert (
        other.client.post("/uploads", data=small, content_type="multipart/form-data").status_code
        == 403
    )


# --- the scanner alone --------------------------------------------------------------------------


LIMITS = Limits(10 * MIB, 200, MIB, 1000)
EACH = [
    ("uncompressed_bytes", 1000, "holds more"),
    ("line_bytes", 20, "line"),
    ("columns", 1, "2 columns"),
]


@pytest.mark.parametrize(("limit", "most", "why"), EACH)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [10, 10**6])
def test_each_limit_holds_by_itself(limit, most, why, packed, size):
    content = gzip.compress(rows(100)) if packed else rows(100)
    scanner = Scanner(replace(LIMITS, **{limit: most}))

    def scan() -> None:
        for start in range(0, len(content), size):
            scanner.feed(content[start : start + size])
        scanner.finish()

    with pytest.raises(InvalidRequest, match=why):
        scan()


@pytest.mark.parametrize("size", [1, 1000])
def test_how_a_file_is_cut_into_blocks_changes_nothing(size):
    cases = {
        **{case: content for case, (content, *_) in GOOD.items()},
        **{c: b for c, (b, _) in BAD.items()},
    }
    for case, content in cases.items():
        if len(content) > 10_000:
            continue

        def outcome(step: int, content: bytes = content) -> object:
            scanner = Scanner(LIMITS)
            try:
                for start in range(0, len(content), step):
                    scanner.feed(content[start : start + step])
                return scanner.finish()
            except InvalidRequest as error:
                return str(error)

        assert outcome(size) == outcome(len(content) or 1), case


def announced(server: Served, path: str, headers: dict[str, str]) -> str:
    """The first line that answers the headers of a request whose large body is still to come."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {50 * MIB}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        try:
            return connection.recv(100).decode().partition("\r\n")[0]
        except TimeoutError:
            return "it waits for the body"


def test_a_large_body_is_taken_in_from_nobody_but_a_steward(
    database_url, engine, steward, tmp_path
):
    """waitress writes it to a file before the application looks: credentials that are none open no
    disk.
    """
    analyst = credentials.add_token(engine, person(engine, "analyst").id, "test", None)
    real = credentials.add_token(engine, steward.id, "test", None)
    with serving(database_url, tmp_path, upload_bytes=100 * MIB) as server:
        refused = {
            "401": {"Authorization": "Bearer exq_none"},
            "403": {"Authorization": f"Bearer {analyst}"},
        }
        for status, headers in refused.items():
            assert f" {status} " in announced(server, "/api/v1/uploads", headers)
        page = announced(server, "/uploads", {"Cookie": "exchequer=made-up"})
        assert page.startswith("HTTP/1.1 4")
        waits = announced(server, "/api/v1/uploads", {"Authorization": f"Bearer {real}"})
        assert waits == "it waits for the body"


def test_a_steward_sees_and_destroys_their_own_files_alone(site, engine, store):
    other, own = person(engine, "steward"), site.actor("steward")
    theirs = uploads.receive(engine, store, [rows(3)], other)
    sha256 = theirs["sha256"]
    assert sha256 in [each["sha256"] for each in uploads.listing(engine, store, other)]
    assert sha256 not in [each["sha256"] for each in uploads.listing(engine, store, own)]
    with pytest.raises(NotFound):
        uploads.show(engine, store, sha256, own)
    with pytest.raises(NotFound):
        uploads.discard(engine, sha256, own)
    assert content_at(theirs["address"])


def test_one_bad_row_keeps_no_other_and_destroys_no_file_elsewhere(
    engine, steward, store, tmp_path
):
    bad, good = (uploads.receive(engine, store, [rows(3)], steward) for _ in range(2))
    elsewhere = tmp_path / Path(bad["address"]).name
    elsewhere.write_text("not an upload")
    with engine.begin() as connection:
        moved = text("UPDATE uploads SET address = :address WHERE sha256 = :sha256")
        connection.execute(moved, {"address": str(elsewhere), "sha256": bad["sha256"]})
    for each in (bad, good):
        aged(engine, each["sha256"])
    uploads.sweep(engine, store)
    assert elsewhere.exists()
    assert not Path(good["address"]).exists()
