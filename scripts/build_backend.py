"""How Exchequer is built: by setuptools, a checkout where it lies, or the client as one package.

    editable      the checkout: `accountant`, `workers`, `web` and `exchequer` are imported from it
    wheel, sdist  `exchequer` alone: prices, verification, command line and client, which need no
                  server

In the package the folders lie under `exchequer`, and the imports among them name it. So there is
one way to import a module in each environment, and no package with a name that other projects use.
`exchequer` on the package index is another project, so the distribution is `exchequer-dp`.
"""

import ast
import json
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  (an editable installation is as setuptools makes it)
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

from web.version import COMMIT_FILE, ROOT, commit

PACKAGE = "exchequer"
#: Packages of the checkout that modules of the wheel may import.
FOLDERS = ("accountant", "web")
#: What the wheel holds.
PARTS = (
    "accountant/__init__.py",
    "accountant/core",
    "accountant/rights.py",
    "accountant/schema",
    "accountant/settings.py",
    "web/__init__.py",
    "web/cli",
    "web/client",
    "web/version.py",
)
#: Extras that make sense without the service.
EXTRAS = ("client", "pandas", "export")
DESCRIPTION = (
    "Command line and Python client of Exchequer: prices and verifies privacy budgets, "
    "asks for jobs"
)


def build_wheel(
    wheel_directory: str,
    config_settings: Any = None,
    metadata_directory: str | None = None,  # noqa: ARG001  (the hook's name; there is no such folder)
) -> str:
    """Build the wheel of the client."""
    target = str(Path(wheel_directory).resolve())
    with staged():
        return build_meta.build_wheel(target, config_settings)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build the source of that wheel: a project of its own, which plain setuptools builds."""
    target = str(Path(sdist_directory).resolve())
    with staged():
        return build_meta.build_sdist(target, config_settings)


@contextmanager
def staged() -> Iterator[Path]:
    """Lay the client's project out in a temporary folder, and go there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = folder / PACKAGE
        for part in PARTS:
            _copy(ROOT / part, package / part)
        (package / "__init__.py").write_text(
            renamed((ROOT / f"{PACKAGE}.py").read_text("utf-8")), "utf-8"
        )
        (package / "py.typed").touch()
        (package / COMMIT_FILE).write_text(commit() or "")
        shutil.copy(ROOT / "LICENSE", folder)
        shutil.copy(ROOT / "docs" / "client.md", folder / "README.md")
        (folder / "pyproject.toml").write_text(_project(), "utf-8")
        with chdir(folder):
            yield folder


def _copy(source: Path, target: Path) -> None:
    files = [source] if source.is_file() else sorted(source.rglob("*.py"))
    for file in files:
        copy = target / file.relative_to(source) if file != source else target
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(renamed(file.read_text("utf-8"), file.name), "utf-8")


def renamed(source: str, name: str = "") -> str:
    """Return a module's source with its imports of the checkout's packages below `exchequer`.

    Raises ValueError for an import that binds a package's bare name, such as `import web.client`.
    """
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    places: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            start = lines[node.lineno - 1].index(str(node.module).encode(), node.col_offset)
            places.append((node.lineno - 1, start))
        elif isinstance(node, ast.Import):
            for alias in filter(lambda alias: _is_ours(alias.name), node.names):
                if alias.asname is None:
                    raise ValueError(
                        f"{name}:{node.lineno}: import {alias.name} needs `as`, or `from`"
                    )
                places.append((alias.lineno - 1, alias.col_offset))
    # from the end, so that places stay where they are
    for line, column in sorted(places, reverse=True):
        lines[line] = lines[line][:column] + f"{PACKAGE}.".encode() + lines[line][column:]
    return b"".join(lines).decode()


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in FOLDERS


def _project() -> str:
    """Return the client's pyproject.toml: what the checkout's says, without the service."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project.pop("optional-dependencies")
    (author,) = project.pop("authors")
    project |= {
        "description": DESCRIPTION,
        "license-files": ["LICENSE"],
        "classifiers": [
            classifier
            for classifier in project["classifiers"]
            if not classifier.startswith("Framework")
        ],
    }
    scripts = {name: f"{PACKAGE}.{target}" for name, target in project.pop("scripts").items()}
    tables = {
        "build-system": {"requires": ["setuptools>=80"], "build-backend": "setuptools.build_meta"},
        "project": project,
        "project.scripts": scripts,
        "project.optional-dependencies": {name: extras[name] for name in EXTRAS},
        "tool.setuptools.packages.find": {"include": [f"{PACKAGE}*"]},
        "tool.setuptools.package-data": {PACKAGE: ["py.typed", COMMIT_FILE]},
    }
    text = "".join(
        f"[{table}]\n"
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        for table, values in tables.items()
    )
    return text + f"[[project.authors]]\nname = {json.dumps(author['name'])}\n"
