"""`make lock`: write the six locks anew from pyproject.toml, with the hashes of every file.

    requirements-uv.lock     uv, which installs the others
    requirements-build.lock  what packages are built with
    requirements.lock        what web, relay, signer and migrations need
    requirements-worker.lock what workers and the local stack need besides, but torch
    requirements-cuda.lock   torch as the package index has it: built for CUDA, with NVIDIA's
                             libraries
    requirements-dev.lock    what tests and linters need besides

The locks hold for every supported Python, on x86-64 and ARM: markers say which package is for which
one. Below each package stands what it requires, so that a test can tell a lock that lacks
something.

Versions stay as they are unless pyproject.toml asks for others. This machine's configuration is
left out, so that local wheels and mirrors change nothing: everyone who makes the locks gets the
same ones.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("-uv", "-build", "", "-worker", "-cuda", "-dev")
LOCKS = [ROOT / f"requirements{name}.lock" for name in NAMES]
UV, BUILD, RUNTIME, WORKER, CUDA, DEV = LOCKS
CUDA_NAMES = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)")

Entries = dict[str, str]


def main() -> None:
    """Resolve four times, each time with more, and part the answers."""
    server = ["--extra=client", "--extra=server", "--extra=s3", "pyproject.toml"]
    service = ["--extra=local", "--extra=worker", *server]
    build = resolve([])
    web = resolve(server)
    runtime = resolve(service)
    everything = resolve(["--extra=dev", *service])
    for part in (web, runtime):
        moved = [name for name in part if pin(everything[name]) != pin(part[name])]
        if moved:
            sys.exit(f"an extra asks for other versions of {', '.join(moved)} than others")
    locks: dict[Path, Entries] = {path: {} for path in LOCKS}
    for name, entry in described(everything).items():
        locks[lock_of(name, build, web, runtime)][name] = entry
    for path, entries in locks.items():
        path.write_text(
            "# Made by `make lock`; install with --require-hashes --no-deps.\n"
            + "".join(entries.values())
        )


def resolve(arguments: list[str]) -> Entries:
    """Return pinned packages by name, each with its hashes, as uv writes them for all platforms."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    always = project["build-system"]["requires"] + project["dependency-groups"]["install"]
    with tempfile.TemporaryDirectory() as folder:
        answer, question = Path(folder) / "all.lock", Path(folder) / "always.in"
        answer.write_text("".join(path.read_text() for path in LOCKS if path.exists()))
        question.write_text("\n".join(always))
        flags = "--universal --python-version 3.11 --generate-hashes --no-header --no-annotate"
        flags += " --no-strip-extras"
        uv("pip", "compile", *flags.split(), "-o", answer, question, *arguments)
        entries = re.split(r"^(?=[A-Za-z0-9])", answer.read_text(), flags=re.MULTILINE)[1:]
    return {re.split(r"\[|==", entry)[0]: entry for entry in entries}


def lock_of(name: str, build: Iterable[str], web: Iterable[str], runtime: Iterable[str]) -> Path:
    """Return the lock that a package stands in."""
    if name in build:
        return UV if name == "uv" else BUILD
    if name not in runtime:
        return DEV
    if CUDA_NAMES.fullmatch(name):
        return CUDA
    return RUNTIME if name in web else WORKER


def pin(entry: str) -> str:
    """Return the version that an entry pins."""
    return entry.partition("==")[2].split()[0]


def described(entries: Entries) -> Entries:
    """Return the entries with comments that say what each package requires where."""
    pins = [entry.partition("\\\n")[0].strip() for entry in entries.values()]
    project = {"name": "locked", "version": "0", "requires-python": ">=3.11", "dependencies": pins}
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in project.items()]
        (Path(folder) / "pyproject.toml").write_text("[project]\n" + "".join(lines))
        uv("lock", cwd=Path(folder))
        packages = tomllib.loads((Path(folder) / "uv.lock").read_text())["package"]
    return {
        package["name"]: re.sub(r"^(\S+?)\[.*?\]==", r"\1==", entries[package["name"]])
        + "".join(map(comment, dependencies(package)))
        for package in packages
        if package["name"] in entries
    }


def dependencies(package: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each dependency of a package in uv's lock, with the extra that brings it or nothing."""
    for dependency in package.get("dependencies", []):
        yield dependency, ""
    for extra, brought in package.get("optional-dependencies", {}).items():
        for dependency in brought:
            yield dependency, extra


def comment(stated: tuple[dict[str, Any], str]) -> str:
    """Return a dependency as a requirement, in a line that installers pass over."""
    dependency, extra = stated
    conditions = [f"({dependency['marker']})"] if "marker" in dependency else []
    conditions += [f"extra == '{extra}'"] if extra else []
    extras = f"[{','.join(dependency['extra'])}]" if "extra" in dependency else ""
    condition = f" ; {' and '.join(conditions)}" if conditions else ""
    return f"    # requires {dependency['name']}{extras}{condition}\n"


def uv(*arguments: str | Path, cwd: Path = ROOT) -> None:
    """Run uv without this machine's configuration."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    command = [sys.executable, "-m", "uv", "--quiet", "--no-config", *arguments]
    subprocess.run(command, check=True, cwd=cwd, env=environment)


if __name__ == "__main__":
    main()
