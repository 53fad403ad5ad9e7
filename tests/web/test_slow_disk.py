"""A log whose disk takes two seconds a sync holds up admissions, and no probe."""

import threading
import time

import httpx2
import pytest
from sqlalchemy import make_url

from accountant.identities import credentials
from tests.restores import ground
from tests.web.serving import free_port, serving

SYNC_SECONDS, CLIENTS, LOOKS = 2.0, 40, 25
#: gunicorn's settings, in a process in which each sync takes so long.
SETTINGS = f"""
import os
import time

from web.gunicorn_settings import *
from web.gunicorn_settings import post_worker_init as begin

real = os.fsync


def post_worker_init(worker):
    begin(worker)
    os.fsync = lambda handle: (time.sleep({SYNC_SECONDS}), real(handle))[1]
"""


@pytest.mark.slow
def test_livez_answers_beside_forty_clients_of_a_slow_disk(servers, tmp_path, monkeypatch):
    (tmp_path / "slow_disk.py").write_text(SETTINGS)
    probe = free_port()
    with ground(servers, tmp_path / "log") as at:
        token = credentials.add_token(at.engine, at.bench.analyst.id, "slow", None)
        url = make_url(at.engine.url).render_as_string(hide_password=False)
        monkeypatch.setenv("GUNICORN_CMD_ARGS", f"--config={tmp_path / 'slow_disk.py'}")
        named = {"ledger_log": tmp_path / "log", "probe_address": f"127.0.0.1:{probe}"}
        with serving(url, tmp_path, gunicorn=True, **named) as server:
            statuses: list[int] = []

            def ask() -> None:
                body = {"dataset": at.bench.dataset, "mechanism": "noisy-count"}
                body |= {"parameters": {"epsilon": 0.001}, "purpose": "a test"}
                headers = {"Authorization": f"Bearer {token}"}
                answer = httpx2.post(
                    f"{server.url}/api/v1/jobs", json=body, headers=headers, timeout=60
                )
                statuses.append(answer.status_code)

            clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            seconds = []
            for _ in range(LOOKS):
                began = time.monotonic()
                assert httpx2.get(f"http://127.0.0.1:{probe}/livez", timeout=5).status_code == 200
                seconds.append(time.monotonic() - began)
                time.sleep(0.1)
            for client in clients:
                client.join()
    print(f"/livez: median {sorted(seconds)[LOOKS // 2]:.3f} s, slowest {max(seconds):.3f} s")
    assert statuses.count(201) == CLIENTS, statuses
    assert sorted(seconds)[LOOKS * 9 // 10] < 1.0
