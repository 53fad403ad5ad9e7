"""Messages that no relay of ours sent: whoever reaches the broker ends no worker and starts no job."""

import base64
import json
import uuid

import psutil
import pytest
import redis

from accountant.catalogue import corpora
from tests.support import person
from tests.workers.conftest import wait_for
from web.local import redis_url

pytestmark = pytest.mark.slow


def envelope(body: bytes, task: str = "exchequer.check_corpus", **headers: object) -> str:
    """A message as kombu writes it to Redis, with this body and these headers."""
    told = {"lang": "py", "task": task, "id": str(uuid.uuid4()), "argsrepr": "", "kwargsrepr": ""}
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {**told, **headers},
            "properties": {
                "correlation_id": told["id"],
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "checks"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
            },
        }
    )


MALFORMED = {
    "no id": envelope(b'[["not an id"], {}, {}]'),
    "too many arguments": envelope(b'[[1, 2, 3, 4, 5], {"x": 1}, {}]'),
    "an unknown task": envelope(b"[[], {}, {}]", "os.system"),
    "no body": envelope(b""),
    "no JSON in it": envelope(b"\xff\xfe{"),
    "another type": envelope(b'{"a": 1}'),
    "a number": envelope(b"7"),
    "no headers": envelope(b"[[], {}, {}]", id=None, task=None),
    "a pickle": envelope(b"cos\nsystem\n(S'true'\ntR.").replace(
        "application/json", "application/x-python-serialize"
    ),
}


@pytest.mark.parametrize("queue", ["checks", "generate"])
def test_one_malformed_message_never_ends_a_worker(warm_service, warm_engine, queue):
    broker = redis.Redis.from_url(redis_url(warm_service.environment["BROKER_URL"]))
    before = {name: psutil.Process(each.pid) for name, each in warm_service.running.items()}
    for message in MALFORMED.values():
        broker.lpush(queue, message)
    wait_for(lambda: broker.llen(queue), lambda left: left == 0)
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    steward = person(warm_engine, "steward")
    corpora.add(warm_engine, corpora.CorpusSpec(name=name, uri="/nowhere.csv", statement="made up"), steward)
    wait_for(lambda: corpora.show(warm_engine, name, steward)["state"], lambda state: state == "invalid")
    assert all(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in before.values())
