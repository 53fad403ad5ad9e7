"""Addresses with their passwords in files, and nothing that encrypts without checking whom it
reaches.
"""

from pathlib import Path

import pytest
from celery import Celery
from redis import Redis

from accountant.addresses import broker_address, database_address

PASSWORD = "planted/ word:@%"
DATABASE = "postgresql+psycopg://exchequer_web@postgres/exchequer"
BROKER = "rediss://broker:6379/0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    return tmp_path / "password"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    return tmp_path / "ca.pem"


def test_a_database_has_the_password_of_its_file(file: Path, authority: Path) -> None:
    made = database_address(
        f"{DATABASE}?password_file={file}&sslmode=verify-full&sslrootcert={authority}"
    )
    assert (made.username, made.password) == ("exchequer_web", PASSWORD)
    assert dict(made.query) == {"sslmode": "verify-full", "sslrootcert": str(authority)}
    assert database_address(f"{DATABASE}?pooler=transaction").query == {"pooler": "transaction"}


def test_a_broker_has_the_password_of_its_file(file: Path, authority: Path) -> None:
    """As both of its libraries read the address."""
    made = broker_address(f"{BROKER}?password_file={file}&ssl_ca_certs={authority}")
    given = Redis.from_url(made).connection_pool.connection_kwargs
    assert (given["host"], given["port"], given["password"], given["db"]) == (
        "broker",
        6379,
        PASSWORD,
        0,
    )
    connection = Celery(broker=made).connection_for_write()
    assert connection.password == PASSWORD
    assert connection.virtual_host == "0"
    assert "planted" not in connection.as_uri()  # what workers print
    named = broker_address(f"redis://service@broker/1?password_file={file}")
    assert Redis.from_url(named).connection_pool.connection_kwargs["username"] == "service"


@pytest.mark.parametrize("asked", ["", "?ssl_cert_reqs=CERT_REQUIRED", "?ssl_check_hostname=True"])
def test_an_encrypted_broker_is_always_checked(asked: str) -> None:
    """Celery checks nothing of a rediss:// without options."""
    made = broker_address(BROKER + asked)
    told = Celery(broker=made).connection_for_write().ssl
    assert told["ssl_cert_reqs"].name == "CERT_REQUIRED"
    assert told["ssl_check_hostname"] is True
    given = Redis.from_url(made).connection_pool.connection_kwargs
    assert (given["ssl_cert_reqs"], given["ssl_check_hostname"]) == ("required", True)


@pytest.mark.parametrize(
    "address",
    [
        "redis://:word@broker:6379/0",
        "redis+socket:///a/valkey.sock?virtual_host=0",
        "unix:///a?db=1",
    ],
)
def test_other_addresses_of_brokers_stay_as_they_are(address: str) -> None:
    assert broker_address(address) == address


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (
            f"{DATABASE}?password_file=/nowhere",
            "password_file: /nowhere can't be read .No such file",
        ),
        (f"{DATABASE}?password_file=FOLDER/empty", "empty is empty"),
        (f"{DATABASE}?password_file=FOLDER", "can't be read"),
        (f"{DATABASE}?password_file=a&password_file=b", "password_file more than once"),
        (f"{DATABASE.replace('@', ':hunter2@')}?password_file=FOLDER/empty", "one of them"),
        (f"{DATABASE}?sslmode=verify_full", "allowed: disable, .*verify-full"),
        (
            f"{DATABASE}?sslmode=verify-full&sslrootcert=/nowhere",
            "sslrootcert: /nowhere can't be read",
        ),
        (f"{DATABASE}?sslmode=verify-full&sslrootcert=FOLDER/empty", "holds no certificate"),
        (f"{DATABASE}?sslmode=prefer&sslrootcert=/nowhere", "ask for sslmode=verify-full"),
        (f"{DATABASE}?sslrootcert=/nowhere", "ask for sslmode=verify-full"),
    ],
)
def test_a_bad_address_of_a_database_says_what_is_wrong(
    address: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    (tmp_path / "empty").touch()
    with pytest.raises(RuntimeError, match=says) as caught:
        database_address(address.replace("FOLDER", str(tmp_path)))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (f"{BROKER}?password_file=/nowhere", "password_file: /nowhere can't be read"),
        (f"{BROKER}?password_file=FOLDER/empty", "empty is empty"),
        ("rediss://:hunter2@broker/0?password_file=FOLDER/empty", "one of them"),
        (
            f"{BROKER}?ssl_cert_reqs=none",
            "ssl_cert_reqs=none in the broker's address checks nothing",
        ),
        (f"{BROKER}?ssl_cert_reqs=CERT_OPTIONAL", "checks nothing; allowed: required"),
        (f"{BROKER}?ssl_check_hostname=false", "ssl_check_hostname .*; allowed: true"),
        (f"{BROKER}?ssl_ca_certs=/nowhere", "ssl_ca_certs: /nowhere can't be read"),
        (f"{BROKER}?ssl_ca_certs=FOLDER/empty", "holds no certificate"),
        ("redis://broker/0?ssl_ca_certs=/nowhere", "rediss:// is encrypted"),
        (
            "redis+socket:///a/b.sock?password_file=/nowhere",
            "password_file is for redis:// and rediss://",
        ),
    ],
)
def test_a_bad_address_of_a_broker_says_what_is_wrong(
    address: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(RuntimeError, match=says) as caught:
        broker_address(address.replace("FOLDER", str(tmp_path)))
    assert "hunter2" not in str(caught.value)
