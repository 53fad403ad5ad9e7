CREATE TABLE key_checks (
    name text CONSTRAINT pk_key_checks PRIMARY KEY,
    proof bytea NOT NULL CONSTRAINT ck_key_checks_length CHECK (octet_length(proof) = 32)
);

CREATE FUNCTION guard_key_checks() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() = 'web' AND NEW.name <> 'session'
        OR calling_process() = 'worker' AND NEW.name <> 'units'
    THEN
        PERFORM refuse_act('the key is another process''s');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER key_checks_owner AFTER INSERT ON key_checks FOR EACH ROW EXECUTE FUNCTION guard_key_checks();
