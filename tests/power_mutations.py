"""Guards of what each process may do, each taken out alone (tests.mechanism_mutations)."""

LEASES = "migrations/guards/0035_leases.sql"
LOOKS = "migrations/guards/0035_looks.sql"
POWER_TESTS = "tests/accountant/test_powers.py"

#: (title, file, text, what stands there instead, tests that have to fail)
POWERS = (
    (
        "powers: a worker renews and ends leases of others",
        LEASES,
        "WHEN 'worker' THEN coalesce(lease_secret_sha256 = lease_shown(), lease_secret_sha256 IS NULL)",
        "WHEN 'worker' THEN true",
        POWER_TESTS,
    ),
    (
        "powers: the relay ends leases that have not run out",
        LEASES,
        "WHEN 'relay' THEN lease_expires < clock_timestamp()",
        "WHEN 'relay' THEN true",
        POWER_TESTS,
    ),
    (
        "powers: a lease is taken without a secret",
        LEASES,
        "\n                AND n.attempt = was.attempt AND n.lease_secret_sha256 = lease_shown(),",
        "\n                AND n.attempt = was.attempt,",
        POWER_TESTS,
    ),
    (
        "powers: the web takes leases",
        LEASES,
        "IF process IN ('owner','service') THEN\n        RETURN NULL;",
        "IF process IN ('owner','service','web') THEN\n        RETURN NULL;",
        POWER_TESTS,
    ),
    (
        "powers: a worker settles jobs of others",
        LEASES,
        "WHEN (NEW.kind IN ('COMMIT','VOID')) EXECUTE",
        "WHEN (NEW.kind = 'NONE') EXECUTE",
        POWER_TESTS,
    ),
    (
        "powers: a worker states what another released",
        LEASES,
        "CREATE TRIGGER artifacts_lease AFTER INSERT ON artifacts FOR EACH ROW",
        "CREATE TRIGGER artifacts_lease AFTER INSERT ON artifacts FOR EACH ROW WHEN (false)",
        POWER_TESTS,
    ),
    (
        "powers: a worker states what another spent",
        LEASES,
        "AFTER INSERT ON realized_ex_post FOR EACH ROW",
        "AFTER INSERT ON realized_ex_post FOR EACH ROW WHEN (false)",
        POWER_TESTS,
    ),
    (
        "powers: a worker changes jobs of others",
        LEASES,
        "WHEN 'worker' THEN holds_lease(OLD.id)",
        "WHEN 'worker' THEN true",
        POWER_TESTS,
    ),
    (
        "powers: the relay ends jobs whose lease has not run out",
        LEASES,
        "OR changed_part(OLD.id)",
        "OR true",
        POWER_TESTS,
    ),
    (
        "powers: a worker opens keys of jobs of others",
        LEASES,
        "CREATE POLICY leased ON job_keys\n    USING (",
        "CREATE POLICY leased ON job_keys\n    USING (true OR ",
        POWER_TESTS,
    ),
    (
        "powers: a worker opens draws of jobs of others",
        LEASES,
        "CREATE POLICY leased ON kept_draws\n    USING (",
        "CREATE POLICY leased ON kept_draws\n    USING (true OR ",
        POWER_TESTS,
    ),
    (
        "powers: a check worker reserves at a price of its own",
        LOOKS,
        "AND unsealed(NEW.document::jsonb -> 'body') = j.to_reserve)",
        ")",
        POWER_TESTS,
    ),
    (
        "powers: a check worker queues what nothing is reserved for",
        LOOKS,
        "EXISTS (SELECT FROM entries WHERE job_id = NEW.id AND kind = 'RESERVE')",
        "true",
        POWER_TESTS,
    ),
    (
        "powers: a check worker refuses jobs that don't wait for it",
        LOOKS,
        "OLD.state = 'submitted' AND NEW.terms",
        "NEW.terms",
        POWER_TESTS,
    ),
    (
        "powers: a check worker changes what a job is priced by",
        LOOKS,
        "AND NEW.terms - 'delta' = OLD.terms - 'delta' AND CASE",
        "AND CASE",
        POWER_TESTS,
    ),
    (
        "powers: a check worker adds parts to jobs",
        LOOKS,
        "NOT (NEW.state = 'queued' AND EXISTS (",
        "NOT (NEW.state = 'queued' OR EXISTS (",
        POWER_TESTS,
    ),
    (
        "powers: a look decides by a price that has changed",
        "accountant/transactions/decision.py",
        "to_reserve != looked_at.to_reserve",
        "looked_at.to_reserve is None",
        POWER_TESTS,
    ),
)
