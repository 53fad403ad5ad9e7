"""The Celery application. A message is only a hint: `tasks.generate` asks the database whether it
may run.

- acks late and prefetch 1: a message waits in the broker, not in a busy worker;
- a lost child process is not redelivered (`task_reject_on_worker_lost` off): the reaper decides, by
  lease;
- the visibility timeout is longer than the hard limit, so the broker doesn't hand out a running
  task again;
- a lost broker connection doesn't cancel a running task: its claim lives in the database;
- results are not kept: the ledger is the result.
"""

import os

from celery import Celery, signals

from accountant import logs, settings
from accountant.addresses import broker_address
from workers.jobs.broker import QUEUES, guard
from workers.jobs.consumer import Alive


@signals.celeryd_init.connect  # before Celery warns of anything
@signals.setup_logging.connect
def _write_lines(**_: object) -> None:
    """Celery writes its lines as all others of the process."""
    logs.configure()


def make_app() -> Celery:
    """Return the application, configured from the environment."""
    configured = settings.load()
    limit = configured.hard_limit_seconds
    # The `celery` command hands BROKER_URL on as it stands, without its password and unchecked.
    os.environ.pop("CELERY_BROKER_URL", None)
    broker = None if configured.broker_url is None else broker_address(configured.broker_url)
    parts = [
        f"workers.jobs.{name}"
        for name in ("tasks", "checks", "child_watch", "results_watch", "presence")
    ]
    guard()
    app = Celery("exchequer", broker=broker, include=parts)
    app.steps["consumer"].add(Alive)
    app.conf.update(
        worker_enable_remote_control=False,  # whoever can write to the broker could stop and kill
        accept_content=["json"],
        task_serializer="json",
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_ignore_result=True,
        task_time_limit=limit,
        # A second beyond what the attempt allows itself: for one that hangs within a step.
        task_soft_time_limit=min(configured.attempt_seconds + 1, limit),
        task_default_queue="checks",
        task_routes={f"exchequer.{task}": {"queue": queue} for task, queue in QUEUES.items()},
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_consumer="workers.jobs.consumer:Consumer",
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        # Health checks and timeouts: a connection that died silently is noticed (kombu issue 2492).
        broker_transport_options={
            "visibility_timeout": limit + 3600,
            "health_check_interval": 10,
            "socket_timeout": 10,  # a broker that is frozen holds the relay for no longer
            "socket_connect_timeout": 5,
            "retry_on_timeout": True,
        },
    )
    return app


app = make_app()
