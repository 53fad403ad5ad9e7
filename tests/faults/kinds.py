"""The faults that the harness draws, and where some of them may fall."""

#: How often each kind of fault is drawn.
KINDS = {
    "crash point: kill": 34,
    "crash point: stop past the lease": 10,
    "crash point: OSError": 14,
    "kill -9": 14,
    "worker paused past its lease": 7,
    "message delivered twice": 9,
    "broker killed and flushed": 4,
    "PostgreSQL stopped immediately": 3,
    "clock skewed": 5,
    "ledger attacked": 3,
    "database restored from a backup": 2,  # every other time: the others take the backup
}
#: What somebody who owns the tables may try; the service's own role has no right to.
ATTACKS = ("TRUNCATE entries", "DELETE FROM entries", "UPDATE entries SET actor = 'nobody'")
#: Where an OSError may come out of: steps that write files, send messages or answer.
FAILING = (
    "worker.writes",
    "worker.staged",
    "worker.step",
    "worker.opens data",
    "worker.committed",
    "worker.published",
)
FAILING += ("relay.sent", "relay.taken", "reaper.expired", "submit.decided", "submit.written")
FAILING += (
    "submit.committed",
    "approve.written",
    "answer.committed",
    "publish.charged",
    "publish.written",
)
