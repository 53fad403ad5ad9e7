"""Install what the locks name into a virtual environment, which is made first if need be.

    sh scripts/python.sh scripts/install.py web|web-service|libraries|service|dev

`service` is the libraries and this checkout as a package; `dev` is that and what tests and linters
need; `web` and `web-service` are the same for web, relay, signer and migrations. VENV names the
environment's folder, and TORCH the build of torch: cpu, cuda or auto.

An environment that is whole and up to date is left alone, which takes a moment. One that can't be
trusted (cut off, moved, without its Python) is made anew; downloads are in a cache. uv installs,
and pip where uv can't be had. Every file is checked against the hashes in the locks and nothing is
resolved anew, but for a build of torch that is not on the package index: its version is checked.
"""

import ast
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV, BUILD, RUNTIME, WORKER, CUDA, DEV = (
    ROOT / f"requirements{name}.lock" for name in ("-uv", "-build", "", "-worker", "-cuda", "-dev")
)
#: What defines each part: it is installed again when one of these files changes.
PARTS = {
    "web": (UV, BUILD, RUNTIME),
    "libraries": (UV, BUILD, WORKER, CUDA),
    "service": (BUILD, ROOT / "pyproject.toml", ROOT / "scripts" / "build_backend.py"),
    "dev": (DEV,),
}
#: The parts that each name asks for, in the order in which they are installed.
ASKED = {
    "web": ("web",),
    "web-service": ("web", "service"),
    "libraries": ("web", "libraries"),
    "service": ("web", "libraries", "service"),
    "dev": ("web", "libraries", "service", "dev"),
}
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
LOCKED = ("--require-hashes", "--no-deps", "--no-build-isolation")
ROOM = {
    "": 1.4,
    "cpu": 1.0,
    "cuda": 5.0,
    "dev": 0.5,
}  # gigabytes on disk, "" without torch; measured, rounded up

NO_CPU_BUILD = """
No build of torch {version} for the CPU is within reach: none lies where pip looks, and PyTorch's
index does not answer. To have one (0.2 GB), download it for Python {python} on a machine that
reaches that index ("Get started" on pytorch.org names it), put it into a folder, and run the same
command with PIP_FIND_LINKS=FOLDER before it."""
CUDA_INSTEAD = """
The package index has the build for CUDA, which works without an NVIDIA GPU too: 2.7 GB to download,
4.7 GB on disk. It comes now; Ctrl-C stops it."""

# What uv calls the settings of pip that say where packages are, and how it parts several values.
PIP_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "proxy": ("ALL_PROXY", ""),
}


class Failed(Exception):
    """An installation that can't go on; the text says why and what to do."""


class Environment:
    """A virtual environment with a record of the parts that are in it whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self.variables = {**os.environ, "PIP_USER": "0", "VIRTUAL_ENV": str(folder)}
        self.installer = [
            self.python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--no-compile",
        ]
        self.record: dict[str, str] = {}
        with suppress(OSError, ValueError):
            self.record = json.loads((folder / "exchequer.json").read_text())

    def fault(self, torch: str) -> str | None:
        """Return why this environment can't be used or added to, or None."""
        code = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
        try:
            answer = subprocess.run(
                [self.python, "-c", code], capture_output=True, text=True, check=False
            )
        except OSError:
            return "its Python is gone"
        version, ours = answer.stdout.strip(), f"{sys.version_info[0]}.{sys.version_info[1]}"
        made_as, has_torch = self.record.get("folder", str(self.folder)), self.record.get("torch")
        if answer.returncode:
            return "it has no pip" if "'pip'" in answer.stderr else "its Python does not run"
        if version != ours and (
            os.environ.get("PYTHON") or version not in ("3.11", "3.12", "3.13", "3.14")
        ):
            return f"it has Python {version}, and not {ours}"
        if self.record.get("unfinished"):
            return "an installation into it was cut off"
        if made_as != str(self.folder):
            return f"it was made as {made_as}"
        if has_torch and torch not in ("auto", has_torch):
            return f"its torch is built for {has_torch}"
        return None

    def make(self) -> None:
        """Make it with the Python that runs this, in place of what is there."""
        if self.folder.exists():
            names = {path.name for path in self.folder.iterdir()}
            if "pyvenv.cfg" not in names and names - {
                "bin",
                "include",
                "lib",
                "lib64",
                "exchequer.json",
            }:
                raise Failed(f"{self.folder} is no virtual environment: set VENV to another folder")
            # first: what is left of it can't be taken for whole
            Path(self.python).unlink(missing_ok=True)
            shutil.rmtree(self.folder)
        require_room(self.folder, "")
        self.folder.mkdir(parents=True)
        self.record = {}
        self.keep(folder=str(self.folder), unfinished="yes")
        command = [sys.executable, "-m", "venv", str(self.folder)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        if completed.returncode:
            raise Failed(
                (completed.stdout + completed.stderr).strip()[-1000:]
                + f"\n{sys.executable} can't make {self.folder}"
            )

    def lacks(self, part: str) -> bool:
        """Return True unless this part is installed as its files say."""
        return self.record.get(part) != digest(part)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Mark the environment as unfinished until the block has ended.

        An installer that fails by itself, as without a network, leaves no package half in place. On
        a full disk it does.
        """
        self.keep(folder=str(self.folder), unfinished="yes")
        try:
            yield
        except Failed:
            if shutil.disk_usage(self.folder).free > 0.1e9:
                self.keep(unfinished="")
            raise
        self.keep(unfinished="")

    def keep(self, **changed: str) -> None:
        """Change the record."""
        self.record |= changed
        draft = self.folder / "exchequer.json.new"
        draft.write_text(json.dumps(self.record, indent=1))
        draft.replace(self.folder / "exchequer.json")

    def prepare(self) -> None:
        """Install uv and the packages that build others. Without uv pip stays the installer."""
        uv = str(self.folder / "bin" / "uv")
        if self.can("--quiet", "--only-binary=:all:", *LOCKED, "-r", str(UV), dry=False) and _runs(
            [uv, "--version"]
        ):
            self.installer = [uv, "pip", "install"]
            self.variables = {**self._where_pip_looks(), **self.variables, **self._where_to_cache()}
        else:
            print("  uv can't be had here: pip installs, which takes minutes", flush=True)
        self.install(*LOCKED, "-r", str(BUILD))

    def install(self, *arguments: str) -> None:
        """Install packages. Raises Failed; what the installer said is shown then."""
        self.run(*self.installer, "--quiet", *arguments)

    def can(self, *arguments: str, dry: bool = True) -> bool:
        """Return True if the installer could install this."""
        return _runs([*self.installer, *(["--dry-run"] if dry else []), *arguments], self.variables)

    def run(self, *command: str) -> None:
        """Run a command in the checkout. Raises Failed where it fails."""
        if subprocess.run(command, cwd=ROOT, env=self.variables, check=False).returncode:
            free = shutil.disk_usage(self.folder).free / 1e9
            raise Failed(
                f"{Path(command[0]).name} failed, as it says above ({free:.1f} GB of disk are free)"
            )

    def _where_pip_looks(self) -> dict[str, str]:
        """Return pip's configuration as variables of uv, which does not read it."""
        listed = subprocess.run(
            [self.python, "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            check=False,
        )
        values: dict[str, list[str]] = {}
        for name, value in re.findall(r"^\S*\.([a-z-]+)=(['\"].*)$", listed.stdout, re.MULTILINE):
            values.setdefault(name, []).extend(ast.literal_eval(value).split())
        # A version is taken from any place that has it, as pip does: the hashes say whether it is
        # right.
        variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
        for name, (variable, separator) in PIP_SETTINGS.items():
            if values.get(name):  # one that is empty says nothing
                variables[variable] = (
                    separator.join(dict.fromkeys(values[name])) if separator else values[name][-1]
                )
        return variables

    def _where_to_cache(self) -> dict[str, str]:
        """Return a folder in the environment for uv's cache if its usual one can't be used."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        usual = Path(os.environ.get("UV_CACHE_DIR") or Path(base) / "uv")
        with suppress(OSError):
            usual.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=usual):
                if shutil.disk_usage(usual).free > ROOM["cuda"] * 1e9:
                    return {}
        return {"UV_CACHE_DIR": str(self.folder / "cache")}


def digest(part: str) -> str:
    """Return the hash of what defines a part."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in PARTS[part])).hexdigest()


def _runs(command: list[str], variables: dict[str, str] | None = None) -> bool:
    try:
        return not subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, check=False
        ).returncode
    except OSError:
        return False


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show what goes on, and how long it took."""
    print(f"  {name} ...", end="", flush=True)
    began = time.monotonic()
    try:
        yield
    except BaseException:
        print(flush=True)
        raise
    print(f" {time.monotonic() - began:.0f} s", flush=True)


def require_room(folder: Path, *parts: str) -> None:
    """Raise Failed where the disk has no room for these parts."""
    disk = next(parent for parent in folder.parents if parent.exists())
    needed, free = sum(ROOM[part] for part in parts), shutil.disk_usage(disk).free / 1e9
    if free < needed:
        raise Failed(
            f"{disk} has {free:.1f} GB free, and the installation takes {needed:.1f} GB: make "
            "room, or set VENV to a folder on another disk"
        )


def install_torch(environment: Environment, asked: str) -> str:
    """Install torch, built for what was asked; return "cpu" or "cuda".

    Without a GPU: a build for the CPU that lies where pip looks, else PyTorch's own index, else the
    package index, which has the build for CUDA. With one: PyTorch's own index, else the package
    index.
    """
    match = re.search(r"^torch==(\S+)", CUDA.read_text(), re.MULTILINE)
    assert match, f"{CUDA.name} names no torch"
    version, gpu = (
        match[1],
        Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None,
    )
    near, indexed = (
        ("--no-deps", f"torch=={version}+cpu"),
        (f"--torch-backend={asked}", f"torch=={version}"),
    )
    if (asked == "cpu" or (asked == "auto" and not gpu)) and environment.can(*near):
        with stage("torch for the CPU, from where pip looks"):
            environment.install(*near)
        return "cpu"
    environment.variables |= {"UV_HTTP_RETRIES": "0", "UV_HTTP_CONNECT_TIMEOUT": "5"}
    reached = asked != "cuda" and environment.installer[1] == "pip" and environment.can(*indexed)
    for name in ("UV_HTTP_RETRIES", "UV_HTTP_CONNECT_TIMEOUT"):
        environment.variables.pop(name)
    built_for = "cuda" if gpu and asked != "cpu" else "cpu"
    if reached:
        require_room(environment.folder, built_for)
        with stage(
            f"torch for {'the CPU' if built_for == 'cpu' else 'this GPU'}, from PyTorch's index"
        ):
            environment.install(*indexed)
        return built_for
    none_near = NO_CPU_BUILD.format(
        version=version, python=f"{sys.version_info[0]}.{sys.version_info[1]}"
    )
    if asked == "cpu":
        raise Failed(none_near.strip())
    if asked == "auto" and not gpu:
        print(none_near + CUDA_INSTEAD, flush=True)
    require_room(environment.folder, "cuda")
    with stage("torch for CUDA, from the package index, 2.7 GB"):
        environment.install(*LOCKED, "-r", str(CUDA))
    return "cuda"


def install(environment: Environment, part: str, torch: str) -> None:
    """Bring an environment up to date with a part and those that it needs."""
    fault = environment.fault(torch) if environment.folder.exists() else None
    if fault:
        print(f"{_short(environment.folder)} can't be used: {fault}. It is made anew.", flush=True)
    if fault or not environment.folder.exists():
        version = ".".join(map(str, sys.version_info[:3]))
        print(
            f"Installing into {_short(environment.folder)}, once. Ctrl-C stops; the same command "
            "goes on.",
            flush=True,
        )
        with stage(f"a virtual environment of Python {version}, {sys.executable}"):
            environment.make()
    lacking = [name for name in ASKED[part] if environment.lacks(name)]
    if not lacking:
        return
    with environment.changing():
        with stage("uv, which installs the rest"):
            environment.prepare()
        for name in lacking:
            install_part(environment, name, torch)
            environment.keep(**{name: digest(name)})
    shutil.rmtree(environment.folder / "cache", ignore_errors=True)


def install_part(environment: Environment, part: str, torch: str) -> None:
    """Install a part."""
    if part == "web":
        with stage("libraries, 0.1 GB to download"):
            environment.install(*LOCKED, "-r", str(RUNTIME))
    elif part == "libraries":
        with stage("libraries of workers, 0.1 GB to download"):
            environment.install(*LOCKED, "-r", str(WORKER))
        environment.keep(torch=install_torch(environment, torch))
    elif part == "service":
        with stage("Exchequer"):
            environment.install("--no-deps", "--no-build-isolation", "--editable", ".")
    else:
        require_room(environment.folder, "dev")
        with stage("what tests and linters need, 0.1 GB to download"):
            environment.install(*LOCKED, "-r", str(DEV))


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other installation works in this checkout."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def main() -> None:
    """Install a part, or say in a sentence why that can't be done."""
    part, torch = " ".join(sys.argv[1:]), os.environ.get("TORCH") or "auto"
    if part not in ASKED:
        sys.exit(f"{part or 'nothing'} can't be installed: say {', '.join(ASKED)}")
    if torch not in ("cpu", "cuda", "auto"):
        sys.exit(f"TORCH={torch} is no build of torch: say cpu, cuda or auto")
    folder = Path(os.path.abspath(ROOT / (os.environ.get("VENV") or ".venv")))
    try:
        with alone():
            install(Environment(folder), part, torch)
    except Failed as error:
        sys.exit(f"{error}. Then run the same command again.")
    except OSError as error:
        remedy = (
            "Set VENV to a folder that you may write to" if error.errno in REFUSED else "Mend that"
        )
        sys.exit(
            f"{error.filename or folder}: {error.strerror}. {remedy}, then run the same command "
            "again."
        )
    except KeyboardInterrupt:
        sys.exit("\nStopped. The same command goes on.")


if __name__ == "__main__":
    main()
