"""The version that runs, with its commit. `scripts/build_backend.py` uses it: the standard library
alone.
"""

import platform
import shutil
import subprocess
import tomllib
from contextlib import suppress
from importlib import metadata
from pathlib import Path

#: The folder of the checkout, or the one package of a wheel.
ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "exchequer-dp"
COMMIT_FILE = "commit.txt"  # in a wheel


def is_checkout() -> bool:
    """Return True if the service can run from here; a wheel holds the client alone."""
    return (ROOT / "workers" / "jobs").is_dir()


def version() -> str:
    """Return the version of the code."""
    if is_checkout():  # the metadata of an editable installation may be older than the code
        return str(
            tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
        )
    return metadata.version(DISTRIBUTION)


def commit() -> str | None:
    """Return the code's commit or None; "-dirty" means uncommitted changes."""
    with suppress(OSError):
        return (ROOT / COMMIT_FILE).read_text("utf-8").strip() or None
    git = shutil.which("git")
    # a parent folder may be a repository of another project
    if git is None or not (ROOT / ".git").exists():
        return None
    described = subprocess.run(
        [git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or None


def describe() -> str:
    """Return the version, the commit where it is known, and the Python that runs."""
    commit_id = commit()
    of_commit = "" if commit_id is None else f" (commit {commit_id})"
    return f"exchequer {version()}{of_commit}, Python {platform.python_version()}"
