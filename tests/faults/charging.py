"""A program that charges, in a module that a process of its own can load."""

import hashlib
from pathlib import Path

from accountant.core.errors import Conflict
from accountant.database import connect
from accountant.identities.actor import Actor
from accountant.transactions import charges, submission
from accountant.transactions.job_requests import JobRequest

EVENT = {"epsilon": 0.001}
RAW = {"event": EVENT, "tool": "a script", "unit": "record", "relation": "add-remove"}


def work(url: str, dataset: str, analyst: Actor, keys: list[str], ran: str) -> None:
    """A program that asks for its charges one after the other, and goes on where it was killed."""
    engine = connect(url, pool_size=1)
    for key in keys:
        request = JobRequest(dataset, "charge", None, RAW, "a test")
        job = submission.submit(engine, request, analyst, key)
        secret = hashlib.sha256(key.encode()).digest()
        try:
            charges.begin(engine, job, analyst, secret, 600)
        except Conflict:
            continue  # it was settled before it was killed
        with Path(ran, key).open("a") as file:
            file.write("released\n")
        charges.settle(engine, job, analyst, secret, None, None, None)
