"""Each process has a database role, keys and networks of its own: in the local stack, and with
Docker.
"""

import re
from pathlib import Path

import pytest
import yaml
from sqlalchemy import make_url

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
    given = make_url(variables["DATABASE_URL"])
    owners = [each for each in variables if each.startswith("DATABASE_") and each != "DATABASE_URL"]
    assert not owners
    assert (given.username, given.password) == (ROLES[process], None)
    assert given.query["password_file"] == f"/run/secrets/{name}_password"
    assert variables["EXCHEQUER_RUNS_AS"] == process
    keys = {key for key, whose in KEYS.items() if process in whose and key in composed["secrets"]}
    passwords = {f"{name}_password"} | ({"broker_password"} if "queue" in networks else set())
    assert set(service["secrets"]) == keys | passwords
    assert all(composed["secrets"][key] == {"environment": f"KEY_{key.upper()}"} for key in keys)
    assert all(composed["secrets"][each] == {"environment": each.upper()} for each in passwords)
    assert set(service["networks"]) == networks | {"database"}


def test_composed_workers_reach_no_other_machine() -> None:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    inside = {
        name
        for name, network in composed["networks"].items()
        if network and network.get("internal")
    }
    for name, service in composed["services"].items():
        if name == "certificates":
            assert service["network_mode"] == "none"
        elif name not in ("web", "relay"):
            assert set(service["networks"]) <= inside, name
        opens = any("EXCHEQUER_DATA" in volume for volume in service["volumes"])
        assert opens == (name in ("worker", "checks")), name


def test_composed_addresses_are_encrypted_and_checked_and_have_no_password() -> None:
    """Each in its service, which has the authority and the file of the password."""
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    seen = set()
    for name, service in composed["services"].items():
        for variable, value in service.get("environment", {}).items():
            if not variable.endswith("_URL") or value is None:
                continue  # None: as whoever runs it sets it, and no address of a server here
            seen.add((name, variable))
            address = make_url(value)
            assert address.password is None, (name, variable)
            secret = str(address.query["password_file"]).removeprefix("/run/secrets/")
            assert secret in service["secrets"], (name, variable)
            assert "tls-ca:/tls/ca:ro" in service["volumes"], name
            if variable == "BROKER_URL":
                assert address.drivername == "rediss"
                assert address.query["ssl_ca_certs"] == "/tls/ca/ca.pem"
                # nothing that asks for less
                assert set(address.query) == {"password_file", "ssl_ca_certs"}
            else:
                assert address.query["sslmode"] == "verify-full"
                assert address.query["sslrootcert"] == "/tls/ca/ca.pem"
    served = {(name, "DATABASE_URL") for name in COMPOSED}
    queued = {
        (name, "BROKER_URL") for name, (_, networks) in COMPOSED.items() if "queue" in networks
    }
    migrated = {("migrate", f"DATABASE_{each.upper()}_URL") for each in ("owner", *PROCESSES)}
    assert seen == served | queued | migrated


def test_composed_servers_take_encrypted_connections_alone() -> None:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    rules = [line.split() for line in composed["configs"]["pg_hba"]["content"].splitlines()]
    assert [rule[0] for rule in rules] == ["local", "hostssl", "hostssl"]
    assert all(rule[-1] == "scram-sha-256" for rule in rules[1:])
    postgres, broker = composed["services"]["postgres"], composed["services"]["broker"]
    assert {"-cssl=on", "-chba_file=/etc/postgresql/pg_hba.conf"} <= set(postgres["command"])
    assert postgres["configs"] == [{"source": "pg_hba", "target": "/etc/postgresql/pg_hba.conf"}]
    flags = broker["command"]
    assert flags[flags.index("--port") + 1] == "0"
    assert flags[flags.index("--tls-port") + 1] == "6379"


def test_a_server_has_its_own_key_and_nobody_that_of_the_authority() -> None:
    """The authority's exists within `certificates` alone (test_certificates)."""
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    holders: dict[str, set[str]] = {}
    for name, service in composed["services"].items():
        for volume in service.get("volumes", ()):
            source, _, rest = volume.partition(":")
            if source.startswith("tls-"):
                holders.setdefault(source, set()).add(name)
                assert rest.endswith(":ro") or name == "certificates", (name, volume)
    assert holders["tls-postgres"] == {"certificates", "postgres"}
    assert holders["tls-broker"] == {"certificates", "broker"}
    first = {"certificates": {"condition": "service_completed_successfully"}}
    assert all(composed["services"][name]["depends_on"] == first for name in ("postgres", "broker"))


def test_images_are_named_by_variables() -> None:
    """So that `.env` can name each by its digest; those of the file are tags."""
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name, service in composed["services"].items():
        assert re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[^@]+\}", service["image"]), name
        if "build" in service:
            assert service["build"]["args"] == {"PYTHON_IMAGE": "${PYTHON_IMAGE:-python:3.11-slim}"}
            target = "worker" if name in ("worker", "checks") else "web"
            assert service["build"]["target"] == target, name
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            assert service["mem_limit"]
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith(("FROM", "ARG PYTHON"))] == [
        "ARG PYTHON_IMAGE=python:3.11-slim",
        "FROM ${PYTHON_IMAGE} AS base",
        "FROM base AS engine",
        "FROM engine AS worker",
        "FROM base AS web",
    ]


def test_a_composed_migration_makes_every_role() -> None:
    migrate = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["migrate"][
        "environment"
    ]
    assert set(migrate) == {
        "DATABASE_OWNER_URL",
        *(f"DATABASE_{each.upper()}_URL" for each in PROCESSES),
    }
    for process, url in process_urls(migrate).items():
        assert make_url(url).username == ROLES[process]


def test_a_program_learns_its_own_role_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
