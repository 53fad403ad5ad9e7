"""An OpenAI-compatible endpoint for tests, as a process.

`python -m tests.workers.generation.completions LOG` prints its port and writes a line for each
request. It writes with the bundled model, greedily. The first part of the address says how it
behaves:

    /good              answers
    /flaky/N           dies (closes the connection) N times, then answers
    /dead              closes every connection
    /hangs             never answers; /drips sends a byte of a header now and then
    /rubbish           200 and no JSON; /empty JSON without a completion; /endless never stops
                       sending
    /refuses/STATUS    that status; /redirects elsewhere
    /gate/FILE         503 while FILE exists
"""

import json
import socket
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from workers import models
from workers.data.public_text import PublicPrompt, vouch
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, answers
from workers.sample import MODEL_DIR

LOG = Path(sys.argv[1])
LOCK = threading.Lock()
SEEN: Counter[str] = Counter()
MODEL = models.load(MODEL_DIR, models.digest(MODEL_DIR))


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour, rest = self.path[1:].split("/", 1)
        with LOCK:
            SEEN[behaviour] += 1
            count = SEEN[behaviour]
            headers = {name.lower(): value for name, value in self.headers.items()}
            with LOG.open("a") as file:
                file.write(json.dumps({"path": self.path, "headers": headers, "body": body}) + "\n")
        match behaviour:
            case "dead":
                self.connection.shutdown(socket.SHUT_RDWR)
            case "flaky" if count <= int(rest.split("/")[0]):
                self.connection.shutdown(socket.SHUT_RDWR)
            case "hangs":
                time.sleep(3600)
            case "drips":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while True:
                    self.wfile.write(b"0")
                    self.wfile.flush()
                    time.sleep(0.1)
            case "rubbish":
                self.answer(200, b"<html>all is well</html>")
            case "empty":
                self.answer(200, b'{"choices": [{"text": null}]}')
            case "endless":
                self.send_response(200)
                self.end_headers()
                while True:
                    self.wfile.write(b"x" * 65536)
            case "redirects":
                self.send_response(302)
                self.send_header("Location", "/good/v1/completions")
                self.end_headers()
            case "refuses":
                self.answer(int(rest.split("/")[0]), b"{}")
            case "gate" if Path(unquote(rest.split("/")[0])).exists():
                self.answer(503, b"{}")
            case _:
                self.answer(200, json.dumps(self.completion(body)).encode())

    def completion(self, body: dict) -> dict:
        chat = self.path.endswith("/chat/completions")
        text = body["messages"][0]["content"] if chat else body["prompt"]
        manner = Manner(body["max_tokens"], 0.0, (body.get("stop") or [""])[0])
        with LOCK:
            writer = LocalWriter(MODEL, generator(MODEL.device, 1))
            (found,) = answers(writer, [PublicPrompt(vouch(text), chat)], manner)
        choice = {"message": {"content": found}} if chat else {"text": found}
        return {"choices": [choice | {"finish_reason": "stop"}], "usage": {"total_tokens": 30}}

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
print(server.server_address[1], flush=True)
server.serve_forever()
