-- How many jobs with a price one person has waiting (transactions.waiting_jobs).

CREATE INDEX ix_jobs_waiting ON jobs (analyst_id, state)
    WHERE reads_records AND state IN ('submitted','awaiting_approval','queued');

-- Whether each of these people may have so many `more` waiting, with no limit in question. Where not, somebody looks.
CREATE FUNCTION may_wait(people uuid[], more integer[], most integer) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT FROM unnest(people, more) AS asked(id, count) WHERE asked.count + (
        SELECT count(*) FROM jobs WHERE analyst_id = asked.id
        AND reads_records AND state IN ('submitted','awaiting_approval','queued')) > most)
$$;
