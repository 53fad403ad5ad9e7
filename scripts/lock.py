"""`make lock`: write the four locks anew from pyproject.toml, with the hashes of every file.

    requirements-build.lock  what packages are built with
    requirements.lock        what the service needs, but torch
    requirements-cuda.lock   torch as the package index has it: built for CUDA, with NVIDIA's libraries
    requirements-dev.lock    what tests and linters need besides

Versions stay as they are unless pyproject.toml asks for others. This machine's pip configuration is left out,
so that local wheels and mirrors change nothing: everyone who makes the locks gets the same ones.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD, RUNTIME, CUDA, DEV = (ROOT / f"requirements{name}.lock" for name in ("-build", "", "-cuda", "-dev"))
CUDA_NAMES = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)")
BUILD_NAMES = {"setuptools"}
LOCAL = {"PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CONSTRAINT"}
KEPT_OUT = {"pip"}  # a virtual environment brings its own


def main() -> None:
    """Resolve twice, without and with the extra `dev`, and part the answers."""
    runtime = compiled(["client", "server", "worker"], kept=[BUILD, RUNTIME, CUDA])
    files = {name: file_of(name) for name in runtime}
    for file in (BUILD, RUNTIME, CUDA):
        write(file, {name: text for name, text in runtime.items() if files[name] == file})
    dev = compiled(["client", "server", "worker", "dev"], kept=[BUILD, RUNTIME, CUDA, DEV])
    moved = [name for name in runtime if first_line(dev[name]) != first_line(runtime[name])]
    if moved:
        sys.exit(f"the extra `dev` asks for other versions of {', '.join(moved)} than the service has")
    write(DEV, {name: text for name, text in dev.items() if name not in runtime.keys() | KEPT_OUT})


def compiled(extras: list[str], kept: list[Path]) -> dict[str, str]:
    """The pinned packages by name, each with its hashes, as pip-compile writes them."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "all.lock"
        answer.write_text("".join(path.read_text() for path in kept if path.exists()))
        flags = "-q --strip-extras --generate-hashes --allow-unsafe --no-header --build-deps-for editable"
        flags += " --no-emit-index-url --no-emit-find-links --no-emit-trusted-host"
        subprocess.run(
            [sys.executable, "-m", "piptools", "compile", *flags.split(), "-o", str(answer)]
            + [f"--extra={extra}" for extra in extras]
            + ["pyproject.toml"],
            check=True,
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if name not in LOCAL},
                "PIP_CONFIG_FILE": os.devnull,
            },
        )
        entries = re.split(r"^(?=[A-Za-z0-9])", answer.read_text(), flags=re.MULTILINE)[1:]
    return {entry.partition("==")[0]: entry for entry in entries}


def file_of(name: str) -> Path:
    """The lock that a package of the service stands in."""
    if CUDA_NAMES.fullmatch(name):
        return CUDA
    return BUILD if name in BUILD_NAMES else RUNTIME


def first_line(entry: str) -> str:
    return entry.partition("\n")[0]


def write(path: Path, entries: dict[str, str]) -> None:
    text = "# Made by `make lock`; install with --require-hashes --no-deps.\n"
    for entry in entries.values():
        text += re.sub(r"\n# The following packages are considered.*", "\n", entry, flags=re.DOTALL)
    path.write_text(text)


if __name__ == "__main__":
    main()
