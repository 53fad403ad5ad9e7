CREATE TABLE users (
    id uuid CONSTRAINT pk_users PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_users_name UNIQUE,
    password_hash text,
    roles text[] NOT NULL,
    active boolean DEFAULT true NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    password_expires timestamptz,
    CONSTRAINT ck_users_known_roles CHECK (roles <@ ARRAY['steward', 'analyst', 'auditor', 'administrator'])
);
