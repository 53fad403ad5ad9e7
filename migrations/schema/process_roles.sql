-- Which role is which process, and what rows its rights reach. A right says which table may be changed; the
-- triggers say by which entry. Whoever owns the tables is asked nothing: an owner may disable triggers.
CREATE TABLE process_roles (
    role text CONSTRAINT pk_process_roles PRIMARY KEY,
    process text NOT NULL,
    CONSTRAINT ck_process_roles_process CHECK (process IN ('service', 'web', 'relay', 'worker', 'checks',
        'signer'))
);
