"""The package: locks that pip can check, texts that are honest."""

import importlib
import io
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

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


# --- what it consists of, and what is known of that ------------------------------------------------


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def test_the_bill_of_materials_names_every_locked_package_and_file(scripts: None, tmp_path: Path) -> None:
    sbom = importlib.import_module("sbom")
    sbom.main(tmp_path / "sbom.json")
    found = json.loads((tmp_path / "sbom.json").read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    texts = "".join(lock.read_text() for lock in LOCKS)
    pins = re.findall(r"^([a-z0-9.-]+)==(\S+)", texts, re.MULTILINE)
    named = sorted(each["purl"] for each in found["components"])
    assert named == sorted(f"pkg:pypi/{name}@{version}" for name, version in pins)
    files = [file["hashes"][0]["content"] for each in found["components"] for file in each["components"]]
    assert sorted(files) == sorted(re.findall(r"--hash=sha256:(\w+)", texts))
    assert sbom.document() == found  # the same locks, the same file


def test_no_locked_version_has_an_advisory_of_the_kept_list(scripts: None, capsys: Any) -> None:
    advisories = importlib.import_module("advisories")
    assert advisories.main([]) == 0, capsys.readouterr().out
    kept = json.loads(advisories.KEPT.read_text())
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", kept["kept"])
    known = [{"id": "A-1", "package": "flask", "summary": "x", "ranges": [["1.0", "2.0"], ["3.0", None]]}]
    for version, hit in (("0.9", False), ("1.0", True), ("1.9.9", True), ("2.0", False), ("3.1", True)):
        assert bool(advisories.affected(known, {"flask": version})) == hit, version
    assert not advisories.affected(known, {"jinja2": "1.0"})


def test_the_kept_list_is_renewed_from_what_osv_says(
    scripts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its answers, page by page, as its documentation has them."""
    advisories = importlib.import_module("advisories")
    package = {"name": "Flask", "ecosystem": "PyPI"}
    events = [{"introduced": "0"}, {"fixed": "2.3.2"}, {"introduced": "3.0"}, {"last_affected": "99"}]
    pages = [
        {"vulns": [{"id": "B", "withdrawn": "2020", "affected": []}], "next_page_token": "more"},
        {
            "vulns": [
                {
                    "id": "A",
                    "summary": "bad",
                    "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}],
                }
            ]
        },
    ]
    monkeypatch.setattr(advisories, "locked", lambda: [("flask", "3.1", [], "x")])
    answers = iter(pages)
    monkeypatch.setattr(
        advisories.urllib.request, "urlopen", lambda *_, **__: io.BytesIO(json.dumps(next(answers)).encode())
    )
    assert advisories.main(["renew", "--list", str(tmp_path / "list.json")]) == 1  # 3.1 is affected
    (kept,) = json.loads((tmp_path / "list.json").read_text())["advisories"]
    assert kept["ranges"] == [["0", "2.3.2"], ["3.0", "99.post0.dev0"]]


def test_the_documented_command_pins_every_image_of_a_tag(tmp_path: Path) -> None:
    """With a `docker` that answers as the real one does for an image that was pulled."""
    guide = (ROOT / "docs" / "operations.md").read_text()
    command = re.search(r"^    (for each in POSTGRES_IMAGE.*?^    done >> \.env)$", guide, re.M | re.S)[1]
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nfor last; do :; done\n[ "$1" = pull ] || echo "${last%:*}@sha256:0f"\n')
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env={"PATH": path}, check=True)
    pinned = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    texts = (ROOT / "docker-compose.yml").read_text()
    tags = dict(re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", texts))
    assert tags.pop("EXCHEQUER_IMAGE")  # made here, from the others
    assert pinned == {name: f"{tag.rpartition(':')[0]}@sha256:0f" for name, tag in tags.items()}
    assert "sha256" not in texts + (ROOT / "Dockerfile").read_text()  # none that nobody looked up


def test_nothing_asks_for_a_package_that_is_not_published() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "web" / "templates").glob("*.html")]
    asked = [path.name for path in texts if re.search(r"pip install ['\"]?exchequer", path.read_text())]
    assert asked == []
