"""Sixty-four clients at once, over HTTP to a real server on a real socket."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from waitress import create_server

from accountant.identities import credentials
from accountant.queries import integrity
from tests.support import Bench


@pytest.fixture
def address(app):
    server = create_server(app, host="127.0.0.1", port=0, threads=16)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}/api/v1"
    server.close()
    thread.join(timeout=10)


@pytest.mark.slow
def test_room_for_twenty_admits_twenty_of_sixty_four(address, engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    bench.submit(10)  # leaves 349 of 359 tokens: room for 20 jobs of 17
    token = credentials.add_token(engine, bench.analyst.id, "race", None)
    body = {
        "dataset": bench.dataset,
        "mechanism": "private-prediction",
        "model": bench.model,
        "parameters": {"tokens_per_batch": 17},
        "purpose": "a race",
    }

    def ask(_: int) -> tuple[int, str]:
        answer = httpx2.post(
            f"{address}/jobs", json=body, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        return answer.status_code, answer.json().get("state")

    with ThreadPoolExecutor(64) as pool:
        answers = Counter(pool.map(ask, range(64)))
    assert answers == {(201, "queued"): 20, (201, "refused"): 44}
    assert integrity.check(engine, bench.dataset) == []


@pytest.mark.slow
def test_one_key_is_one_job_however_many_send_it_at_once(address, engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    token = credentials.add_token(engine, bench.analyst.id, "race", None)
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "once"}

    def ask(number: int) -> tuple[int, str, str]:
        tokens = 400 if number % 4 else 10  # too much; every fourth has another body
        body = {"dataset": bench.dataset, "mechanism": "private-prediction", "model": bench.model}
        body |= {"parameters": {"tokens_per_batch": tokens}, "purpose": "a race"}
        answer = httpx2.post(f"{address}/jobs", json=body, headers=headers, timeout=60)
        return answer.status_code, answer.json().get("state"), answer.json().get("id")

    with ThreadPoolExecutor(32) as pool:
        answers = Counter(pool.map(ask, range(64)))
    assert len(answers) == 2
    (first, many), (conflict, rest) = sorted(answers.items())
    assert (first[0], conflict) == (201, (409, None, None))
    assert {many, rest} == {16, 48}
    assert integrity.check(engine, bench.dataset) == []
