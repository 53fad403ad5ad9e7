"""A Celery consumer to which a message is only a hint: which task, of which job.

Whatever else a message says is left out before Celery reads it: a time limit of its own, a time
before or after which it runs, tasks that follow it. A message of another form is thrown away, which
loses nothing. Commands by the broker ("remote control"), and what workers tell one another there,
are off.
"""

import json
from collections.abc import Callable, Set
from typing import Any
from uuid import UUID

import structlog
from celery import bootsteps
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.consumer import Tasks

from workers.jobs.alive import ALIVE_SECONDS, sign_of_life
from workers.jobs.broker import is_served

log = structlog.get_logger()

MOST_BYTES = 1_000  # of a message's body: an id and two small numbers take a tenth of it
_APART = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}


class Alive(bootsteps.StartStopStep):  # type: ignore[misc]
    """Touch the file that EXCHEQUER_ALIVE_FILE names, as long as the worker takes messages."""

    requires = (Tasks,)

    def start(self, parent: Any) -> None:
        """Begin once the queue is listened to; the loop that reads it calls the timer, too."""
        parent.timer.call_repeatedly(ALIVE_SECONDS, sign_of_life)
        sign_of_life()


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """The consumer of this service's workers (`worker_consumer`)."""

    def __init__(self, *args: Any, worker_options: Any = None, **kwargs: Any) -> None:
        """Take Celery's arguments. Workers never listen to one another, whatever they say."""
        super().__init__(*args, worker_options={**(worker_options or {}), **_APART}, **kwargs)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Return Celery's handler of one message, which gets the hint and nothing else of it."""
        handle = super().create_task_handler(*args, **kwargs)
        served = self.app.amqp.queues.consume_from

        def received(message: Any) -> Any:
            try:
                reduce_to_hint(message, set(served))
            except Exception as error:  # its text may quote the message
                log.error("a malformed message is thrown away", error=type(error).__name__)
                return message.reject()
            return handle(message)

        return received


def reduce_to_hint(message: Any, served: Set[str]) -> None:
    """Leave of a message its task, its id, and the id and numbers that the task takes.

    Raises ValueError, TypeError, KeyError or AttributeError for a message of another form, and for
    a task of a queue that this worker does not serve.
    """
    if message.errors:
        raise ValueError("the message can't be read")
    task, body = message.headers["task"], message.body
    if not is_served(task.removeprefix("exchequer."), served) or not task.startswith("exchequer."):
        raise ValueError("another worker's task")
    if len(body) > MOST_BYTES:
        raise ValueError("the message is too long")
    (subject, *numbers), _, _ = json.loads(body)
    # no bool is a number
    if len(numbers) > 2 or not all(type(number) is int for number in numbers):
        raise ValueError("no hint")
    hint = [[str(UUID(subject)), *numbers], {}, {}]
    message.headers = {"lang": "py", "task": task, "id": str(UUID(message.headers["id"]))}
    message.properties = {"correlation_id": message.headers["id"]}
    message.content_type, message.content_encoding = "application/json", "utf-8"
    message.body = json.dumps(hint).encode()
