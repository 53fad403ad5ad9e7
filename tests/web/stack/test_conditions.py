"""Machines that lack something, each in a namespace of its own: a sentence with a remedy, no
traceback.
"""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accountant.core.files.private import private_draft

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
COMMAND = f"{sys.executable} -m web.cli"


def run(
    setup: str,
    command: str,
    home: Path,
    *,
    wrapper: tuple[str, ...] = ("unshare", "-m", "-n"),
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command in new mount and network namespaces, after `setup` changed what is in them."""
    if (
        shutil.which(wrapper[0]) is None
        or subprocess.run([*wrapper, "true"], capture_output=True).returncode
    ):
        pytest.skip(f"this machine does not permit `{' '.join(wrapper)}`")
    home.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    return subprocess.run(
        [*wrapper, "sh", "-ec", f"{setup or 'ip link set lo up'}\nexec {command}"],
        env={
            **environment,
            "MACHINE": str(home),
            "EXCHEQUER_HOME": str(home / "home"),
            **variables,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.parametrize(
    ("setup", "told", "remedy"),
    [
        (
            "mount -t tmpfs -o ro none $MACHINE",
            "/home: Read-only file system",
            "Set EXCHEQUER_HOME",
        ),
        (
            "mount -t tmpfs -o size=200m none $MACHINE",
            "MB of disk left",
            "Make room, or set EXCHEQUER_HOME",
        ),
        ("mount -t tmpfs -o size=64k none /dev/shm", "/dev/shm has no 8 MB", "--shm-size=256m"),
        ("mount -t tmpfs -o ro none /dev/shm", "/dev/shm has no 8 MB", "--shm-size=256m"),
        (
            "ip addr del 127.0.0.1/8 dev lo; export EXCHEQUER_HOST=127.0.0.1",
            "can't listen on 127.0.0.1",
            "EXCHEQUER_HOST=::1",
        ),
        ("ip link set lo down", "can't listen on 127.0.0.1", "ip link set lo up"),
        ("ulimit -n 40", "may open 40 files", "ulimit -n 1024"),
    ],
    ids=[
        "read-only home",
        "200 MB",
        "small shm",
        "read-only shm",
        "IPv6 only",
        "no loopback",
        "files",
    ],
)
def test_a_stack_that_cannot_start_says_why_and_what_to_do(
    tmp_path: Path, setup: str, told: str, remedy: str
) -> None:
    machine = tmp_path / "machine"
    answer = run(f"ip link set lo up; {setup}", f"{COMMAND} up", machine)
    if answer.returncode == 0:
        run("", f"{COMMAND} down", machine)
    assert answer.returncode == 1, answer.stderr
    assert told in answer.stderr
    assert remedy in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="about root's stack")
def test_root_without_capabilities_is_told(tmp_path: Path) -> None:
    wrapper = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    answer = run("true", f"{COMMAND} up", tmp_path, wrapper=wrapper)
    assert "this root may not become another user" in answer.stderr
    assert "add the capabilities CHOWN, SETGID, SETUID, or set DATABASE_URL" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_little_shared_memory_and_no_locale_are_enough_for_the_servers(tmp_path: Path) -> None:
    """The 64 MB that a container has, and a locale that the machine does not have."""
    code = """
import pathlib, sys
from web.local import Servers
with Servers(pathlib.Path(sys.argv[1])):
    print('up')
"""
    (tmp_path / "servers.py").write_text(code)
    answer = run(
        "mount -t tmpfs -o size=64m none /dev/shm",
        f"env PYTHONPATH={ROOT} {sys.executable} {tmp_path}/servers.py {tmp_path}/home",
        tmp_path,
        LC_ALL="xx_XX.UTF-8",
    )
    assert (answer.returncode, answer.stdout) == (0, "up\n"), answer.stderr


# --- commands that start nothing
# --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [("price private-prediction --json", ""), ("--version", "1"), ("price --help", "")],
)
def test_output_onto_a_full_disk_is_a_sentence(words: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "web.cli", *words.split()]
        variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        answer = subprocess.run(
            command, cwd=ROOT, env=variables, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert answer.returncode == 1
    assert "Exception ignored" not in answer.stderr
    assert "No space left on device" in answer.stderr
    assert "Make room on that disk" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("closed", "code"), [("price noisy-count >&-", 0), ("job 2>&- >&-", 2), ("--help | :", 0)]
)
def test_a_closed_output_is_no_error(closed: str, code: int) -> None:
    command = f"exec {sys.executable} -m web.cli {closed}"
    answer = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (code, "", "")


def test_an_interruption_while_it_loads_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "httpx2.py").write_text("raise KeyboardInterrupt")
    command = [sys.executable, "-m", "web.cli", "job", "list"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    answer = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "package", ["scipy", "httpx2"], ids=["when it is used", "when the command starts"]
)
def test_a_library_that_cannot_be_loaded_is_a_sentence(tmp_path: Path, package: str) -> None:
    broken = (
        "raise ImportError('libgfortran.so.5: cannot open shared object file: No such file or "
        "directory')"
    )
    (tmp_path / f"{package}.py").write_text(broken)
    command = [sys.executable, "-m", "web.cli", "price", "private-prediction"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    answer = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert answer.returncode == 1
    assert "libgfortran.so.5" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_too_few_files_are_a_sentence() -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))

    command = [sys.executable, "-m", "web.cli", "price", "private-prediction"]
    answer = subprocess.run(command, cwd=ROOT, preexec_fn=few, capture_output=True, text=True)
    assert "Traceback" not in answer.stderr
    assert answer.returncode == 0 or "ulimit -n 1024" in answer.stderr


def test_a_full_disk_never_leaves_an_empty_password(tmp_path: Path) -> None:
    """On a real disk of 64 kB that something else has filled."""
    code = """
import pathlib, sys
from accountant.core.files.private import private_draft
path = pathlib.Path(sys.argv[1]) / "steward-password"
with private_draft(path, "first") as draft: draft.replace(path)
try:
    (path.parent / "other").write_bytes(bytes(10**6))
except OSError: pass
try:
    with private_draft(path, "second" * 10**4) as draft: draft.replace(path)
except OSError as error: print(error)
print(path.read_text(), *sorted(each.name for each in path.parent.iterdir()))
"""
    (tmp_path / "write.py").write_text(code)
    folder = tmp_path / "disk"
    answer = run(
        "mount -t tmpfs -o size=64k none $MACHINE",
        f"env PYTHONPATH={ROOT} {sys.executable} {tmp_path}/write.py {folder}",
        folder,
    )
    assert answer.stdout.splitlines() == [
        f"[Errno 28] No space left on device: '{folder}/steward-password'",
        "first other steward-password",
    ], answer.stderr


def test_a_private_file_is_for_its_owner_and_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "password"
    with private_draft(path, "first") as draft:
        draft.replace(path)
    with pytest.raises(OSError, match="No such"), private_draft(path, "second") as draft:
        draft.rename("/no such folder/password")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "first"
    assert [each.name for each in path.parent.iterdir()] == ["password"]
