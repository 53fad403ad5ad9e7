"""Addresses of the database and the broker, made ready for their clients.

    postgresql+psycopg://exchequer_web@postgres/exchequer?password_file=FILE&sslmode=verify-full&sslrootcert=FILE
    rediss://broker:6379/0?password_file=FILE&ssl_ca_certs=FILE

`password_file` is ours: an address without its password may stand in an environment, and be shown.
The rest is what libpq, and what redis-py and kombu know; what would encrypt and check nothing is
refused here, because neither says so. Errors are RuntimeError, name the word at fault, and quote no
password.
"""

import os
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sqlalchemy import URL, make_url

__all__ = ["broker_address", "database_address"]

PASSWORD_FILE = "password_file"  # noqa: S105 (a word in an address)
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
# libpq checks a root certificate with these alone
_CHECKING_MODES = ("require", "verify-ca", "verify-full")


def database_address(address: str) -> URL:
    """Return a PostgreSQL address with its password. Raises unless its certificates are right."""
    url = make_url(address)
    query = {name: url.query.get(name) for name in (PASSWORD_FILE, "sslmode", "sslrootcert")}
    for name, value in query.items():
        if isinstance(value, tuple):
            raise RuntimeError(f"the database's address has {name} more than once")
    file, root = query[PASSWORD_FILE], query["sslrootcert"]
    if isinstance(file, str):
        if url.password is not None:
            raise RuntimeError(
                f"the database's address has a password and {PASSWORD_FILE}; one of them"
            )
        url = url.set(password=_read(file)).difference_update_query([PASSWORD_FILE])
    mode = str(query["sslmode"] or os.environ.get("PGSSLMODE") or "prefer")
    if mode not in _SSL_MODES:
        raise RuntimeError(
            f"sslmode={mode} in the database's address; allowed: {', '.join(_SSL_MODES)}"
        )
    if isinstance(root, str):
        if mode not in _CHECKING_MODES:
            raise RuntimeError(
                f"sslmode={mode} does not check sslrootcert: ask for sslmode=verify-full"
            )
        if root != "system":
            _require_certificates("sslrootcert", root)
    return url


def broker_address(address: str) -> str:
    """Return an address of the broker with its password, as redis-py and Celery take it.

    With rediss:// the server's certificate and name are checked; Celery would check nothing unless
    asked to.
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    encrypted = parts.scheme == "rediss"
    if parts.scheme not in ("redis", "rediss"):
        if PASSWORD_FILE in query:
            raise RuntimeError(
                f"{PASSWORD_FILE} is for redis:// and rediss://, not {parts.scheme}://"
            )
        return address
    place = parts.netloc
    if PASSWORD_FILE in query:
        if parts.password:
            raise RuntimeError(
                f"the broker's address has a password and {PASSWORD_FILE}; one of them"
            )
        user, at, host = place.rpartition("@")
        name = user.removesuffix(":") if at else ""
        place = f"{name}:{quote(_read(query.pop(PASSWORD_FILE)), safe='')}@{host}"
    names = sorted(name for name in query if name.startswith("ssl_"))
    if not encrypted and names:
        raise RuntimeError(
            f"{names[0]} in the broker's address, which is redis://: rediss:// is encrypted"
        )
    if encrypted:
        _require_checks(query)
    return parts._replace(netloc=place, query=urlencode(query, safe="/")).geturl()


def _require_checks(query: dict[str, str]) -> None:
    """Check that an encrypted broker's certificate and name are checked, or refuse the address."""
    wanted = query.get("ssl_cert_reqs", "required")
    if wanted not in ("required", "CERT_REQUIRED"):
        raise RuntimeError(
            f"ssl_cert_reqs={wanted} in the broker's address checks nothing; allowed: required"
        )
    if query.get("ssl_check_hostname", "true").lower() != "true":
        raise RuntimeError("ssl_check_hostname in the broker's address; allowed: true")
    if "ssl_ca_certs" in query:
        _require_certificates("ssl_ca_certs", query["ssl_ca_certs"])
    query |= {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}


def _read(file: str) -> str:
    """Return a password as a file holds it, without the newline at its end."""
    try:
        password = Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RuntimeError(f"{PASSWORD_FILE}: {file} can't be read ({why})") from None
    if not password:
        raise RuntimeError(f"{PASSWORD_FILE}: {file} is empty")
    return password


def _require_certificates(name: str, file: str) -> None:
    try:
        held = "-----BEGIN CERTIFICATE-----" in Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RuntimeError(f"{name}: {file} can't be read ({why})") from None
    if not held:
        raise RuntimeError(f"{name}: {file} holds no certificate")
