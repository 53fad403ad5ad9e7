"""Charges by many programs that are killed at any moment: each is charged once, and none for
nothing.
"""

import multiprocessing
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from accountant.queries import integrity
from tests.faults import charging
from tests.support import Bench


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "programs", "kills"),
    [(20, 4, 5), pytest.param(1000, 20, 200, marks=pytest.mark.release)],
)
def test_killed_programs_are_charged_once(engine, tmp_path, count, programs, kills):
    policy = {"auto_approve_epsilon": "1", "stated_charges_epsilon": "5"}
    bench = Bench(engine, policy=policy)
    bench.allow()
    url = make_url(str(engine.url)).render_as_string(hide_password=False)
    keys = [f"charge-{number}" for number in range(count)]
    shares = [keys[part::programs] for part in range(programs)]
    # They are forked from a process that has loaded all of it, and has no threads.
    forks, draw = multiprocessing.get_context("forkserver"), random.Random(7)
    forks.set_forkserver_preload(["tests.faults.priced_charging"])

    def start(share: list[str]) -> multiprocessing.process.BaseProcess:
        known = (url, bench.dataset, bench.analyst, share, str(tmp_path))
        started = forks.Process(target=charging.work, args=known, daemon=True)
        started.start()
        return started

    running, killed, end = [start(share) for share in shares], 0, time.monotonic() + 900
    while any(each.is_alive() or each.exitcode for each in running):
        assert time.monotonic() < end
        time.sleep(0.02)
        for place, each in enumerate(running):
            if not each.is_alive() and each.exitcode:
                running[place] = start(shares[place])
        place = draw.randrange(programs)
        if killed < kills and running[place].is_alive():
            running[place].kill()
            running[place].join()
            killed += 1
    query = (
        "SELECT j.idempotency_key, j.state, e.kind FROM jobs j JOIN entries e ON e.job_id = j.id "
        "JOIN datasets d ON d.id = j.dataset_id WHERE d.name = :name"
    )
    balances = (
        "SELECT basic_spent, basic_reserved FROM accounts a JOIN datasets d ON d.id = a.dataset_id "
        "WHERE d.name = :name"
    )
    with engine.connect() as connection:
        rows = connection.execute(text(query), {"name": bench.dataset}).all()
        spent, reserved = connection.execute(text(balances), {"name": bench.dataset}).one()
    assert killed > 0
    assert Counter((key, kind) for key, _, kind in rows) == Counter(
        (key, kind) for key in keys for kind in ("RESERVE", "COMMIT")
    )
    assert {state for _, state, _ in rows} == {"succeeded"}
    assert all(Path(tmp_path, key).exists() for key in keys)  # what was charged was released
    # A price is rounded up, by one of 10^-9 here.
    assert (int(spent), int(reserved)) == (count * (10**6 + 1), 0)
    assert integrity.check(engine, bench.dataset) == []
