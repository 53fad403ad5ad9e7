CREATE TABLE realized_ex_post (
    job_id uuid CONSTRAINT pk_realized_ex_post PRIMARY KEY,
    amount numeric(38,0) NOT NULL CONSTRAINT ck_realized_ex_post_not_negative CHECK (amount >= 0),
    curve jsonb,
    CONSTRAINT ck_realized_ex_post_numbers CHECK (amount < 'NaN'),
    CONSTRAINT fk_realized_ex_post_job_id FOREIGN KEY (job_id) REFERENCES jobs
);

CREATE TRIGGER realized_ex_post_lease AFTER INSERT ON realized_ex_post FOR EACH ROW
    EXECUTE FUNCTION guard_lease();
