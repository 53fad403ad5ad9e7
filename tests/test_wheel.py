"""The wheel of the client: one package, one way to import a module, and commands that work or say
why not.
"""

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest

from tests.ledger_exports import export, honest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import build_backend  # noqa: E402

SERVICE = ("accountant", "workers", "web", "migrations")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from web.cli import main", "from exchequer.web.cli import main"),
        (
            "import accountant.core.names as names",
            "import exchequer.accountant.core.names as names",
        ),
        (
            "def f():\n    from accountant import database",
            "def f():\n    from exchequer.accountant import database",
        ),
        (
            "from web import (\n    local,  # web.local\n)",
            "from exchequer.web import (\n    local,  # web.local\n)",
        ),
        (
            '"""ε: from web import x"""; from web import x',
            '"""ε: from web import x"""; from exchequer.web import x',
        ),
        ("import json, web.cli as cli", "import json, exchequer.web.cli as cli"),
        ("from websockets import x; import webauthn", "from websockets import x; import webauthn"),
    ],
)
def test_imports_of_the_checkout_are_renamed_and_nothing_else(source: str, expected: str) -> None:
    assert build_backend.renamed(source) == expected


def test_an_import_that_binds_a_bare_name_is_refused() -> None:
    with pytest.raises(ValueError, match="needs `as`"):
        build_backend.renamed("import web.client")


# --- built and installed
# ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    flags = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *flags], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone; its dependencies are this environment's, so no index is
    asked.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(f"{Path(httpx2.__file__).parents[1]}\n")
    return folder


def run(environment: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment, away from the checkout."""
    program, *rest = map(str, arguments)
    return subprocess.run(
        [str(environment / "bin" / program), *rest],
        cwd=environment,
        env={"HOME": str(environment), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_wheel_claims_one_package_and_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    information = metadata.split("/")[0]
    assert {name.split("/")[0] for name in names} == {"exchequer", information}
    assert f"{information}/licenses/LICENSE" in names
    text = archive.read(metadata).decode()
    assert re.findall(r"^Name: (.*)$", text, re.M) == ["exchequer-dp"]
    assert re.findall(r"^Provides-Extra: (.*)$", text, re.M) == list(build_backend.EXTRAS)
    assert (
        re.search(r"torch|flask|sqlalchemy", "".join(re.findall(r"^Requires-Dist.*$", text, re.M)))
        is None
    )
    assert {
        name
        for name in names
        if name.startswith("exchequer/accountant/core/") and name.endswith(".py")
    } == {
        f"exchequer/{path.relative_to(ROOT)}"
        for path in (ROOT / "accountant" / "core").rglob("*.py")
    }


@pytest.mark.slow
def test_no_module_of_a_wheel_names_a_package_of_the_checkout(wheel: Path) -> None:
    """Except for runners: they name what workers load, and are part of what an entry's price is
    of.
    """
    archive = zipfile.ZipFile(wheel)
    pattern = re.compile(rf"({'|'.join(SERVICE)})(\.\w+)+")
    named = set()
    for name in archive.namelist():
        for node in ast.walk(ast.parse(archive.read(name))) if name.endswith(".py") else ():
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and pattern.fullmatch(node.value)
            ):
                named.add((name.removeprefix("exchequer/"), node.value))
    started = {
        ("web/cli/bootstrap.py", "workers.sample"),
        ("web/cli/bootstrap.py", "workers.data.fingerprints"),
        ("web/cli/model_files.py", "workers.conversion"),
        ("web/cli/evaluation.py", "workers.privacy_audits"),
    }  # by commands that refuse to run outside a checkout: see below
    runners = {each for each in named if re.match(r"workers\.(mechanisms\.|rehearsal)", each[1])}
    assert named - runners == started


IMPORT_ALL = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import exchequer
for module in pkgutil.walk_packages(exchequer.__path__, "exchequer."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
names = set(exchequer.__all__)
assert {"Client", "connect", "Refused"} <= names <= set(dir(exchequer)), names
print(exchequer.Client.__module__)
"""


@pytest.mark.slow
def test_every_module_of_a_wheel_is_imported_without_the_service(environment: Path) -> None:
    missing = (
        *SERVICE,
        "alembic",
        "celery",
        "flask",
        "pandas",
        "psutil",
        "psycopg",
        "pyarrow",
        "sqlalchemy",
        "torch",
    )
    found = run(environment, "python", "-I", "-c", f"MISSING = {missing}\n{IMPORT_ALL}")
    assert (found.returncode, found.stdout) == (0, "exchequer.web.client.client\n"), found.stderr


@pytest.mark.slow
def test_a_wheel_prices_and_verifies(environment: Path) -> None:
    found = run(environment, "exchequer", "price", "noisy-count", "--set", "epsilon=0.5", "--json")
    assert json.loads(found.stdout)["dp"]["epsilon"] == pytest.approx(0.5, abs=1e-5)
    ledger = environment / "ledger.jsonl"
    ledger.write_text("".join(export(honest().lines)))
    for several in ([ledger], [ledger, ledger]):
        found = run(environment, "exchequer", "verify", *several)
        assert (found.returncode, found.stdout.splitlines()[0]) == (0, "verify: ok"), found.stderr
    ledger.write_text(ledger.read_text().replace('"praise"', '"prague"'))
    found = run(environment, "exchequer", "verify", ledger)
    assert (found.returncode, "failed" in found.stderr) == (1, True)


@pytest.mark.slow
def test_a_wheel_says_what_it_is_and_where_to_begin(environment: Path) -> None:
    found = run(environment, "exchequer", "--version")
    python = sys.version.split()[0]
    assert re.fullmatch(
        rf"exchequer [\d.]+( \(commit \w+(-dirty)?\))?, Python {re.escape(python)}\n", found.stdout
    )
    found = run(environment, "exchequer")
    assert (found.returncode, found.stdout.count("\n") <= 25) == (0, True)
    assert "exchequer demo" not in found.stdout
    assert "exchequer login URL" in found.stdout


#: Each command in turn: its exit status, and what it said.
COMMANDS = """
import contextlib, io, json, sys
from exchequer.web.cli import main
for command in sys.argv[1:]:
    sys.argv, code, said, errors = ["exchequer", *command.split()], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.getvalue(), errors.getvalue()]))
"""


@pytest.mark.slow
def test_a_command_that_needs_the_service_says_so(environment: Path) -> None:
    asked = (
        "stack up",
        "stack down",
        "status",
        "demo",
        "audit reconstruction",
        "model get smollm2",
        "user add ada --role analyst --database",
        "user unlock ada --database",
        "key rotate",
        "ledger check --all --database",
        "ledger recover --yes",
        "ledger publish-log",
    )
    told = run(environment, "python", "-c", COMMANDS, *asked)
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(found) == len(asked), told.stderr
    needs = r"exchequer: .* needs the service, and this is its client alone .*\n"
    for command, (code, said, errors) in zip(asked, found, strict=True):
        assert (code, said, bool(re.fullmatch(needs, errors))) == (1, "", True), (command, errors)
