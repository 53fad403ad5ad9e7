"""Certificates for the servers of docker-compose.yml, and clients that take no others."""

import stat
from pathlib import Path

import psycopg
import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from accountant.addresses import broker_address
from accountant.database import connect
from tests.encrypted import SLOWLY, encrypted
from web.api import limits
from web.stack import certificates
from web.stack.addresses import POSTGRES, VALKEY, VALKEY_SOCKET, socket_folder

PATIENT = "connect_timeout=120"  # libpq's own limit: handshakes wait for a busy machine


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_authority_leaves_no_key(tmp_path: Path) -> None:
    assert certificates.main([str(tmp_path), "postgres", "broker"]) == 0
    made = files(tmp_path)
    assert set(made) == {"ca/ca.pem"} | {
        f"{server}/server.{kind}" for server in ("postgres", "broker") for kind in ("pem", "key")
    }
    assert [name for name, held in made.items() if b"PRIVATE KEY" in held] == [
        name for name in made if name.endswith(".key")
    ]
    for name in made:
        mode = stat.S_IMODE((tmp_path / name).stat().st_mode)
        assert mode == (0o600 if name.endswith(".key") else 0o644), name


def test_certificates_are_made_once_and_anew_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = [str(tmp_path), "postgres", "broker"]
    certificates.main(servers)
    first = files(tmp_path)
    assert certificates.main(servers) == 0
    assert files(tmp_path) == first
    assert certificates.main([*servers, "--renew", "--days", "30"]) == 0
    renewed = files(tmp_path)
    assert all(renewed[name] != held for name, held in first.items())
    assert "--renew makes new ones" in capsys.readouterr().err  # few days are left
    # An interrupted start, or another's certificate: nothing of it is kept.
    (tmp_path / "broker" / "server.pem").write_bytes(first["broker/server.pem"])
    assert certificates.end_of(tmp_path, ["postgres", "broker"]) is None
    assert certificates.main(servers) == 0
    assert files(tmp_path)["ca/ca.pem"] != renewed["ca/ca.pem"]


def test_ended_certificates_end_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates.make(tmp_path, ["postgres"], days=0)
    before = files(tmp_path)
    assert certificates.main([str(tmp_path), "postgres"]) == 1
    assert "--renew" in capsys.readouterr().err
    assert files(tmp_path) == before


# --- whom clients take
# -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with certificates for `localhost`, each of its own authority: the servers' and
    another.
    """
    made = tuple(tmp_path_factory.mktemp(name) for name in ("ours", "others"))
    for folder in made:
        certificates.make(folder, ["localhost"])
    return made[0], made[1]


@pytest.fixture(scope="module")
def database(servers, authorities):
    path = f"{socket_folder(servers.home, POSTGRES)}/.s.PGSQL.5432"
    with encrypted(authorities[0] / "localhost", path, postgres=True) as port:
        yield port


@pytest.fixture(scope="module")
def broker(servers, authorities):
    path = f"{socket_folder(servers.home, VALKEY)}/{VALKEY_SOCKET}"
    with encrypted(authorities[0] / "localhost", path) as port:
        yield port


def database_at(
    port: int, authority: Path, host: str = "localhost", mode: str = "verify-full"
) -> str:
    options = f"hostaddr=127.0.0.1&port={port}&sslmode={mode}&{PATIENT}"
    if mode == "verify-full":
        options += f"&sslrootcert={authority / 'ca' / 'ca.pem'}"
    return f"postgresql+psycopg://exchequer_application@{host}/migrated?{options}"


def broker_at(port: int, authority: Path, host: str = "localhost") -> str:
    return broker_address(f"rediss://{host}:{port}/0?ssl_ca_certs={authority / 'ca' / 'ca.pem'}")


def test_a_database_of_our_authority_is_reached_encrypted(database: int, authorities) -> None:
    engine = connect(database_at(database, authorities[0]))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        assert driver.pgconn.ssl_in_use
    engine.dispose()


@pytest.mark.parametrize(
    ("whose", "host", "mode", "says"),
    [
        (1, "localhost", "verify-full", "certificate verify failed"),
        (0, "elsewhere", "verify-full", "does not match host name"),
        (0, "localhost", "disable", "connection failed"),
    ],
)
def test_a_database_of_another_or_a_plain_connection_is_refused(
    whose: int, host: str, mode: str, says: str, database: int, authorities
) -> None:
    engine = connect(database_at(database, authorities[whose], host, mode))
    with pytest.raises(OperationalError, match=says), engine.connect():
        pass
    engine.dispose()


def celery_at(url: str) -> Celery:
    app = Celery(broker=url, set_as_current=False)
    app.conf.broker_transport_options = SLOWLY
    return app


def test_a_broker_of_our_authority_is_reached_by_each_library(
    broker: int, authorities, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = broker_at(broker, authorities[0])
    assert redis.Redis.from_url(url, **SLOWLY).ping()
    with celery_at(url).connection_for_write() as connection:
        assert connection.default_channel.client.ping()
    monkeypatch.setattr(limits, "_PATIENCE_SECONDS", 120)
    counters = limits._storage(url)
    assert counters.hit(limits.RateLimitItemPerMinute(5), "test_certificates")


def test_a_broker_of_another_or_a_plain_connection_is_refused(broker: int, authorities) -> None:
    for url, says in (
        (broker_at(broker, authorities[1]), "certificate verify failed"),
        (
            broker_at(broker, authorities[0], "127.0.0.1"),
            "certificate is not valid for|doesn't match|mismatch",
        ),
    ):
        with pytest.raises(redis.ConnectionError, match=says):
            redis.Redis.from_url(url, **SLOWLY).ping()
        with (
            celery_at(url).connection_for_write() as connection,
            pytest.raises(BrokerError, match=says),
        ):
            connection.ensure_connection(max_retries=1, interval_start=0)
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(f"redis://localhost:{broker}/0", **SLOWLY).ping()
