"""A program that charges, in a module that a process of its own can load."""

import hashlib
from pathlib import Path

from accountant.core.errors import Conflict
from accountant.core.ledger.allowances import Allowance, allowance_body
from accountant.core.ledger.books import Books
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.privacy.price import Terms
from accountant.database import connect
from accountant.identities.actor import Actor
from accountant.transactions import charges, job_requests, second_calculation, submission
from accountant.transactions.job_requests import JobRequest

EVENT = {"epsilon": 0.001}
RAW = {"event": EVENT, "tool": "a script", "unit": "record", "relation": "add-remove"}


def calculate() -> None:
    """Calculate the price a second time, once for all programs that are forked from this one."""
    allowed = allowance_body(Allowance("10", "0.0000029053", "test"), Books(), "add-remove")
    accounts = Books().apply(EntryKind.ALLOW, None, allowed).accounts
    terms = Terms(delta=0.0000029053, public_size=1000)
    request = JobRequest("any", "charge", None, RAW)
    second_calculation.prepare(accounts, job_requests.priced(request, terms).candidate)


def work(url: str, dataset: str, analyst: Actor, keys: list[str], ran: str) -> None:
    """A program that asks for its charges one after the other, and goes on where it was killed."""
    engine = connect(url, pool_size=1)
    for key in keys:
        request = JobRequest(dataset, "charge", None, RAW, "a test")
        job = submission.submit(engine, request, analyst, key)
        secret = hashlib.sha256(key.encode()).digest()
        try:
            charges.begin(engine, job, analyst, secret, 600)
        except Conflict as error:
            if "succeeded" not in str(error):
                raise
            continue  # it was settled before it was killed
        with Path(ran, key).open("a") as file:
            file.write("released\n")
        charges.settle(engine, job, analyst, secret, None, None, None)
