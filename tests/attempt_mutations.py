"""Guards of attempts that stop and go on, each taken out alone (tests.mechanism_mutations)."""

STORE, KEPT = "accountant/transactions/kept_draws.py", "workers/noise/kept_draws.py"
TASKS, LOOKS = "workers/jobs/tasks.py", "workers/interruption.py"
METER_TESTS = "tests/workers/noise/test_kept_draws.py"
RUNNER_TESTS = "tests/workers/mechanisms/test_resuming.py"
JOB_TESTS = "tests/workers/jobs/test_resuming.py"
SLOT_TESTS = "tests/workers/jobs/test_slots.py"

#: (title, file, text, what stands there instead, tests that have to fail)
ATTEMPTS = (
    (
        "attempts: a draw that was kept is made again",
        KEPT,
        "        if self._earlier.get(name):\n",
        "        if False:\n",
        METER_TESTS,
    ),
    (
        "attempts: a draw follows one that is not kept",
        KEPT,
        "        if name in self._places:\n            self.keep()\n",
        "",
        METER_TESTS,
    ),
    (
        "attempts: a kept draw is not counted",
        "workers/noise/meter.py",
        "        if token is not None:\n            self._record(event, part)\n",
        "        if token is not None:\n",
        METER_TESTS,
    ),
    (
        "attempts: a pass before its draws are kept",
        TASKS,
        "        self.kept.keep()\n        self.heartbeat",
        "        self.heartbeat",
        JOB_TESTS,
    ),
    (
        "attempts: no look before a pass",
        LOOKS,
        "network.register_forward_pre_hook(lambda *_: check())",
        "pass",
        JOB_TESTS,
    ),
    (
        "attempts: a worker without the lease keeps draws",
        STORE,
        "if connection.execute(mine).one_or_none() is None:",
        "if False:",
        JOB_TESTS,
    ),
    (
        "attempts: a row that opens in another's place",
        STORE,
        'claim.job_id.bytes + claim.part.to_bytes(8, "big") + number.to_bytes(8, "big")',
        'b""',
        JOB_TESTS,
    ),
    (
        "attempts: kept draws that outlive their job",
        "accountant/transactions/settlement.py",
        "    kept_draws.forget(connection, job_id)\n",
        "",
        JOB_TESTS,
    ),
    ("attempts: an attempt at its limit draws anew", TASKS, " and self.kept.keeps", "", JOB_TESTS),
    (
        "attempts: kept draws without a place",
        TASKS,
        "        if self.kept.left:\n",
        "        if False:\n",
        JOB_TESTS,
    ),
    (
        "attempts: a drain that costs an attempt",
        "accountant/transactions/leases.py",
        "part, planned=True)",
        "part)",
        JOB_TESTS,
    ),
    (
        "attempts: a written group is read again",
        "workers/engine/continuation.py",
        "        if self._group is not None and tokens:\n",
        "        if self._group is None:\n            self._catch_up()\n        if tokens:\n",
        RUNNER_TESTS,
    ),
    (
        "attempts: a text in the making begins anew",
        "workers/engine/continuation.py",
        "            self._laws |= self._group.append(self._behind)\n        self._behind = {}\n",
        "            pass\n        self._behind = {}\n",
        RUNNER_TESTS,
    ),
    (
        "slots: a job that is done ends at once",
        TASKS,
        "        self._await_slot()\n        engine, claim",
        "        engine, claim",
        SLOT_TESTS,
    ),
    (
        "slots: a job that failed, or was cancelled, ends at once",
        TASKS,
        "                self._await_slot()\n",
        "                pass\n",
        SLOT_TESTS,
    ),
    (
        "slots: progress is told before the slot",
        TASKS,
        "gridded or has_secret",
        "has_secret",
        SLOT_TESTS,
    ),
    (
        "slots: a job cancelled when it was done ends a slot later",
        TASKS,
        "slot, self.slot = self.slot, None",
        "slot = self.slot",
        SLOT_TESTS,
    ),
    (
        "slots: a worker that is to stop waits with what is done",
        "workers/jobs/heartbeat.py",
        "            self._check_drained()\n            time",
        "            time",
        SLOT_TESTS,
    ),
)
