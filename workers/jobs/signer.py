"""The process that signs checkpoints, and the public log: it alone has the keys, and a role that
may write.

It is asked for an entry by its number, replays the balances after it from the entries themselves,
and signs those: whoever asks can have nothing else signed. It opens no data and no model.
"""

import signal
import threading

import structlog

from accountant import logs, settings
from accountant.core.errors import Conflict, ExchequerError
from accountant.database import UNAVAILABLE, Engine, engine_for
from accountant.ledger_log.signed import SignedPlaces
from accountant.queries import exports
from accountant.transactions import signing
from workers.jobs import log_publisher
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
    log_publisher.start(stop, engine, configured)
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


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(stop)


if __name__ == "__main__":
    main()
