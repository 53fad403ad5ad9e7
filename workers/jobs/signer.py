"""The process that signs checkpoints, and the public log: it alone has the keys, and a role that
may write.

It is asked for an entry by its number, replays the balances after it from the entries themselves,
and signs those: whoever asks can have nothing else signed. It opens no data and no model.
"""

import signal
import threading

import structlog

from accountant import logs, settings
from accountant.core.errors import Conflict, ExchequerError, LogUnusable
from accountant.database import UNAVAILABLE, Engine, engine_for
from accountant.ledger_log.publication import publish_configured
from accountant.ledger_log.signed import SignedPlaces
from accountant.queries import exports
from accountant.settings import Settings
from accountant.transactions import ledger_log, signing
from workers.jobs.alive import sign_of_life

log = structlog.get_logger()

POLL_SECONDS = 0.1
KEY = "checkpoint"


def sign_wanted(engine: Engine, seed: bytes) -> int:
    """Sign every checkpoint that is asked for; returns how many. What can't be signed is logged."""
    wanted = signing.wanted(engine)
    for dataset_id, seq in wanted:
        try:
            exports.checkpoint_at(engine, dataset_id, seq, seed)
        except UNAVAILABLE:
            raise
        except Exception as error:  # of one ledger: the others are signed
            told = str(error) if isinstance(error, ExchequerError) else type(error).__name__
            log.error("not signed", dataset=str(dataset_id), entry=seq, error=told)
        signing.answered(engine, dataset_id, seq)
    return len(wanted)


def run(stop: threading.Event) -> None:
    """Sign until `stop` is set; an outage of the database is waited out."""
    configured = settings.load()
    if configured.database_url is None:
        raise SystemExit("DATABASE_URL is not set")
    engine = engine_for(
        configured.database_url, configured.ledger_log, signed=SignedPlaces.of(configured)
    )
    introduced = False
    start_publishing(stop, engine, configured)
    while not stop.is_set():
        sign_of_life()
        try:
            seed = configured.secret(KEY)  # read anew: `exchequer key rotate` replaces it
            if not introduced:  # so that the public key is known before anything is signed
                signing.keys(engine, seed)
                introduced = True
            sign_wanted(engine, seed)
        except Conflict as error:
            log.error("nothing is signed", error=str(error))
            stop.wait(1.0)
        except UNAVAILABLE as error:
            log.warning("signer waits for the database", error=type(error).__name__)
            stop.wait(1.0)
        except Exception as error:  # of whatever kind: nobody else signs
            log.error("the signer goes on after an error", error=type(error).__name__)
            stop.wait(1.0)
        stop.wait(POLL_SECONDS)


# --- the public log -----------------------------------------------------------------------------

# A thread of its own. Whatever stops a publication (a full disk, a witness that is away) is logged
# and tried again at the next turn: signing checkpoints of exports goes on.


def publish_new(engine: Engine, configured: Settings, published: int) -> int:
    """Publish what the log holds beyond its first `published` entries; returns how many it holds
    now.

    The log must be the one that the database calls its own. Raises as `publish_configured`.
    """
    outside = ledger_log.log_of(engine)
    if outside is None:
        raise LogUnusable("none is configured (EXCHEQUER_LEDGER_LOG)")
    holds = outside.length()
    if holds in (0, published):  # 0: nobody has written yet, and to begin a log is not the signer's
        return holds
    ledger_log.attach(engine, outside)
    head, key = publish_configured(configured, outside)
    log.info("log published", entries=head.size, root=head.root.hex(), log_key=str(key))
    return head.size


def publish(stop: threading.Event, engine: Engine, configured: Settings) -> None:
    """Publish every `public_log_seconds` until `stop` is set."""
    published = -1  # the first turn publishes whatever there is: its checkpoint may have been lost
    while not stop.is_set():
        try:
            published = publish_new(engine, configured, published)
        # of any kind: the next turn may succeed, and nobody else would tell
        except Exception as error:
            log.error("the log is not published", problem=str(error), error=type(error).__name__)
        stop.wait(configured.public_log_seconds)


def start_publishing(
    stop: threading.Event, engine: Engine, configured: Settings
) -> threading.Thread | None:
    """Run in a thread of its own; None where no folder is set, or no schedule."""
    if configured.public_log is None or not configured.public_log_seconds:
        return None
    thread = threading.Thread(
        target=publish, args=(stop, engine, configured), name="public log", daemon=True
    )
    thread.start()
    return thread


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(stop)


if __name__ == "__main__":
    main()
