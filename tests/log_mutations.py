"""Guards of the log outside the database, each taken out alone (tests.mechanism_mutations)."""

LOG, EXPORTS = "accountant/transactions/ledger_log.py", "accountant/queries/exports.py"
SWAPS, SWAP_TESTS = (
    "accountant/transactions/swaps.py",
    "tests/accountant/transactions/test_swaps.py",
)
NEW_LOG, PUBLICATION = (
    "accountant/transactions/new_log.py",
    "accountant/core/transparency/publication.py",
)
FILES_TESTS = "tests/accountant/ledger_log/test_files.py"
FILES, SIGNED_TESTS = (
    "accountant/ledger_log/files.py",
    "tests/accountant/transactions/test_signed_heads.py",
)
SHOWN_TESTS = "tests/web/test_shown_entries.py"
TOLD_TESTS = "tests/workers/jobs/test_told_entries.py"
LOG_TESTS = "tests/accountant/transactions/test_ledger_log.py"
NEW_LOG_TESTS = "tests/accountant/transactions/test_new_log.py"
PUBLISHER_TESTS = "tests/workers/jobs/test_log_publisher.py"

#: (title, file, text, what stands there instead, tests that have to fail)
OUTSIDE = (
    (
        "log: answers don't wait for it",
        "web/shown_entries.py",
        "        ensure_all(engine())",
        "        pass",
        SHOWN_TESTS,
    ),
    (
        "log: a line is shown before it is synced",
        LOG,
        "    log.sync()\n    return True\n",
        "    return True\n",
        SHOWN_TESTS,
    ),
    (
        "log: notices don't wait for it",
        "workers/jobs/notice_sender.py",
        "ensure_all(self._engine) if taken else frozenset()",
        "frozenset[str]()",
        TOLD_TESTS,
    ),
    (
        "log: an export is compared before it is read",
        EXPORTS,
        "    ensure(engine, dataset_id)\n    proof =",
        "    proof =",
        LOG_TESTS,
    ),
    (
        "log: a signer without a memory signs",
        PUBLICATION,
        "            signer.take_up(published, tiles)\n",
        "",
        PUBLISHER_TESTS,
    ),
    (
        "log: processes that run don't compare it with what was signed",
        FILES,
        "        heads = [] if state == self._compared else self._signed.heads()",
        "        heads = [] if self._compared else self._signed.heads()",
        SIGNED_TESTS,
    ),
    (
        "log: an older copy is what was signed",
        FILES,
        "    if n < head.size:\n",
        "    if False:\n",
        SIGNED_TESTS,
    ),
    (
        "log: another entry is what was signed",
        FILES,
        "head.leaf not in (None, leaf_digest(leaf(*entry[1:])))",
        "False",
        SIGNED_TESTS,
    ),
    (
        "log: what a witness saw is told to nobody",
        PUBLICATION,
        "                signer.heed(error.size)\n",
        "",
        SIGNED_TESTS,
    ),
    (
        "log: a last line that was written over is followed",
        FILES,
        "                    self._require_last_line()\n",
        "",
        FILES_TESTS,
    ),
    (
        "log: a sync that failed is made good by another",
        FILES,
        "                file.write(written)\n",
        "",
        FILES_TESTS,
    ),
    (
        "log: lines that a failed sync lost are there",
        FILES,
        "                if written and not lines.ends_with(written, self._position.line):\n",
        "                if False:\n",
        FILES_TESTS,
    ),
    (
        "log: nothing is kept free for what was begun",
        FILES,
        "                    (self.folder / _ROOM).unlink(missing_ok=True)  # what was begun is "
        "ended\n",
        "                    raise\n",
        FILES_TESTS,
    ),
    (
        "log: admission on a full disk",
        LOG,
        "    log.require_room()\n    return",
        "    return",
        LOG_TESTS,
    ),
    (
        "log: acts on a full disk",
        LOG,
        "        log.require_room()\n",
        "",
        LOG_TESTS,
    ),
    (
        "log: a new one holds less than was signed",
        NEW_LOG,
        "    if signed_entries > made.entries:\n",
        "    if False:\n",
        SIGNED_TESTS,
    ),
    (
        "log: a new one is not compared with what was published",
        NEW_LOG,
        "            if _hash_at(hashes, dataset, seq) != entry_hash:\n",
        "            if False:\n",
        NEW_LOG_TESTS,
    ),
    (
        "log: a new one is in another order than what was published",
        NEW_LOG,
        "() if published is None else _leaves(published)",
        "()",
        NEW_LOG_TESTS,
    ),
    (
        "log: a new one without what is known of data",
        NEW_LOG,
        "            unit_fingerprints.keep_known(connection, log, dataset, number, identity)\n",
        "            pass\n",
        NEW_LOG_TESTS,
    ),
    (
        "log: a new one beside another",
        NEW_LOG,
        "    if log.folder.exists() and any(log.folder.iterdir()):\n",
        "    if False:\n",
        NEW_LOG_TESTS,
    ),
    (
        "swaps: half of a statement stands",
        SWAPS,
        "ELSE {moved} / 0 = 1 END",
        "ELSE true END",
        SWAP_TESTS,
    ),
    (
        "swaps: one that comes too late stops others",
        SWAPS,
        "_write(engine, [ticket.question]) if alone else at",
        "at",
        SWAP_TESTS,
    ),
    (
        "swaps: what waits is counted account by account",
        SWAPS,
        "sum((Counter(each.more) for each in swaps), Counter())",
        "Counter(swaps[0].more)",
        SWAP_TESTS,
    ),
    (
        "swaps: rows are written where no account moves",
        SWAPS,
        "' WHERE EXISTS (SELECT FROM moved)'",
        "''",
        SWAP_TESTS,
    ),
    (
        "swaps: an account moves that is not held",
        SWAPS,
        'FROM held WHERE (SELECT count(at) FROM "\n        "held) = %s "',
        'FROM held WHERE %s > 0 "',
        SWAP_TESTS,
    ),
    (
        "log: what another wrote in our entry's place is taken for ours",
        LOG,
        " and log.seen(dataset) == until:",
        ":",
        LOG_TESTS,
    ),
)
