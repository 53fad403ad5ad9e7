"""A receiver of notices, as a process: `python receiver.py LOG` prints its port and writes what it
gets.

/ok 200 · /fail 500 · /gone 410 · /redirect 302 to /ok · /flaky/N 500 for N times, then 200
/slow answers after a minute · /drip sends a byte a second · /endless answers 200 and never ends
/fails-while/FILE 500 while FILE exists
"""

import json
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

LOG = Path(sys.argv[1])
LOCK = threading.Lock()
SEEN: Counter[str] = Counter()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with LOCK:
            SEEN[self.path] += 1
            count = SEEN[self.path]
            with LOG.open("a") as file:
                line = {
                    "path": self.path,
                    "headers": {k.lower(): v for k, v in self.headers.items()},
                    "body": body,
                }
                file.write(json.dumps(line) + "\n")
        name, _, rest = self.path[1:].partition("/")
        self.answer(name, unquote(rest), count)

    def answer(self, name: str, rest: str, count: int) -> None:
        if name == "slow":
            time.sleep(60)
        if name == "drip":
            self.wfile.write(b"HTTP/1.1 2")
            while True:
                self.wfile.write(b"0")
                self.wfile.flush()
                time.sleep(0.2)
        status = {"fail": 500, "gone": 410, "redirect": 302}.get(name, 200)
        if name == "flaky" and count <= int(rest):
            status = 500
        if name == "fails-while" and Path(rest).exists():
            status = 503
        self.send_response(status)
        if name == "redirect":
            self.send_header("Location", "/ok")
        self.end_headers()
        while name == "endless":
            self.wfile.write(b"x" * 65536)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_address[1], flush=True)
server.serve_forever()
