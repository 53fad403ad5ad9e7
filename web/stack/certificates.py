"""Certificates for the servers of docker-compose.yml, by an authority that exists while they are
made.

    python -m web.stack.certificates FOLDER SERVER ... [--days N] [--renew]

    FOLDER/ca/ca.pem            what clients check servers by
    FOLDER/SERVER/server.pem    the server's certificate, for the host name SERVER
    FOLDER/SERVER/server.key    its key, of mode 0600

The authority's key is never written: whoever takes over a server can make no certificate for
another, and new certificates are of a new authority. What is there and still valid is left alone,
so the servers that hold it and the clients that check it agree until `--renew`, after which all of
them have to start again.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 5 * 365
_WARN_DAYS = 60
_CLOCKS = timedelta(hours=1)  # by which machines may differ


def make(folder: Path, servers: Sequence[str], days: int = DAYS) -> None:
    """Make an authority and a certificate for each server, whatever was there before."""
    now = datetime.now(UTC)
    until = now + timedelta(days=days)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, now, until)
    for server in servers:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(server, key, authority, authority_key, now, until)
        _write(folder / server / "server.key", _pem(key), 0o600)
        _write(folder / server / "server.pem", certificate.public_bytes(Encoding.PEM), 0o644)
    # Last: where it stands, everything that it signed does.
    _write(folder / "ca" / "ca.pem", authority.public_bytes(Encoding.PEM), 0o644)


def end_of(folder: Path, servers: Sequence[str]) -> datetime | None:
    """Return when these servers' certificates end; None if one lacks or is another authority's."""
    try:
        authority = x509.load_pem_x509_certificate((folder / "ca" / "ca.pem").read_bytes())
        ends = [authority.not_valid_after_utc]
        for server in servers:
            certificate = x509.load_pem_x509_certificate(
                (folder / server / "server.pem").read_bytes()
            )
            certificate.verify_directly_issued_by(authority)
            if not (folder / server / "server.key").exists():
                return None
            ends.append(certificate.not_valid_after_utc)
    except (OSError, ValueError, TypeError, InvalidSignature):
        return None
    return min(ends)


def _authority(key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime) -> x509.Certificate:
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"Exchequer servers {start:%Y-%m-%d}")]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCKS)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return certificate.sign(key, hashes.SHA256())


def _certificate(
    server: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    start: datetime,
    end: datetime,
) -> x509.Certificate:
    issuer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, server)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCKS)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(server)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
        )
    )
    return certificate.sign(authority_key, hashes.SHA256())


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file whole; nobody else reads it on its way to its mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(content)
    draft.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing; 1 where what is there has ended."""
    parser = argparse.ArgumentParser(prog="python -m web.stack.certificates", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("servers", nargs="+", metavar="SERVER", help="its host name")
    parser.add_argument(
        "--days", type=int, default=DAYS, help="for which they are valid (%(default)s)"
    )
    parser.add_argument(
        "--renew", action="store_true", help="make all anew; then start everything again"
    )
    options = parser.parse_args(arguments)
    if options.days < 1:
        parser.error("--days: at least 1")
    end = None if options.renew else end_of(options.folder, options.servers)
    if end is None:
        make(options.folder, options.servers, options.days)
        end = end_of(options.folder, options.servers)
        assert end is not None
    left = end - datetime.now(UTC)
    if left < timedelta(0):
        print(
            f"the certificates in {options.folder} ended on {end:%Y-%m-%d}: --renew makes new ones",
            file=sys.stderr,
        )
        return 1
    print(f"certificates for {', '.join(options.servers)}, valid until {end:%Y-%m-%d}")
    if left < timedelta(days=_WARN_DAYS):
        print(f"{left.days} days are left: --renew makes new ones", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
