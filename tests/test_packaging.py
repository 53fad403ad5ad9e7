"""The package: locks that pip can check, a wheel that holds everything, texts that are honest."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_locked_file_has_a_hash_and_no_address(lock: Path) -> None:
    entries = re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]
    assert entries
    assert [entry for entry in entries if not re.match(r"\S+==\S+ \\\n    --hash=sha256:", entry)] == []
    assert not re.search(r"://|--(extra-)?index-url|--find-links", lock.read_text())


def test_the_locks_answer_every_requirement_and_no_package_stands_twice() -> None:
    pins = re.findall(r"^([a-z0-9.-]+)==(\S+)", "".join(lock.read_text() for lock in LOCKS), re.MULTILINE)
    locked = dict(pins)
    assert len(locked) == len(pins)
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + extras["server"] + extras["worker"] + extras["dev"]
    names = {re.match(r"[\w.-]+", each)[0].lower() for each in wanted}
    assert names - locked.keys() == set()
    assert f"torch=={locked['torch']}" in extras["worker"]


def test_only_the_cuda_lock_brings_nvidia_libraries() -> None:
    """Else the build of torch for the CPU would not save them."""
    with_them = [
        lock.name for lock in LOCKS if re.search(r"^(torch|triton|nvidia-|cuda-)", lock.read_text(), re.M)
    ]
    assert with_them == ["requirements-cuda.lock"]


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    packages = ("accountant", "workers", "web", "migrations")
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in packages:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    built = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "out",
        ".",
    ]
    subprocess.run(built, cwd=tmp_path, check=True, capture_output=True)
    held = set(zipfile.ZipFile(next((tmp_path / "out").glob("*.whl"))).namelist())
    files = {
        str(path.relative_to(tmp_path))
        for name in packages
        for path in (tmp_path / name).rglob("*")
        if path.is_file()
    }
    assert files - held == set()
    assert any(name.endswith("licenses/LICENSE") for name in held)


def test_nothing_asks_for_a_package_that_is_not_published() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "web" / "templates").glob("*.html")]
    asked = [path.name for path in texts if re.search(r"pip install ['\"]?exchequer", path.read_text())]
    assert asked == []
