"""A Celery consumer that no message can end: what it can't take in is logged by its kind and thrown away.

Celery refuses what is no JSON, names no task or has no arguments; anything else that is wrong with a message
would be raised out of the worker's loop and end it. A message is only a hint, so throwing one away loses
nothing.
"""

from collections.abc import Callable
from typing import Any

import structlog
from celery.worker.consumer import Consumer as CeleryConsumer

log = structlog.get_logger()


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """The consumer of this service's workers (`worker_consumer`)."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Celery's handler of one message, whose failures end that message alone."""
        handle = super().create_task_handler(*args, **kwargs)

        def received(message: Any) -> Any:
            try:
                return handle(message)
            except (*self.connection_errors, *self.channel_errors):
                raise  # the broker is away: the loop connects again
            except Exception as error:  # its text may quote the message
                log.error("a malformed message is thrown away", error=type(error).__name__)
                if not message.acknowledged:
                    message.reject()
                return None

        return received
