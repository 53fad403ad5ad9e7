CREATE TABLE maintenance (
    one boolean DEFAULT true CONSTRAINT pk_maintenance PRIMARY KEY CONSTRAINT ck_maintenance_one CHECK (one),
    reason text NOT NULL,
    by text NOT NULL,
    since timestamptz DEFAULT clock_timestamp() NOT NULL
);
