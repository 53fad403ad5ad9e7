"""The log of a service as others see it: published, cosigned over HTTP, and proved in exports."""

import subprocess
import sys
from itertools import pairwise

import pytest

from accountant.core.errors import Conflict, InvalidRequest, LogUnusable, VerificationFailed
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.transparency.notes import COSIGNATURE, key_of
from accountant.core.transparency.proofs import Demands, check_export
from accountant.core.transparency.witnesses import LogSigner
from accountant.ledger_log.files import FolderLog
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import entries_from, log_proof, publish_log
from accountant.queries import entries as entry_queries
from tests.accountant.ledger_log.test_files import chain, write
from tests.restores import ground

ORIGIN, NAME = "exchequer.example/log", "witness.example/one"
SEED, WITNESS_SEED = b"s" * 32, b"w" * 32
LOG, WITNESS = key_of(ORIGIN, SEED), key_of(NAME, WITNESS_SEED, COSIGNATURE)

#: A witness on the network: C2SP's add-checkpoint and nothing else.
SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from accountant.core.transparency.notes import read_key
from tests.witness import Witness
folder, name, seed, log = sys.argv[1:]
key = read_key(log)
witness = Witness(Path(folder), name, bytes.fromhex(seed), {key.name: key})
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        known = self.path == "/add-checkpoint"
        status, answer = witness.add_checkpoint(body) if known else (404, "")
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer.encode())
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Start a witness of a log by its key; returns its address."""
    processes = []

    def start(key: str) -> str:
        folder = tmp_path_factory.mktemp("witness")
        command = [sys.executable, "-c", SERVER, str(folder), NAME, WITNESS_SEED.hex(), key]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout is not None
        return f"http://127.0.0.1:{int(processes[-1].stdout.readline())}"

    yield start
    for each in processes:
        each.kill()
        each.wait()


@pytest.fixture
def log(tmp_path):
    made = FolderLog(tmp_path / "log", segment_bytes=2_000)
    made.begin()
    return made


def test_a_line_that_was_changed_is_not_published(log):
    write(log, "a", chain(35))
    path = log.segments()[2]
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"seq":1', b'"seq":2', 1))
    with pytest.raises(LogUnusable):
        list(entries_from(log, 0, 35))


@pytest.mark.slow
def test_a_service_publishes_and_its_exports_prove_their_place(servers, tmp_path, started):
    address = started(str(LOG))
    signer, folder = LogSigner(tmp_path / "signer", ORIGIN, SEED), tmp_path / "public"
    with ground(servers, tmp_path / "log") as site:
        bench = site.bench

        def exported() -> list[str]:
            pieces = entry_queries.export(
                site.engine, bench.dataset, bench.steward, "jsonl", log=folder
            )
            return "".join(map(str, pieces)).splitlines(keepends=True)

        assert verify_lines(exported()).log_proof is None  # nothing is published yet
        sizes = []
        for _ in range(2):
            bench.submit()
            head = publish_log(log_at(site.folder), folder, signer, {address: str(WITNESS)})
            sizes.append(head.size)
            found = verify_lines(exported())
            asked = Demands(LOG, [WITNESS], folder=folder)
            seq, place = check_export(found.dataset, found.hashes, found.log_proof, asked)
            assert (seq, place.head) == (found.entries, head)
        assert all(first < second for first, second in pairwise(sizes))
        (folder / "places").rename(folder / "elsewhere")  # nothing says where to look
        assert verify_lines(exported()).log_proof is None
        (folder / "checkpoint").write_text("nothing")
        with pytest.raises(Conflict, match="the published log can't prove anything"):
            exported()


def test_a_witness_that_is_away_or_another_one_stops_the_checkpoint_alone(log, tmp_path, started):
    write(log, "a", chain(5))
    signer, folder = LogSigner(tmp_path / "signer", ORIGIN, SEED), tmp_path / "public"
    publish_log(log, folder, signer, {})
    kept = (folder / "checkpoint").read_bytes()
    write(log, "a", chain(2, log.head("a")))
    with pytest.raises(
        VerificationFailed, match=r"the witness at http://127\.0\.0\.1:9 gives no answer"
    ):
        publish_log(log, folder, signer, {"http://127.0.0.1:9": str(WITNESS)})
    other = key_of("witness.example/two", b"x" * 32, COSIGNATURE)
    with pytest.raises(VerificationFailed, match="signed by none of the keys"):
        publish_log(log, folder, signer, {started(str(LOG)): str(other)})
    for key in (str(LOG), "nonsense"):
        with pytest.raises(InvalidRequest, match="public_log_witnesses"):
            publish_log(log, folder, signer, {"http://127.0.0.1:9": key})
    assert (folder / "checkpoint").read_bytes() == kept
    assert log_proof(folder, "a", 99)["seq"] == 5
