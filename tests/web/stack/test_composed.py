"""docker-compose.yml, started without Docker: what its services reach, and what their processes
show.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import redis
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from accountant.addresses import broker_address, database_address
from accountant.rights import PROCESSES
from accountant.settings import Settings
from tests.composed import COMPOSED, UID, Composed, encrypting_postgres
from tests.encrypted import SLOWLY, encrypted
from web.stack import certificates
from web.stack.addresses import ROLES

pytestmark = pytest.mark.slow

PATIENT = "120"  # seconds that libpq waits for a busy machine, in place of our 3


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    """Certificates, both servers, and the migrated database, each by the command of its service."""
    programs = encrypting_postgres()
    if programs is None:
        pytest.skip("no PostgreSQL with TLS is installed; the embedded one has none")
    folder = Path(tempfile.mkdtemp(prefix="composed-"))  # where PostgreSQL's user can reach it too
    folder.chmod(0o755)
    made = Composed(folder, programs)
    try:
        with migrated(made, programs):
            yield made
            made.stop()  # while the broker can be reached: a worker says goodbye to it
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def migrated(made: Composed, programs: Path) -> Iterator[None]:
    """Certificates, both servers and the migrated database, while the block lasts."""
    # The broker's certificate is for a name that leads to this machine.
    names = ["localhost" if part == "broker" else part for part in made.command("certificates")]
    assert made.run("certificates", *names) == 0, made.log("certificates")
    (made.folder / "tls" / "localhost").rename(made.folder / "tls" / "broker")
    make_cluster(made, programs)
    start_postgres(made)
    with owner(made, "postgres").connect() as connection:
        connection.execute(text("CREATE DATABASE exchequer"))
    made.start("broker")
    behind = made.folder / "broker" / "valkey.sock"
    until(behind.exists)
    with encrypted(made.folder / "tls" / "broker", str(behind)) as made.broker_port:
        assert made.run("migrate") == 0, made.log("migrate")
        yield


def make_cluster(made: Composed, programs: Path) -> None:
    """As the image makes one, with the password of its secret."""
    data, password = made.folder / "postgres", made.folder / "postgres_password"
    data.mkdir(mode=0o700)
    shutil.copy(made.folder / "secrets" / "postgres_password", password)
    for path in (data, password):
        os.chown(path, UID, -1)
    options = COMPOSED["services"]["postgres"]["environment"]["POSTGRES_INITDB_ARGS"].split()
    command = [
        "-D",
        str(data),
        "--username=exchequer",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        *options,
    ]
    become = {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(
        [str(programs / "initdb"), *command], check=True, capture_output=True, cwd="/", **become
    )
    password.unlink()


def start_postgres(made: Composed) -> None:
    """On a port that nobody took meanwhile. Six in a row are taken, at one of 50 each, once in
    10^10 runs.
    """
    for _ in range(6):
        made.take_port()
        server = made.start("postgres")
        until(lambda server=server: server.poll() is not None or reached(made))
        if server.poll() is None:
            return
    raise AssertionError(made.log("postgres"))


def url_of(made: Composed, process: str) -> str:
    """A process's address: of the owner where it is "owner"."""
    return made.environment("migrate")[f"DATABASE_{process.upper()}_URL"]


def engine(made: Composed, process: str, database: str = "exchequer", **query: str):
    """An engine for a process's address, with its own password, certificates and, in their place,
    `query`.
    """
    url = make_url(url_of(made, process)).update_query_dict({"connect_timeout": PATIENT, **query})
    url = database_address(url.set(database=database).render_as_string(hide_password=False))
    return create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)


def owner(made: Composed, database: str):
    return engine(made, "owner", database)


def reached(made: Composed) -> bool:
    try:
        with owner(made, "postgres").connect():
            return True
    except OperationalError:
        return False


#: What the file itself decides, or which no container has.
DECIDED = {
    *("home", "database_url", "database_owner_url", "broker_url", "runs_as", "keys"),
    *("host", "port", "oidc_client_secret_file"),
}


def test_every_setting_reaches_the_services_that_read_it() -> None:
    """Said in `.env`, and by no service's own word."""
    for name in Settings.model_fields.keys() - DECIDED:
        readers = {
            service
            for service, made in COMPOSED["services"].items()
            if f"EXCHEQUER_{name.upper()}" in made.get("environment", {})
        }
        assert readers, name
        if name in ("oidc_client_secret", "smtp_password"):
            assert len(readers) == 1, name
    settled = {"relay": "SMTP_HOST", "worker": "RESULTS_URL", "signer": "PUBLIC_LOG_WITNESSES"}
    for service, name in settled.items():
        assert f"EXCHEQUER_{name}" in COMPOSED["services"][service]["environment"]


@pytest.mark.parametrize("process", PROCESSES)
def test_each_role_connects_encrypted_with_the_password_of_its_file(
    composed: Composed, process: str
) -> None:
    with engine(composed, process).connect() as connection:
        ssl = "SELECT current_user, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.execute(text(ssl)).one() == (ROLES[process], "TLSv1.3")
        given = connection.execute(text("SELECT calling_process()")).scalar_one()
        assert given == process


def test_the_database_refuses_what_is_not_encrypted_or_knows_no_password(
    composed: Composed,
) -> None:
    plain = make_url(url_of(composed, "web")).difference_update_query(["sslrootcert"])
    plain = plain.update_query_dict({"sslmode": "disable", "connect_timeout": PATIENT})
    refused = create_engine(database_address(plain.render_as_string(hide_password=False)))
    with pytest.raises(OperationalError, match="no encryption"), refused.connect():
        pass
    theirs = str(composed.folder / "secrets" / "relay_password")
    with (
        pytest.raises(OperationalError, match="password authentication failed"),
        engine(composed, "web", password_file=theirs).connect(),
    ):
        pass


def test_a_database_of_another_authority_is_refused(composed: Composed, tmp_path: Path) -> None:
    certificates.make(tmp_path, ["postgres"])
    others = str(tmp_path / "ca" / "ca.pem")
    with (
        pytest.raises(OperationalError, match="certificate verify failed"),
        engine(composed, "web", sslrootcert=others).connect(),
    ):
        pass


def test_the_broker_asks_for_the_password_of_its_file(composed: Composed) -> None:
    address = composed.environment("relay")["BROKER_URL"]
    assert redis.Redis.from_url(broker_address(address), **SLOWLY).ping()
    without = re.sub(r"password_file=[^&]*&", "", address)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(broker_address(without), **SLOWLY).ping()


def test_no_process_shows_a_password_or_key(composed: Composed) -> None:
    """In its arguments to anybody on the machine, nor in its environment; health checks neither."""
    names = ("web", "relay", "checks", "signer")
    running = {name: composed.start(name) for name in names}
    until(lambda: "reconciled" in composed.log("relay"))
    until(lambda: ready(composed))
    health = composed.here("checks", COMPOSED["services"]["checks"]["healthcheck"]["test"][1])
    shown = []

    def answers() -> bool:
        asked = composed.start("checks", "sh", "-c", health)
        shown.append(composed.shown())
        assert running["checks"].poll() is None, composed.log("checks")
        while asked.poll() is None:
            shown.append(composed.shown())
        return asked.returncode == 0

    until(answers)
    for name, process in running.items():
        assert process.poll() is None, composed.log(name)
        for line in composed.log(name).splitlines():
            assert {"message", "level", "logger", "timestamp"} <= json.loads(line).keys()
    told = "\n".join(shown)
    for part in (
        "valkey-server",
        "-cssl=on",
        "workers.jobs.relay",
        "gunicorn",
        "rediss://",
        "@postgres/",
    ):
        assert part in told, part  # it was looked at: each runs from before the first look
    for name, planted in composed.passwords.items():
        assert planted not in told, name
        for service in COMPOSED["services"]:
            if (composed.folder / f"{service}.log").exists():
                assert planted not in composed.log(service), (name, service)


def ready(made: Composed) -> bool:
    with httpx2.Client(
        trust_env=False, transport=httpx2.HTTPTransport(uds=str(made.folder / "web.sock"))
    ) as client:
        try:
            return client.get("http://web/readyz", timeout=30).status_code == 200
        except httpx2.HTTPError:
            return False
