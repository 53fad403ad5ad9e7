"""Each process has a database role, keys and networks of its own: in the local stack, and with Docker."""

import json
from pathlib import Path

import pytest
import yaml

from accountant.rights import KEYS, PROCESSES, process_urls
from accountant.settings import Settings
from web.stack.addresses import ROLES, prepare
from web.stack.programs import PROGRAMS
from web.stack.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[3]

#: Which service is which process, and the networks that it is in besides the database's.
COMPOSED = {
    "web": ("web", {"queue", "front"}),
    "relay": ("relay", {"queue", "out"}),
    "worker": ("worker", {"queue"}),
    "checks": ("checks", {"queue"}),
    "signer": ("signer", set()),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_a_composed_service_has_its_own_role_its_own_keys_and_no_other(name: str) -> None:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    service, (process, networks) = composed["services"][name], COMPOSED[name]
    variables = service["environment"]
    owners = [each for each in variables if each.startswith("DATABASE_") and each != "DATABASE_URL"]
    assert not owners
    assert f"//{ROLES[process]}:${{{name.upper()}_PASSWORD:?" in variables["DATABASE_URL"]
    assert "POSTGRES_PASSWORD" not in json.dumps(service)
    assert variables["EXCHEQUER_RUNS_AS"] == process
    keys = {key for key, whose in KEYS.items() if process in whose and key in composed["secrets"]}
    assert set(service["secrets"]) == keys
    assert all(composed["secrets"][key] == {"environment": f"KEY_{key.upper()}"} for key in keys)
    assert set(service["networks"]) == networks | {"database"}


def test_composed_workers_reach_no_other_machine() -> None:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    inside = {name for name, network in composed["networks"].items() if network and network.get("internal")}
    for name, service in composed["services"].items():
        if name not in ("web", "relay"):
            assert set(service["networks"]) <= inside, name
        opens = any("EXCHEQUER_DATA" in volume for volume in service["volumes"])
        assert opens == (name in ("worker", "checks")), name


def test_a_composed_migration_makes_every_role() -> None:
    migrate = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["migrate"]["environment"]
    assert set(migrate) == {"DATABASE_OWNER_URL", *(f"DATABASE_{each.upper()}_URL" for each in PROCESSES)}
    for process, url in process_urls(migrate).items():
        assert f"//{ROLES[process]}:" in url


def test_a_program_learns_its_own_role_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the supervisor gives to each of the stack's programs."""
    for name in KEYS:
        monkeypatch.setenv(f"EXCHEQUER_KEY_{name.upper()}", "00" * 32)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    prepare(tmp_path)
    made = Supervisor(Settings(home=tmp_path), PROGRAMS)
    assert {program.process for program in made.programs} == set(PROCESSES)
    for program in made.programs:
        assert program.process is not None
        given = made._environment(program)
        assert f"//{ROLES[program.process]}@" in given["DATABASE_URL"]
        assert not process_urls(given)
        assert "DATABASE_OWNER_URL" not in given
        theirs = {name for name in KEYS if f"EXCHEQUER_KEY_{name.upper()}" in given}
        assert theirs == {name for name, whose in KEYS.items() if program.process in whose}
        assert given["EXCHEQUER_RUNS_AS"] == program.process
    (migrate,) = made.tasks
    assert set(process_urls(made._environment(migrate))) == set(PROCESSES)


def test_a_process_opens_no_key_of_another(tmp_path: Path) -> None:
    for process in PROCESSES:
        settings = Settings(home=tmp_path, runs_as=process)
        for name, whose in KEYS.items():
            if process in whose:
                assert len(settings.secret(name)) == 32
            else:
                with pytest.raises(RuntimeError, match=f"the key '{name}' is for"):
                    settings.secret(name)
    (tmp_path / "keys" / "units").write_text("")
    with pytest.raises(RuntimeError, match="64 hexadecimal digits"):
        Settings(home=tmp_path).secret("units")
