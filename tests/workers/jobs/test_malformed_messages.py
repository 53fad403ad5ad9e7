"""What whoever can write to the broker can do: to no worker and to no job anything."""

import base64
import gzip
import json
import uuid

import psutil
import pytest
import redis
from celery import Celery
from kombu import Connection
from kombu.message import Message

from accountant.catalogue import corpora
from tests.support import person
from tests.workers.conftest import wait_for
from web.local import redis_url
from workers.jobs.broker import Transport, guard
from workers.jobs.consumer import reduce_to_hint

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

#: What is no message of Celery's at all; kombu would raise each of these out of the worker's loop.
UNREADABLE = {
    "no JSON": "}{",
    "a list": "[]",
    "a number": "7",
    "nothing in it": "{}",
    "no tag": '{"properties": {}}',
    "a tag that is a list": '{"properties": {"delivery_tag": [[]]}, "headers": {}}',
    "too deep": "[" * 100_000,
    "no text": b"\xff\xfe",
    "a body that is no base64": envelope(b"").replace('"body": ""', '"body": "!"'),
}


@pytest.mark.parametrize("queue", ["checks", "generate"])
def test_one_malformed_message_never_ends_a_worker(warm_service, warm_engine, queue):
    broker = redis.Redis.from_url(redis_url(warm_service.environment["BROKER_URL"]))
    before = {name: psutil.Process(each.pid) for name, each in warm_service.running.items()}
    for message in (*MALFORMED.values(), *UNREADABLE.values()):
        broker.lpush(queue, message)
    wait_for(lambda: broker.llen(queue), lambda left: left == 0)
    look_at_a_corpus(warm_engine)
    assert all(
        each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in before.values()
    )


def look_at_a_corpus(warm_engine):
    """A worker still takes what the relay sends."""
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    steward = person(warm_engine, "steward")
    corpora.add(
        warm_engine, corpora.CorpusSpec(name=name, uri="/nowhere.csv", statement="made up"), steward
    )
    wait_for(
        lambda: corpora.show(warm_engine, name, steward)["state"], lambda state: state == "invalid"
    )


def test_what_lies_among_the_unacknowledged_ends_no_worker(warm_service):
    broker = redis.Redis.from_url(redis_url(warm_service.environment["BROKER_URL"]))
    with Connection(warm_service.environment["BROKER_URL"]) as connection:
        connection.transport_cls = Transport
        channel = connection.channel()
        for tag, kept in {"a": "}{", "b": "[]", "c": "[1, 2, 3]"}.items():
            broker.hset(channel.unacked_key, tag, kept)
            broker.zadd(channel.unacked_index_key, {tag: 0})
            channel.qos.restore_by_tag(tag)
            assert not broker.hexists(channel.unacked_key, tag)
            assert broker.zscore(channel.unacked_index_key, tag) is None


COMMANDS = {
    "shutdown": {},
    "pool_shrink": {"n": 1},
    "cancel_consumer": {"queue": "checks"},
    "rate_limit": {"task_name": "exchequer.check_corpus", "rate_limit": "1/h"},
    "time_limit": {"task_name": "exchequer.check_corpus", "soft": 0.001, "hard": 0.001},
    "add_consumer": {"queue": "elsewhere"},
}


def test_no_command_reaches_a_worker(warm_service, warm_engine):
    before = {name: psutil.Process(each.pid) for name, each in warm_service.running.items()}
    look_at_a_corpus(warm_engine)  # it is there, and would answer
    with Celery(broker=warm_service.environment["BROKER_URL"], set_as_current=False) as app:
        assert app.control.ping(timeout=1.0) == []
        for command, arguments in COMMANDS.items():
            app.control.broadcast(command, arguments=arguments)
    look_at_a_corpus(warm_engine)
    assert all(each.is_running() for each in before.values())


def test_a_message_sets_no_time_limit_of_its_own(warm_service, warm_engine):
    """A child that is killed at its time limit counts as died, and its job is charged."""
    broker = redis.Redis.from_url(redis_url(warm_service.environment["BROKER_URL"]))
    look_at_a_corpus(warm_engine)
    children = {
        each.pid for each in psutil.Process(warm_service.running["checks"].pid).children(True)
    }
    body = json.dumps([[str(uuid.uuid4()), 0], {}, {}]).encode()
    for _ in range(20):
        broker.lpush("checks", envelope(body, timelimit=[0.0001, 0.0001]))
    wait_for(lambda: broker.llen("checks"), lambda left: left == 0)
    look_at_a_corpus(warm_engine)
    assert {
        each.pid for each in psutil.Process(warm_service.running["checks"].pid).children(True)
    } == children


SERVED = frozenset({"generate", "free"})
JOB = "6f1c2f0e-5a3c-4a1b-9a55-0c3f4a1d2b3c"


def message(body, task="exchequer.generate", **headers):
    told = {"lang": "py", "task": task, "id": JOB, **headers}
    return Message(
        body=body, headers=told, content_type="application/json", content_encoding="utf-8"
    )


def test_of_a_message_only_the_hint_is_left():
    found = message(
        json.dumps([[JOB.upper(), 1, 0], {}, {"callbacks": [{"task": "exchequer.check_corpus"}]}]),
        timelimit=[1, 1], eta="2999-01-01T00:00:00", expires="1999-01-01T00:00:00", retries=9,
        ignore_result=False, reply_to="me", stamps={"a": 1},
    )  # fmt: skip
    reduce_to_hint(found, SERVED)
    assert json.loads(found.body) == [[JOB, 1, 0], {}, {}]
    assert found.headers == {"lang": "py", "task": "exchequer.generate", "id": JOB}
    assert found.properties == {"correlation_id": JOB}


@pytest.mark.parametrize(
    ("body", "headers"),
    {
        "another worker's task": (
            json.dumps([[JOB, 1], {}, {}]),
            {"task": "exchequer.check_dataset"},
        ),
        "another program's task": (json.dumps([[JOB, 1], {}, {}]), {"task": "generate"}),
        "too long": (json.dumps([[JOB, 1], {}, {}]) + " " * 1000, {}),
        "a job that is no id": (json.dumps([["../etc", 1], {}, {}]), {}),
        "an attempt that is no number": (json.dumps([[JOB, "1"], {}, {}]), {}),
        "an attempt that is true": (json.dumps([[JOB, True], {}, {}]), {}),
        "too many numbers": (json.dumps([[JOB, 1, 0, 0], {}, {}]), {}),
        "an id that is none": (json.dumps([[JOB, 1], {}, {}]), {"id": "x"}),
    }.values(),
)
def test_another_form_is_refused(body, headers):
    with pytest.raises((ValueError, KeyError, TypeError)):
        reduce_to_hint(message(body, **headers), SERVED)


def test_nothing_is_unpacked():
    bomb = gzip.compress(b"0" * 10_000_000)
    guard()
    found = message(bomb, compression="gzip")
    assert found.errors
    assert len(found.body) == len(bomb)
    with pytest.raises(ValueError, match="can't be read"):
        reduce_to_hint(found, SERVED)
