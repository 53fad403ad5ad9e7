"""Guards of the log outside the database, each taken out alone (tests.mechanism_mutations)."""

LOG, EXPORTS = "accountant/transactions/ledger_log.py", "accountant/queries/exports.py"
NEW_LOG, PUBLICATION = (
    "accountant/transactions/new_log.py",
    "accountant/core/transparency/publication.py",
)
FILES_TESTS = "tests/accountant/ledger_log/test_files.py"
FILES, SIGNED_TESTS = (
    "accountant/ledger_log/files.py",
    "tests/accountant/transactions/test_signed_heads.py",
)
SHARED, OBJECTS = "accountant/ledger_log/log.py", "accountant/ledger_log/objects.py"
OBJECTS_TESTS = "tests/accountant/ledger_log/test_objects.py"
SHOWN_TESTS = "tests/web/test_shown_entries.py"
TOLD_TESTS = "tests/workers/jobs/test_told_entries.py"
LOG_TESTS = "tests/accountant/transactions/test_ledger_log.py"
NEW_LOG_TESTS = "tests/accountant/transactions/test_new_log.py"
LOSSES = "accountant/transactions/losses.py"
LOSS_TESTS = "tests/accountant/transactions/test_losses.py"
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
        SHARED,
        "        heads = [] if state == self._compared else self.signed.heads()",
        "        heads = [] if self._compared else self.signed.heads()",
        SIGNED_TESTS,
    ),
    (
        "log: an older copy is what was signed",
        SHARED,
        "        if n < head.size:\n",
        "        if False:\n",
        SIGNED_TESTS,
    ),
    (
        "log: another entry is what was signed",
        SHARED,
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
        "log: acts on a full disk",
        LOG,
        "        log.require_room()\n",
        "",
        LOG_TESTS,
    ),
    (
        "log: a new one holds less than was signed",
        NEW_LOG,
        "    if signed_entries > new_plan.entries:\n",
        "    if False:\n",
        NEW_LOG_TESTS,
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
        "() if published is None else published_leaves(published)",
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
        "    if not log.is_empty():\n",
        "    if False:\n",
        NEW_LOG_TESTS,
    ),
    (
        "log: what another wrote in our entry's place is taken for ours",
        LOG,
        " and log.seen(dataset) == until:",
        ":",
        LOG_TESTS,
    ),
    (
        "loss: one dataset settles it for all",
        SHARED,
        "waiting.setdefault(head, set(datasets)).discard(dataset)",
        "waiting.setdefault(head, set())",
        f"{LOSS_TESTS}::test_all_datasets_are_settled_before_anything_goes_on",
    ),
    (
        "loss: every head is settled once one is",
        SHARED,
        "return {head: problem for head, problem in problems.items() if head not in self._settled}",
        "return {} if self._settled else problems",
        f"{LOSS_TESTS}::test_the_log_is_published_under_another_name",
    ),
    (
        "loss: one person says so",
        "accountant/core/ledger/rules.py",
        """                self._check_owners(entry)
                if not by_two(entry):
                    raise VerificationFailed("it names no two people")""",
        "                self._check_owners(entry)",
        "tests/accountant/core/ledger/test_losses.py",
    ),
    (
        "loss: one person allows more after it",
        "accountant/core/ledger/rules.py",
        "return policy.two_people or books.history.losses > 0",
        "return policy.two_people",
        f"{LOSS_TESTS}::test_no_statement_sums_up_what_was_lost_and_two_people_allow_more",
    ),
    (
        "loss: a later checkpoint is taken for lost",
        "accountant/core/ledger/losses.py",
        "    if checkpoint.dataset != loss.dataset or checkpoint.at > loss.at:\n",
        "    if checkpoint.dataset != loss.dataset:\n",
        f"{LOSS_TESTS}::test_a_verifier_takes_old_checkpoints_for_lost_by_their_word_alone",
    ),
    (
        "loss: any checkpoint is taken for lost",
        "accountant/core/ledger/losses.py",
        'checkpoint.seq >= lost["first"] and',
        "checkpoint.seq and",
        f"{LOSS_TESTS}::test_a_verifier_takes_old_checkpoints_for_lost_by_their_word_alone",
    ),
    (
        "loss: a live job is forgotten",
        LOSSES,
        "        if ground.connection.execute(live.limit(1)).first() is not None:\n",
        "        if False:\n",
        f"{LOSS_TESTS}::test_no_job_is_live_when_all_is_charged",
    ),
    (
        "loss: settled where nothing is lost",
        LOSSES,
        """        if not heads:
            raise Conflict("the log holds all that was signed: no entries are lost")
        if _is_settled""",
        "        if _is_settled",
        f"{LOSS_TESTS}::test_where_nothing_is_lost_nothing_is_settled",
    ),
    (
        "loss: settled twice",
        LOSSES,
        "        if _is_settled(ground.connection, name, heads):\n",
        "        if False:\n",
        f"{LOSS_TESTS}::test_nothing_is_settled_twice",
    ),
    (
        "loss: a newer copy found meanwhile",
        LOSSES,
        '        if ground.row.asked != {**stated, "entries": ground.account.seq}:\n',
        "        if False:\n",
        f"{LOSS_TESTS}::test_what_a_newer_copy_holds_is_not_lost",
    ),
    (
        "loss: the web asks for it",
        "migrations/schema/decisions.sql",
        "    WHEN (new.kind = 'loss' AND new.state IN ('open', 'accepted'))",
        "    WHEN (false)",
        f"{LOSS_TESTS}::test_the_webs_credentials_lose_nothing",
    ),
    (
        "loss: the web counts it",
        "migrations/schema/accounts.sql",
        "    WHEN (new.loss_count IS DISTINCT FROM old.loss_count)",
        "    WHEN (false)",
        f"{LOSS_TESTS}::test_the_webs_credentials_lose_nothing",
    ),
    (
        "loss: a reservation is live",
        "accountant/core/ledger/replay.py",
        "        if kind is EntryKind.LOSS and self.live_count:\n",
        "        if False:\n",
        "tests/accountant/core/ledger/test_losses.py",
    ),
    (
        "loss: what is left is not charged",
        "accountant/core/ledger/losses.py",
        '    if body["costs"] != costs_json(rest.costs) or body["secret"] != str(rest.secret):\n',
        "    if False:\n",
        "tests/accountant/core/ledger/test_losses.py",
    ),
    (
        "log: a signer does not look who else signed",
        "accountant/ledger_log/kept_heads.py",
        "        if [size for size in sizes if size > kept.size] != [head.size]:\n",
        "        if False:\n",
        "tests/accountant/ledger_log/test_kept_objects.py",
    ),
    (
        "log: a store may replace heads",
        "accountant/ledger_log/kept_heads.py",
        "        self._require_conditions()\n",
        "",
        "tests/accountant/ledger_log/test_kept_objects.py",
    ),
    (
        "messages: what no worker can take is sent for ever",
        "accountant/transactions/messages.py",
        "            ~is_refused(parts.c.job_id, parts.c.number),\n",
        "",
        "tests/accountant/transactions/test_parts.py",
    ),
    (
        "objects: the later of two writers of one number believes that it wrote",
        OBJECTS,
        "        created = self._create(name, payload)\n",
        "        created = self._create(name, payload) or True\n",
        OBJECTS_TESTS,
    ),
    (
        "objects: a store may replace them",
        OBJECTS,
        "        self._conditional = False\n        self.require_room()",
        "        self.require_room()",
        OBJECTS_TESTS,
    ),
    (
        "objects: a listing says where the log ends",
        OBJECTS,
        "ahead.pop(name, None) or self._get(name)",
        "ahead.pop(name, None) or (None if listed else self._get(name))",
        OBJECTS_TESTS,
    ),
    (
        "objects: the log ends before one that is missing",
        OBJECTS,
        "            if self._position.n < self._listed:\n",
        "            if False:\n",
        OBJECTS_TESTS,
    ),
    (
        "objects: the whole look ends before one that is missing",
        OBJECTS,
        "        if n < (newest if end is None else end):\n",
        "        if False:\n",
        OBJECTS_TESTS,
    ),
    (
        "objects: lines before a wrong one are taken",
        OBJECTS,
        "        after = self._position.draft()\n        for line",
        "        after = self._position\n        for line",
        OBJECTS_TESTS,
    ),
    (
        "objects: a write that failed is forgotten",
        OBJECTS,
        "        self._unwritten = (name, payload)  # unless there is an answer\n",
        "",
        OBJECTS_TESTS,
    ),
    (
        "objects: calls have no end",
        OBJECTS,
        'return read_object(system, f"{root}/{name}", timeout=CALL_SECONDS)',
        'return read_object(system, f"{root}/{name}")',
        OBJECTS_TESTS,
    ),
    (
        "objects: everybody waits for a store that is away",
        OBJECTS,
        "        if time.monotonic() < self._try_again:\n",
        "        if False:\n",
        OBJECTS_TESTS,
    ),
    (
        "objects: one that was replaced is not noticed",
        OBJECTS,
        "            if last is not None and not lines.ends_with(last, self._position.line):\n",
        "            if False:\n",
        OBJECTS_TESTS,
    ),
    (
        "objects: something is reserved while the store is away",
        OBJECTS,
        '        with self._mutex, self._asking("written"):\n            self._read_on()\n',
        '        with self._mutex, self._asking("written"):\n            return\n',
        OBJECTS_TESTS,
    ),
    (
        "objects: a forked process uses its parent's connections",
        OBJECTS,
        "        if self._opened is None or self._opened[0] != os.getpid():\n",
        "        if self._opened is None:\n",
        "tests/accountant/ledger_log/test_log.py",
    ),
)
