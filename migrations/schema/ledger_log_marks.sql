CREATE TABLE ledger_log_marks (
    n bigint CONSTRAINT pk_ledger_log_marks PRIMARY KEY CONSTRAINT ck_ledger_log_marks_n CHECK (n >= 0),
    log text NOT NULL,
    line text NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    system text NOT NULL,
    timeline bigint
);
