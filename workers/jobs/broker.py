"""The broker as workers read it: whoever can write to it can neither end a worker nor fill its
memory.

Kombu reads what lies in Redis before Celery sees a message, and raises out of the worker's loop
what it can't read: that ends the worker. Here it is thrown away, which loses nothing, as the relay
sends a hint again. No message is unpacked either: a kilobyte could become a gigabyte.
"""

from collections.abc import Iterable
from queue import Empty
from typing import Any

import structlog
from kombu import compression
from kombu.transport import TRANSPORT_ALIASES, redis

log = structlog.get_logger()

#: Tasks, and the queue of each.
QUEUES = {
    "generate": "generate",  # needs the accelerator, one job at a time
    "free": "free",  # jobs on what is public or released: evaluation, public mechanisms
    "probe": "checks",  # public looks at models, data checks: quick, and never behind a long job
    "check_dataset": "checks",
    "check_model": "checks",
    "check_corpus": "checks",
}


def queue_of(task: str) -> str:
    """Return the queue of a task, behind which the class of its workers may stand after a dot."""
    name, dot, hardware = task.partition(".")
    return QUEUES[name] + dot + hardware


def is_served(task: str, queues: Iterable[str]) -> bool:
    """Return whether a task is for one of these queues, of whichever class."""
    return QUEUES[task] in {queue.partition(".")[0] for queue in queues}


def classes_of(queues: Iterable[str]) -> list[str]:
    """Return the classes whose jobs come by these queues; "" stands for jobs that name none."""
    jobs = ("generate", "free")
    parted = (queue.partition(".") for queue in queues)
    return sorted({hardware for name, _, hardware in parted if name in jobs})


def _is_away(channel: redis.Channel, error: Exception) -> bool:
    """Return True if the broker is away; kombu counts a missing key of a message as that, too."""
    return isinstance(error, channel.connection_errors) and not isinstance(error, KeyError)


class QoS(redis.QoS):
    """Messages that were taken and not acknowledged."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put a message back into its queue; what can't be read is forgotten."""
        try:
            super().restore_by_tag(tag, client, leftmost)
        except Exception as error:  # its text may quote the message
            if _is_away(self.channel, error):
                raise
            log.error("a message that can't be put back is thrown away", error=type(error).__name__)
            with self.channel.conn_or_acquire(client) as connection:
                connection.hdel(self.unacked_key, tag)
                connection.zrem(self.unacked_index_key, tag)


class Channel(redis.Channel):
    """A channel on which one unreadable message ends nothing."""

    QoS = QoS

    def _brpop_read(self, **options: Any) -> Any:
        """Read one message that the server answered with, and hand it on."""
        try:
            return super()._brpop_read(**options)
        except Empty:
            raise
        except Exception as error:
            if _is_away(self, error):
                raise
            log.error("an unreadable message is thrown away", error=type(error).__name__)
            return True


class Transport(redis.Transport):
    """Redis or Valkey, by the channel above."""

    Channel = Channel


def _refuse(_: bytes) -> bytes:
    raise ValueError("no message of this service is compressed")


def guard() -> None:
    """Have every connection of this process to a broker made in this way."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
    for kind in list(compression.encoders()):
        compression.register(None, _refuse, kind)
