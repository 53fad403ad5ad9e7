"""Guards of addresses and certificates, each taken out alone (tests.mechanism_mutations)."""

ADDRESSES, CERTIFICATES = "accountant/addresses.py", "web/stack/certificates.py"
ADDRESS_TESTS, CERTIFICATE_TESTS = (
    "tests/accountant/test_addresses.py",
    "tests/web/stack/test_certificates.py",
)

#: (title, file, text, what stands there instead, tests that have to fail)
CONNECTIONS = (
    (
        "addresses: an encrypted broker is not checked",
        ADDRESSES,
        "    if encrypted:\n        _require_checks(query)\n",
        "",
        ADDRESS_TESTS,
    ),
    (
        "addresses: a broker may ask for no checks",
        ADDRESSES,
        'if wanted not in ("required", "CERT_REQUIRED"):',
        "if False:",
        ADDRESS_TESTS,
    ),
    (
        "addresses: a root certificate that nobody checks",
        ADDRESSES,
        "if mode not in _CHECKING_MODES:",
        "if False:",
        ADDRESS_TESTS,
    ),
    (
        "addresses: an empty password",
        ADDRESSES,
        "    if not password:\n",
        "    if False:\n",
        ADDRESS_TESTS,
    ),
    (
        "addresses: the celery command rules the broker",
        "workers/jobs/app.py",
        'os.environ.pop("CELERY_BROKER_URL", None)',
        "pass",
        "tests/workers/jobs/test_app.py",
    ),
    (
        "certificates: anybody reads a server's key",
        CERTIFICATES,
        "_pem(key), 0o600)",
        "_pem(key), 0o644)",
        CERTIFICATE_TESTS,
    ),
    (
        "certificates: new ones at every start",
        CERTIFICATES,
        "end = None if options.renew else",
        "end = None if True else",
        CERTIFICATE_TESTS,
    ),
)
