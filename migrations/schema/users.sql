CREATE TABLE users (
    id uuid NOT NULL,
    name text NOT NULL,
    password_hash text,
    roles text[] NOT NULL,
    active boolean DEFAULT true NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    password_expires timestamptz,
    CONSTRAINT ck_users_known_roles CHECK ((roles <@ ARRAY['steward', 'analyst', 'auditor', 'administrator'])),
    CONSTRAINT pk_users PRIMARY KEY (id),
    CONSTRAINT uq_users_name UNIQUE (name)
);
