"""The package: locks that pip can check, texts that are honest."""

import importlib
import io
import json
import os
import platform
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD_SYSTEM, GROUPS = (
    PYPROJECT[name] for name in ("project", "build-system", "dependency-groups")
)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_locked_file_has_a_hash_and_no_address(lock: Path) -> None:
    entries = re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]
    assert entries
    pinned = r"\S+==\S+( ; .*)? \\\n    --hash=sha256:"
    assert [entry for entry in entries if not re.match(pinned, entry)] == []
    assert not re.search(r"://|--(extra-)?index-url|--find-links", lock.read_text())


def test_the_locks_answer_every_requirement_and_no_package_stands_twice() -> None:
    pins = re.findall(
        r"^([a-z0-9.-]+)==(\S+)", "".join(lock.read_text() for lock in LOCKS), re.MULTILINE
    )
    locked = dict(pins)
    assert len(locked) == len(pins)
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    names = {re.match(r"[\w.-]+", each)[0].lower() for each in wanted}
    assert names - locked.keys() == set()
    assert f"torch=={locked['torch']}" in extras["worker"]


# --- one set of locks for every supported Python and both machines
# ---------------------------------

PYTHONS = [
    *(f"3.11.{patch}" for patch in range(16)),
    *(
        f"3.{minor}.{patch}"
        for minor, last in ((12, 13), (13, 10), (14, 3))
        for patch in range(last)
    ),
]
ENTRY = re.compile(r"^([a-z0-9.-]+)==(\S+)(?: ; (.*?))? \\$((?:\n    .*)*)", re.MULTILINE)
SERVICE = ("uv", "build", "runtime", "worker", "cuda")
EXTRAS = ("server", "s3", "local", "worker", "dev")


def entries(names: Sequence[str]) -> dict[str, tuple[Marker | None, list[Requirement]]]:
    """The marker of each locked package, and what it requires by the comments below it."""
    texts = [
        (ROOT / f"requirements{'' if name == 'runtime' else '-' + name}.lock").read_text()
        for name in names
    ]
    return {
        name: (
            Marker(marker) if marker else None,
            [Requirement(each) for each in re.findall(r"# requires (.*)", more)],
        )
        for name, _, marker, more in ENTRY.findall("".join(texts))
    }


def marks(python: str, machine: str) -> dict[str, str]:
    return {
        **default_environment(),
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "implementation_version": python,
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
    }


def required(
    roots: Iterable[str],
    requirements: Mapping[str, list[Requirement]],
    environment: Mapping[str, str],
) -> set[str]:
    """Every package that these requirements need in an environment, by what each package
    requires.
    """
    waiting = [Requirement(each) for each in roots]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [
                    each
                    for each in requirements.get(name, [])
                    if each.marker is None or each.marker.evaluate({**environment, "extra": extra})
                ]
    return {name for name, _ in seen}


def roots(*extras: str) -> list[str]:
    return [
        *PROJECT["dependencies"],
        *BUILD_SYSTEM["requires"],
        *GROUPS["install"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ]


def faults(
    locked: Mapping[str, Any], wanted: list[str], python: str, machine: str
) -> dict[str, set[str]]:
    """What a lock lacks in an environment, and what it installs there that nothing requires."""
    environment = marks(python, machine)
    installed = {
        name for name, (marker, _) in locked.items() if not marker or marker.evaluate(environment)
    }
    needed = required(wanted, {name: stated for name, (_, stated) in locked.items()}, environment)
    return {"lacks": needed - installed, "needless": installed - needed}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_locks_hold_what_each_supported_python_needs_and_no_more(machine: str) -> None:
    service, everything = entries(SERVICE), entries([*SERVICE, "dev"])
    web = entries(("uv", "build", "runtime"))
    assert not web.keys() & {"torch", "transformers", "pyarrow"}
    for python in PYTHONS:
        assert faults(web, roots("server", "s3"), python, machine)["lacks"] == set(), python
        alone = faults(service, roots("server", "s3", "local", "worker"), python, machine)
        assert alone == {"lacks": set(), "needless": set()}, python
        whole = faults(everything, roots(*EXTRAS), python, machine)
        assert whole == {"lacks": set(), "needless": set()}, python


def test_a_marker_or_a_package_that_is_taken_out_is_noticed() -> None:
    """Each guard of the test above, for every marker and every package of the locks."""
    locked, wanted = entries([*SERVICE, "dev"]), roots(*EXTRAS)
    where = [("3.11.0", "x86_64"), ("3.14.0", "aarch64")]
    kept = {
        name
        for name, (marker, _) in locked.items()
        if any(not marker or marker.evaluate(marks(*each)) for each in where)
    }
    for name in kept:
        without = {key: value for key, value in locked.items() if key != name}
        assert any(faults(without, wanted, *each)["lacks"] for each in where), name
    for name, (marker, stated) in locked.items():
        if marker and not all(marker.evaluate(marks(*each)) for each in where):
            unmarked = {**locked, name: (None, stated)}
            assert any(faults(unmarked, wanted, *each)["needless"] for each in where), name
    assert not locked["async-timeout"][0].evaluate(marks("3.11.3", "x86_64"))


def test_the_locks_say_what_the_installed_packages_say_of_themselves() -> None:
    """The comments come from the resolver; the packages here are another witness."""
    environment = marks(platform.python_version(), platform.machine())
    locked, wanted = entries([*SERVICE, "dev"]), roots(*EXTRAS)
    stated = {
        canonicalize_name(each.metadata["Name"]): [Requirement(one) for one in each.requires or []]
        for each in distributions()
    }
    for python in PYTHONS:
        needed = required(wanted, stated, environment | marks(python, platform.machine()))
        installed = {
            name
            for name, (marker, _) in locked.items()
            if not marker or marker.evaluate(marks(python, platform.machine()))
        }
        assert needed - installed == set(), python


def test_supported_pythons_are_stated_alike() -> None:
    """Where a package is made, where `make` looks for a Python, and in CI."""
    minors = sorted(
        {python.rpartition(".")[0] for python in PYTHONS}, key=lambda each: int(each[2:])
    )
    named = [
        each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)
    ]
    assert named == minors
    assert PROJECT["requires-python"] == f">={minors[0]}"
    assert (
        re.findall(r"python(3\.\d+)(?=[ }])", (ROOT / "scripts" / "python.sh").read_text())[:4]
        == minors[::-1]
    )
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert {minors[0], minors[-1]} <= set(re.findall(r'"(3\.\d+)[.0-9x]*"', workflow))


def test_make_has_a_rule_for_each_of_its_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (names,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.M)
    assert set(names.split()) == set(re.findall(r"^([a-z-]+):", makefile, re.M))


def test_only_the_cuda_lock_brings_nvidia_libraries() -> None:
    """Else the build of torch for the CPU would not save them."""
    with_them = [
        lock.name
        for lock in LOCKS
        if re.search(r"^(torch|triton|nvidia-|cuda-)", lock.read_text(), re.M)
    ]
    assert with_them == ["requirements-cuda.lock"]


# --- what it consists of, and what is known of that
# ------------------------------------------------


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def test_the_bill_of_materials_names_every_locked_package_and_file(
    scripts: None, tmp_path: Path
) -> None:
    sbom = importlib.import_module("sbom")
    sbom.main(tmp_path / "sbom.json")
    found = json.loads((tmp_path / "sbom.json").read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    texts = "".join(lock.read_text() for lock in LOCKS)
    pins = re.findall(r"^([a-z0-9.-]+)==(\S+)", texts, re.MULTILINE)
    named = sorted(each["purl"] for each in found["components"])
    assert named == sorted(f"pkg:pypi/{name}@{version}" for name, version in pins)
    files = [
        file["hashes"][0]["content"] for each in found["components"] for file in each["components"]
    ]
    assert sorted(files) == sorted(re.findall(r"--hash=sha256:(\w+)", texts))
    assert sbom.document() == found  # the same locks, the same file


def test_no_locked_version_has_an_advisory_of_the_kept_list(scripts: None, capsys: Any) -> None:
    advisories = importlib.import_module("advisories")
    assert advisories.main([]) == 0, capsys.readouterr().out
    kept = json.loads(advisories.KEPT.read_text())
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", kept["kept"])
    known = [
        {"id": "A-1", "package": "flask", "summary": "x", "ranges": [["1.0", "2.0"], ["3.0", None]]}
    ]
    for version, hit in (
        ("0.9", False),
        ("1.0", True),
        ("1.9.9", True),
        ("2.0", False),
        ("3.1", True),
    ):
        assert bool(advisories.affected(known, {"flask": version})) == hit, version
    assert not advisories.affected(known, {"jinja2": "1.0"})


def test_the_kept_list_is_renewed_from_what_osv_says(
    scripts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its answers, page by page, as its documentation has them."""
    advisories = importlib.import_module("advisories")
    package = {"name": "Flask", "ecosystem": "PyPI"}
    events = [
        {"introduced": "0"},
        {"fixed": "2.3.2"},
        {"introduced": "3.0"},
        {"last_affected": "99"},
    ]
    pages = [
        {"vulns": [{"id": "B", "withdrawn": "2020", "affected": []}], "next_page_token": "more"},
        {
            "vulns": [
                {
                    "id": "A",
                    "summary": "bad",
                    "affected": [
                        {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
                    ],
                }
            ]
        },
    ]
    monkeypatch.setattr(advisories, "locked", lambda: [("flask", "3.1", [], "x")])
    answers = iter(pages)
    monkeypatch.setattr(
        advisories.urllib.request,
        "urlopen",
        lambda *_, **__: io.BytesIO(json.dumps(next(answers)).encode()),
    )
    assert advisories.main(["renew", "--list", str(tmp_path / "list.json")]) == 1  # 3.1 is affected
    (kept,) = json.loads((tmp_path / "list.json").read_text())["advisories"]
    assert kept["ranges"] == [["0", "2.3.2"], ["3.0", "99.post0.dev0"]]


def test_the_documented_command_pins_every_image_of_a_tag(tmp_path: Path) -> None:
    """With a `docker` that answers as the real one does for an image that was pulled."""
    guide = (ROOT / "docs" / "operations.md").read_text()
    command = re.search(
        r"^    (for each in POSTGRES_IMAGE.*?^    done >> \.env)$", guide, re.M | re.S
    )[1]
    docker = tmp_path / "docker"
    docker.write_text(
        '#!/bin/sh\nfor last; do :; done\n[ "$1" = pull ] || echo "${last%:*}@sha256:0f"\n'
    )
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env={"PATH": path}, check=True)
    pinned = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    texts = (ROOT / "docker-compose.yml").read_text()
    tags = dict(re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", texts))
    for made in ("EXCHEQUER_IMAGE", "EXCHEQUER_WORKER_IMAGE"):
        assert tags.pop(made)  # here, from the others
    assert pinned == {name: f"{tag.rpartition(':')[0]}@sha256:0f" for name, tag in tags.items()}
    assert "sha256" not in texts + (ROOT / "Dockerfile").read_text()  # none that nobody looked up


def test_nothing_asks_for_a_package_that_is_not_published() -> None:
    texts = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "web" / "templates").glob("*.html"),
    ]
    asked = [
        path.name for path in texts if re.search(r"pip install ['\"]?exchequer", path.read_text())
    ]
    assert asked == []
