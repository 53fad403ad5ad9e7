"""`make` on a machine that nobody prepared: which Python, and environments that can't be used.

A copy of the scripts installs tiny wheels from a folder, without a network.
"""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(sys._base_executable)  # type: ignore[attr-defined]
LOCKS = {
    "-uv": [],
    "-build": ["builder"],
    "": ["library"],
    "-worker": ["engine"],
    "-cuda": ["torch"],
    "-dev": ["linter"],
}


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def choose(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `python.sh` where PATH has nothing but a folder."""
    return subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "python.sh", "-c", "import os; print(os.environ['NAME'])"],
        env={"PATH": str(folder), **variables},
        capture_output=True,
        text=True,
    )


def python(folder: Path, name: str, condition: str = "true") -> Path:
    return program(folder / name, f'{condition} || exit 1\nNAME={name} exec {PYTHON} "$@"')


OLD = 'case "$1" in --version) echo Python 3.9.18;; *) exit 1;; esac; exit 0'
WITHOUT_VENV = 'case "$2" in *ensurepip*) false;; esac'


def test_the_newest_supported_python_that_runs_is_taken(tmp_path: Path) -> None:
    program(tmp_path / "python3.14", "echo 'pyenv: python3.14: command not found'; exit 127")
    python(tmp_path, "python3.13", WITHOUT_VENV)
    python(tmp_path, "python3.12")
    python(tmp_path, "python3.11")
    assert choose(tmp_path).stdout == "python3.12\n"
    assert choose(tmp_path, PYTHON="python3.11").stdout == "python3.11\n"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: None, "this machine has no python3 that runs"),
        (lambda folder: program(folder / "python3", OLD), "this machine has Python 3.9.18"),
        (
            lambda folder: python(folder, "python3.12", WITHOUT_VENV),
            r"`sudo apt install python3\.\d+-venv`",
        ),
    ],
)
def test_without_one_a_sentence_names_the_packages(
    tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    make(tmp_path)
    answer = choose(tmp_path)
    assert answer.returncode == 1
    assert re.search(told, answer.stderr)
    assert answer.stderr.count("\n") == 1
    assert all(name in answer.stderr for name in ("Debian", "Ubuntu", "Fedora"))


# --- environments -------------------------------------------------------------------------------


def wheel(folder: Path, name: str, version: str = "1.0") -> str:
    """A wheel of one empty module; returns its pin with its hash."""
    stem = f"{name}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        file.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{stem}.dist-info/RECORD", "")
    return (
        f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    )


def checkout(folder: Path) -> Path:
    """The scripts with locks of tiny wheels, of which torch's is built for the CPU too."""
    (folder / "wheels").mkdir(parents=True)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for lock, names in LOCKS.items():
        pins = [wheel(folder / "wheels", name) for name in names]
        (folder / f"requirements{lock}.lock").write_text(
            "".join(pins) or "uv==0.0.1 --hash=sha256:00\n"
        )
    wheel(folder / "wheels", "torch", "1.0+cpu")
    return folder


def install(
    folder: Path, part: str = "libraries", **variables: str
) -> subprocess.CompletedProcess[str]:
    where = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    return subprocess.run(
        [PYTHON, folder / "scripts" / "install.py", part],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **where, **variables},
        capture_output=True,
        text=True,
    )


def installed(folder: Path) -> set[str]:
    return {
        path.name.partition("-1.0")[0]
        for path in folder.glob(".venv/lib/*/site-packages/*-1.0*.dist-info")
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose environment is whole, made by pip because there is no uv in its wheels."""
    folder = checkout(tmp_path_factory.mktemp("made") / "checkout")
    answer = install(folder)
    assert answer.returncode == 0, answer.stderr
    assert "uv can't be had here" in answer.stdout
    assert installed(folder) == {"builder", "library", "engine", "torch"}
    return folder


@pytest.mark.slow
def test_a_whole_environment_is_left_alone_and_torch_is_built_for_the_cpu(made: Path) -> None:
    again = install(made)
    assert (again.returncode, again.stdout) == (0, "")
    assert list(made.glob(".venv/**/torch-1.0+cpu.dist-info"))


def _lose(*paths: str) -> Callable[[Path], None]:
    def lose(folder: Path) -> None:
        for pattern in paths:
            for path in folder.glob(pattern):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    return lose


def _lose_python(folder: Path) -> None:
    for path in folder.glob(".venv/bin/python*"):
        path.unlink()
        path.symlink_to("/no/such/python")


def _cut_off(folder: Path) -> None:
    record = folder / ".venv" / "exchequer.json"
    record.write_text(record.read_text().replace('"unfinished": ""', '"unfinished": "yes"'))


@pytest.fixture
def moved(made: Path, tmp_path: Path) -> Path:
    """A copy of the checkout, with the environment that was made elsewhere."""
    return shutil.copytree(made, tmp_path / "moved", symlinks=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_lose(".venv/bin/python*"), "its Python is gone"),
        (_lose_python, "its Python is gone"),
        (_lose(".venv/lib/*/site-packages/pip"), "it has no pip"),
        (_lose(".venv/bin", ".venv/pyvenv.cfg"), "its Python is gone"),
        (_cut_off, "an installation into it was cut off"),
        (lambda folder: None, "it was made as "),
    ],
    ids=["no python", "python deleted", "no pip", "venv killed", "cut off", "moved"],
)
def test_an_environment_that_cannot_be_used_is_noticed(
    moved: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], told: str
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("install")
    damage(moved)
    fault = module.Environment(moved / ".venv").fault("auto")
    assert fault.startswith(told)


def test_a_full_disk_is_said_before_the_installation(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("this machine permits no mount namespace")
    answer = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-ec",
            'mount -t tmpfs -o size=100m none "$0"; exec "$@"',
            disk,
            PYTHON,
            ROOT / "scripts" / "install.py",
            "service",
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "VENV": str(disk / "folder" / "venv"),
        },
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 1
    assert f"{disk} has 0.1 GB free, and the installation takes 1.4 GB" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.release
def test_it_is_made_anew_and_goes_on_after_a_failure(moved: Path) -> None:
    """A download that fails ends in a sentence and breaks nothing: the next run goes on from
    there.
    """
    lost = moved / "wheels" / "library-1.0-py3-none-any.whl"
    lost.rename(moved / "away")
    answer = install(moved)
    assert answer.returncode == 1
    assert "can't be used: it was made as " in answer.stdout
    assert "Then run the same command again." in answer.stderr
    assert "Traceback" not in answer.stderr
    (moved / "away").rename(lost)
    answer = install(moved)
    assert answer.returncode == 0, answer.stderr
    assert "can't be used" not in answer.stdout
    assert installed(moved) == {"builder", "library", "engine", "torch"}
    assert install(moved).stdout == ""


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"TORCH": "gpu"}, "TORCH=gpu is no build of torch: say cpu, cuda or auto"),
        ({"VENV": "/proc/venv"}, "/proc"),
        ({"VENV": "wheels"}, "is no virtual environment: set VENV to another folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    tmp_path: Path, variables: dict[str, str], told: str
) -> None:
    answer = install(checkout(tmp_path / "checkout"), **variables)
    assert answer.returncode == 1
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list((tmp_path / "checkout" / "wheels").iterdir())
