-- Which role is which process, and what rows its rights reach. A right says which table may be changed; the
-- triggers here say by which entry. Whoever owns the tables is asked nothing: an owner may disable triggers.
CREATE TABLE process_roles (
    role text NOT NULL,
    process text NOT NULL,
    CONSTRAINT ck_process_roles_process CHECK ((process = ANY (ARRAY['service', 'web', 'relay', 'worker', 'checks', 'signer']))),
    CONSTRAINT pk_process_roles PRIMARY KEY (role)
);
