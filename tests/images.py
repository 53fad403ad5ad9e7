"""Both images, built from Debian's packages alone, and the services of docker-compose.yml in them.

    python -m tests.images [FOLDER]

As root, with buildah, debootstrap, bubblewrap and a PostgreSQL that has TLS (Debian's packages). No
registry of images and no daemon is asked: debootstrap makes the base with Debian's Python, in place
of PYTHON_IMAGE. What a service runs sees its image as Docker would show it: read-only, without
capabilities, as a user without a name, with the volumes of the file and a /tmp of its own.
PostgreSQL and Valkey are this machine's, as in tests.composed. What was built, 3 GB, is kept in
FOLDER, or nowhere.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import httpx2

from tests.composed import ROOT, Composed, encrypting_postgres
from tests.web.stack.test_composed import migrated, ready, until
from tests.workers.conftest import SAMPLE
from tests.workers.jobs.test_jobs import DATA
from workers.sample import LABELS

#: Whose numbers no image knows: "any uid" is one that has no name in /etc/passwd.
ANY = 23456
TARGETS = {
    "web": ("certificates", "migrate", "web", "relay", "signer"),
    "worker": ("worker", "checks"),
}
INSIDE = "/opt/exchequer/.venv/bin:/usr/local/bin:/usr/bin:/bin"
BASE = "python3,python3-venv,python3-pip,ca-certificates"


def said(*command: str | Path, **options: object) -> str:
    """What a program prints; it has to succeed."""
    ended = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, **options
    )
    if ended.returncode:
        raise SystemExit(f"{command[0]} failed:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.stdout.strip()


class Builder:
    """Images in a folder, and the root of each as a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.buildah = (
            "buildah",
            "--storage-driver=overlay",
            f"--root={folder}/storage",
            f"--runroot={folder}/run",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        said(*self.buildah, "umount", "--all")
        said(*self.buildah, "rm", "--all")

    def base(self) -> None:
        """Debian with its Python, called as in Docker's image."""
        root = self.folder / "base"
        if root.exists():
            return
        release = said("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME")
        said("debootstrap", "--variant=minbase", f"--include={BASE}", release, root)
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        (self.folder / "Dockerfile").write_text("FROM scratch\nCOPY base /\n")
        said(*self.buildah, "build", "--isolation=chroot", "--tag=base", self.folder)

    def build(self, target: str) -> tuple[Path, float]:
        """Build one; where its root lies, and the seconds that it took.

        Packages come from where pip of this machine has them.
        """
        began = time.monotonic()
        # what pip is told on this machine, which no image needs to know
        places = [Path(each) for each in os.environ.get("PIP_FIND_LINKS", "").split()]
        places += [Path("/etc/pip.conf"), Path("/etc/ssl/certs")]
        told = [f"--volume={each}:{each}:ro" for each in places if each.exists()]
        told += [f"--env={each}={os.environ[each]}" for each in os.environ if each[:4] == "PIP_"]
        said(
            *(
                *self.buildah,
                "build",
                "--layers",
                "--isolation=chroot",
                "--network=host",
                "--pull-never",
            ),
            *("--build-arg=PYTHON_IMAGE=localhost/base", "--build-arg=TORCH=cpu", *told),
            *(f"--target={target}", f"--tag={target}", ROOT),
        )
        seconds = time.monotonic() - began
        container = said(*self.buildah, "from", "--pull-never", f"localhost/{target}")
        root = Path(said(*self.buildah, "mount", container))
        # Docker, too, makes these in a container before its root is closed.
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        for volume in ("data", "models"):
            (root / volume).mkdir()
        return root, seconds


class Contained(Composed):
    """The services of the file, each in its image."""

    def __init__(self, folder: Path, programs: Path, roots: dict[str, Path]) -> None:
        super().__init__(folder, programs)
        self.roots = {name: roots[image] for image, names in TARGETS.items() for name in names}
        for name in ("data", "models", "tls", "home"):
            (folder / name).mkdir(exist_ok=True)
        said("chown", "--recursive", str(ANY), folder)

    def within(self, name: str, command: list[str]) -> list[str]:
        if name not in self.roots:
            return super().within(name, command)
        return [
            *("bwrap", "--die-with-parent", "--ro-bind", str(self.roots[name]), "/"),
            *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--perms", "1777", "--tmpfs", "/tmp", "--bind", str(self.folder), str(self.folder)),
            *(
                "--bind",
                f"{self.folder}/data",
                "/data",
                "--bind",
                f"{self.folder}/models",
                "/models",
            ),
            *("--chdir", "/opt/exchequer", "setpriv", f"--reuid={ANY}", f"--regid={ANY}"),
            *("--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
            *("env", f"PATH={INSIDE}", *command),
        ]

    def stop(self) -> None:
        super().stop()  # which ends bwrap, and nobody behind setpriv
        subprocess.run(["pkill", "--signal=KILL", f"--uid={ANY}"], check=False)


@contextmanager
def started(folder: Path, roots: dict[str, Path]) -> Iterator[Contained]:
    """Every service of the file, ready."""
    programs = encrypting_postgres()
    if programs is None:
        raise SystemExit("no PostgreSQL with TLS is installed")
    made = Contained(folder, programs, roots)
    try:
        with migrated(made, programs):
            for name in ("web", "relay", "signer", "checks", "worker"):
                made.start(name)
            until(lambda: ready(made))
            yield made
            made.stop()
    finally:
        made.stop()


class Person:
    """Somebody with a token, who asks the web service at its socket."""

    def __init__(self, made: Contained, name: str, password: str) -> None:
        transport = httpx2.HTTPTransport(uds=str(made.folder / "web.sock"))
        self.http = httpx2.Client(base_url="http://web/api/v1", transport=transport, timeout=60)
        token = self.ask("POST", "/session", name=name, password=password)["token"]
        self.http.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, /, **body: object) -> dict:
        answer = self.http.request(method, path, json=body or None)
        if answer.is_error:
            raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def ended(self, path: str, *before: str) -> dict:
        """What lies at a path, once its state is none of these."""
        found: dict = {}

        def over() -> bool:
            found.update(self.ask("GET", path))
            return found["state"] not in before

        until(over)
        return found

    def ready(self, path: str) -> None:
        found = self.ended(path, "checking")
        assert found["state"] == "ready", found


def ran(made: Contained) -> dict:
    """A private-prediction job, from the first account to its texts, by what the services say."""
    words = secrets.token_hex(16)
    account = "exchequer user add first --role administrator --database --password-stdin"
    assert made.run("web", "sh", "-c", f"echo {words} | {account}") == 0, made.log("web")
    first = Person(made, "first", words)
    people = {}
    for role in ("steward", "analyst"):
        first.ask("POST", "/users", name=role, roles=[role], password=words)
        people[role] = Person(made, role, words)
    steward, analyst = people.values()
    shutil.copytree(SAMPLE / "model", made.folder / "models" / "sample")
    shutil.copy(SAMPLE / "private.csv", made.folder / "data")
    steward.ask("POST", "/models", name="sample", path="/models/sample", trained_on="public text")
    steward.ready("/models/sample")
    raw = {"name": "reviews", "uri": "/data/private.csv", "labels": list(LABELS), **DATA}
    steward.ask("POST", "/datasets", **raw | {"public_size": 3000})
    steward.ready("/datasets/reviews")
    steward.ask(
        "POST", "/datasets/reviews/allowance", epsilon="10", delta="0.000001", reason="a trial"
    )
    parameters = {"tokens_per_batch": 8, "batch_size": 64, "batches_per_label": 1}
    asked = {"mechanism": "private-prediction", "model": "sample", "purpose": "a trial"}
    job = analyst.ask("POST", "/jobs", dataset="reviews", parameters=parameters, **asked)
    ended = analyst.ended(f"/jobs/{job['id']}", "submitted", "queued", "running", "settling")
    if ended["state"] == "succeeded":
        answer = analyst.http.get(f"/jobs/{job['id']}/result")
        ended["texts"] = len(answer.raise_for_status().text.splitlines())
    return ended


def main() -> None:
    """The program."""
    with ExitStack() as stack:
        given = sys.argv[1:] or [stack.enter_context(tempfile.TemporaryDirectory(prefix="images-"))]
        kept = Path(given[0]).resolve()
        kept.mkdir(exist_ok=True)
        builder = stack.enter_context(Builder(kept))
        builder.base()
        roots = {}
        for target in TARGETS:
            roots[target], seconds = builder.build(target)
            print(f"{target}: built in {seconds:.0f} s, {packages(roots[target])} MB of packages")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="contained-")))
        folder.chmod(0o755)
        job = ran(stack.enter_context(started(folder, roots)))
    print(f"every service in its image; a job: {job['state']}, {job.get('texts')} texts")
    sys.exit(job["state"] != "succeeded")


def packages(root: Path) -> int:
    """The megabytes of what is installed in an image."""
    measured = ("du", "--summarize", "--apparent-size", "--block-size=1000000")
    return int(said(*measured, root / "opt/exchequer/.venv").split()[0])


if __name__ == "__main__":
    main()
