"""Charges by many programs that are killed at any moment: each is charged once, and none for
nothing.
"""

import hashlib
import multiprocessing
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from accountant.core.errors import Conflict
from accountant.database import connect
from accountant.queries import integrity
from accountant.transactions import charges, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import Bench

EVENT = {"epsilon": 0.001}
RAW = {"event": EVENT, "tool": "a script", "unit": "record", "relation": "add-remove"}


def work(url: str, bench: Bench, keys: list[str], ran: str) -> None:
    """A program that asks for its charges one after the other, and goes on where it was killed."""
    engine = connect(url, pool_size=1)
    for key in keys:
        request = JobRequest(bench.dataset, "charge", None, RAW, "a test")
        job = submission.submit(engine, request, bench.analyst, key)
        secret = hashlib.sha256(key.encode()).digest()
        try:
            charges.begin(engine, job, bench.analyst, secret, 600)
        except Conflict:
            continue  # it was settled before it was killed
        with Path(ran, key).open("a") as file:
            file.write("released\n")
        charges.settle(engine, job, bench.analyst, secret, None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "programs", "kills"),
    [(60, 8, 15), pytest.param(1000, 20, 200, marks=pytest.mark.release)],
)
def test_killed_programs_are_charged_once(engine, tmp_path, count, programs, kills):
    policy = {"auto_approve_epsilon": "1", "stated_charges_epsilon": "5"}
    bench = Bench(engine, policy=policy)
    bench.allow()
    url = make_url(str(engine.url)).render_as_string(hide_password=False)
    keys = [f"charge-{number}" for number in range(count)]
    first = keys[0]
    work(url, bench, [first], str(tmp_path))  # what it is made of is loaded before the fork
    shares = [keys[part::programs] for part in range(programs)]
    forks, draw = multiprocessing.get_context("fork"), random.Random(7)

    def start(share: list[str]) -> multiprocessing.process.BaseProcess:
        started = forks.Process(target=work, args=(url, bench, share, str(tmp_path)), daemon=True)
        started.start()
        return started

    running, killed, end = [start(share) for share in shares], 0, time.monotonic() + 240
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
