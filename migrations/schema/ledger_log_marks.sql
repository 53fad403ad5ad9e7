CREATE TABLE ledger_log_marks (
    n bigint NOT NULL,
    log text NOT NULL,
    line text NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    system text NOT NULL,
    timeline bigint,
    CONSTRAINT ck_ledger_log_marks_n CHECK ((n >= 0)),
    CONSTRAINT pk_ledger_log_marks PRIMARY KEY (n)
);
