"""Guards of acts that people sign, each taken out alone (tests.mechanism_mutations)."""

ACTS, RULES = "accountant/core/ledger/signatures.py", "accountant/core/ledger/rules.py"
POLICY, OWNERS = "accountant/core/ledger/policy.py", "accountant/transactions/owners.py"
PASSKEYS, PAGES = "accountant/identities/passkeys.py", "web/passkeys.py"
LEDGER_TESTS = "tests/accountant/core/ledger/test_signatures.py"
SERVICE_TESTS = "tests/accountant/transactions/test_signed_acts.py"
WRITER, JUDGED_TESTS = (
    "accountant/transactions/locked_account.py",
    "tests/accountant/transactions/test_judgement.py",
)
PAGE_TESTS = "tests/web/accounts/test_passkeys.py"

#: (title, file, text, what stands there instead, tests that have to fail)
SIGNED = (
    (
        "acts: a writer judges no entry",
        WRITER,
        "        held = judge(self.connection, self.dataset_id, rules, entry, self.books)\n",
        "        held = None\n",
        JUDGED_TESTS,
    ),
    (
        "acts: a writer judges no entry that it filled in",
        WRITER,
        "        if form.judged_by != judged_by:\n",
        "        if False:\n",
        JUDGED_TESTS,
    ),
    (
        "acts: a writer goes by rules that were changed",
        "accountant/transactions/judgement.py",
        "        if digest(document) != row.hash:\n",
        "        if False:\n",
        JUDGED_TESTS,
    ),
    (
        "acts: a policy approves by what a server quotes",
        "accountant/core/ledger/admission.py",
        "policy.approves(alone(event, delta_of(account.delta))):",
        "policy.approves(epsilon_alone):",
        JUDGED_TESTS,
    ),
    (
        "acts: no signature is needed",
        ACTS,
        "        must = self.must_sign(entry.kind)\n",
        "        must = False\n",
        LEDGER_TESTS,
    ),
    (
        "acts: no approval is needed",
        ACTS,
        "            if must and not is_free(entry.body):\n",
        "            if False:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: the second person need not sign",
        ACTS,
        "        if signatures[0] is None or (by_two and signatures[1] is None):\n",
        "        by_two = by_two and signatures[1] is not None\n"
        "        if signatures[0] is None:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: a hidden signature passes unsaid",
        RULES,
        "            self._unshown += 1\n",
        "            pass\n",
        LEDGER_TESTS,
    ),
    (
        "acts: anybody's key",
        ACTS,
        "        return tuple(signer for signer in named if signer.person == person)\n",
        "        return tuple(named)\n",
        LEDGER_TESTS,
    ),
    (
        "acts: another challenge",
        ACTS,
        '    if client["challenge"] != encoded(wanted):\n',
        "    if False:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: any origin",
        ACTS,
        '    if client["origin"] != origin:\n',
        "    if False:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: another relying party",
        ACTS,
        " or data[:32] != hashlib.sha256(host.encode()).digest():\n",
        ":\n",
        LEDGER_TESTS,
    ),
    (
        "acts: nobody present",
        ACTS,
        "    if not data[32] & _PRESENT:\n",
        "    if False:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: nobody verified",
        ACTS,
        "    if not data[32] & _VERIFIED:\n",
        "    if False:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: any signature",
        ACTS,
        "        public_key(signer.key).verify(signed, message, ECDSA(SHA256()))\n",
        "",
        LEDGER_TESTS,
    ),
    (
        "acts: under any policy",
        ACTS,
        '        "policy": basis.policy,\n        **',
        "        **",
        LEDGER_TESTS,
    ),
    (
        "acts: an allowance twice",
        ACTS,
        '        **({"allowance": basis.allowance} if kind is EntryKind.ALLOW else {}),\n',
        "",
        LEDGER_TESTS,
    ),
    (
        "acts: a confirmation of any proposal",
        ACTS,
        '        "proposed": challenge(first).hex(),\n',
        "",
        LEDGER_TESTS,
    ),
    (
        "acts: signers change as one likes",
        POLICY,
        '    for name in (*OWNERS.values(), "signers"):\n',
        "    for name in OWNERS.values():\n",
        LEDGER_TESTS,
    ),
    (
        "acts: signatures without that of the policy",
        POLICY,
        '        if self.signed and "policy" not in self.signed:\n',
        "        if False:\n",
        LEDGER_TESTS,
    ),
    (
        "acts: the service posts what does not fit its signature",
        "accountant/transactions/signed_acts.py",
        "        check(dict(signature), act, signers)\n",
        "        pass\n",
        SERVICE_TESTS,
    ),
    (
        "acts: a proposal that was signed under another policy",
        "accountant/transactions/signed_acts.py",
        '        check(proposed, first, _signers(policy, first["by"]))\n',
        "        pass\n",
        SERVICE_TESTS,
    ),
    (
        "acts: a worker takes what nobody signed",
        "accountant/core/ledger/orders.py",
        "            check_fields(entry)\n            if not live.rules.follow(entry):\n",
        "            check_fields(entry)\n            if False:\n",
        SERVICE_TESTS,
    ),
    (
        "acts: an offer where approvals are signed",
        "accountant/transactions/offers.py",
        '        if "approve" in policy.signed:',
        "        if False:",
        SERVICE_TESTS,
    ),
    (
        "acts: keys that nobody registered",
        OWNERS,
        "    _check_signers(connection, policy, prefix, before)\n",
        "",
        SERVICE_TESTS,
    ),
    (
        "acts: a challenge of another person",
        PASSKEYS,
        ", open_.c.user_id.is_not_distinct_from(user_id))",
        ")",
        SERVICE_TESTS,
    ),
    (
        "acts: a challenge without end",
        PASSKEYS,
        ", open_.c.expires_at > func.clock_timestamp())",
        ")",
        SERVICE_TESTS,
    ),
    (
        "acts: a count that falls",
        PASSKEYS,
        "    noted = update(passkeys).where(passkeys.c.id == passkey.id, rises)\n",
        "    noted = update(passkeys).where(passkeys.c.id == passkey.id)\n",
        SERVICE_TESTS,
    ),
    (
        "acts: another person's passkey in a session",
        PAGES,
        "passkey is None or passkey.user_id != (user_id or passkey.user_id):",
        "passkey is None:",
        PAGE_TESTS,
    ),
    (
        "acts: a password without its passkey",
        "web/auth.py",
        "    has_second_factor = settings().second_factor and user.password_expires is None\n",
        "    has_second_factor = False\n",
        PAGE_TESTS,
    ),
    (
        "acts: nobody asks who is there",
        "web/confirmation.py",
        "    if not anew and (not minutes or fresh):\n",
        "    if True:\n",
        PAGE_TESTS,
    ),
)
