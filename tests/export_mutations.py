"""Guards against exports that lie, each taken out alone (tests.mechanism_mutations)."""

VERIFIER, FORMATS = "accountant/core/ledger/verifier.py", "accountant/core/ledger/export_formats.py"
FIELDS, CHECKPOINTS = (
    "accountant/core/ledger/entry_fields.py",
    "accountant/core/ledger/checkpoints.py",
)
BOOKS, LINEAGE = "accountant/core/ledger/books.py", "accountant/core/ledger/lineage.py"
CHAIN, NAMES = "accountant/core/ledger/hash_chain.py", "accountant/core/names.py"
JSON, PEOPLE = "accountant/core/ledger/canonical_json.py", "accountant/identities/credentials.py"
DECISION, ASKING = "accountant/transactions/decision.py", "accountant/transactions/asking.py"
CLAIMS = "tests/accountant/core/ledger/test_forged_claims.py"
COMMAND = "tests/web/cli/test_verify.py"
TWO = "tests/accountant/transactions/test_two_people.py"

#: (title, file, text, what stands there instead, tests that have to fail)
EXPORTS = (
    (
        "exports: any text",
        FORMATS,
        '    if row != (line if line.endswith("\\n") else line + "\\n"):\n',
        "    if not row:\n",
        CLAIMS,
    ),
    (
        "exports: any field in the header",
        FORMATS,
        "    if not set(_STATED) <= set(claimed) <= {*_STATED, *_MAY_STATE}:\n",
        "    if not set(_STATED) <= set(claimed):\n",
        CLAIMS,
    ),
    (
        "exports: public is anything",
        FORMATS,
        '    if claimed.get("public", True) is not True:\n',
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: true is 1",
        FORMATS,
        "        if value_text(claimed[name]) != value_text(expected[name]):\n",
        "        if claimed[name] != expected[name]:\n",
        CLAIMS,
    ),
    (
        "exports: a known key that signed nothing",
        FORMATS,
        "    if pinned is not None and all(signed.seq < found.entries for signed in "
        "found.checkpoints):\n",
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: a full one hides",
        VERIFIER,
        "        if unseen and not self.public:\n",
        "        if False:\n",
        CLAIMS,
    ),
    (
        "exports: a public one shows",
        VERIFIER,
        "        if self.public and unseen < private:\n",
        "        if False:\n",
        CLAIMS,
    ),
    (
        "exports: anything is hidden",
        VERIFIER,
        "    if commitment_count(published) != private:\n",
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: a checkpoint before its entries",
        VERIFIER,
        "    if found.at is not None and checkpoint.at < found.at:\n",
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: public balances state ex-post costs",
        VERIFIER,
        "None if public else str(ex_post.spent)",
        "str(ex_post.spent)",
        CLAIMS,
    ),
    (
        "exports: what is read elsewhere is public",
        VERIFIER,
        "                *map(str, self.lineage.elsewhere),\n",
        "",
        CLAIMS,
    ),
    (
        "exports: the ledger of another dataset is not looked at",
        LINEAGE,
        '            or not release.holds(self.read["artifacts"], self.kind)\n',
        "",
        COMMAND,
    ),
    (
        "exports: this dataset as another",
        LINEAGE,
        '        if source["dataset"] == entry.dataset:\n',
        "        if False:\n",
        CLAIMS,
    ),
    (
        "exports: an empty actor",
        CHAIN,
        '    if actor == "":  # which stands for a hidden one above\n',
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: any name",
        FIELDS,
        "        if not is_hidden(value) and not is_name(value):\n",
        "        if False:\n",
        CLAIMS,
    ),
    (
        "exports: any field in an entry",
        FIELDS,
        "    if unknown:\n",
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: a value in any form",
        FIELDS,
        "    if value_text(stated) != value_text(value):\n",
        "    if stated != value:\n",
        CLAIMS,
    ),
    (
        "exports: an artifact with two hashes",
        FIELDS,
        '    if len({artifact["name"] for artifact in released}) < len(released):\n',
        "    if False:\n",
        CLAIMS,
    ),
    (
        "exports: any costs of a free job",
        BOOKS,
        '        elif body["costs"] != ({} if account is None else _costs_of(account, '
        "event)[1]):\n",
        "        elif False:\n",
        CLAIMS,
    ),
    (
        "exports: parts that nobody reserved",
        BOOKS,
        '        if ("ex_post" in body, "secret" in body) != (charged > 0, on_secret):\n',
        "        if False:\n",
        CLAIMS,
    ),
    (
        "exports: filters in any form",
        BOOKS,
        '    if value_text(body["filters"]) != value_text(written):\n',
        '    if [each["limit"] for each in body["filters"]] != [each["limit"] for each in '
        "written]:\n",
        CLAIMS,
    ),
    (
        "exports: hex in capitals",
        CHECKPOINTS,
        "    if len(value) != length or value.hex() != text:\n",
        "    if len(value) != length:\n",
        CLAIMS,
    ),
    (
        "exports: a name twice",
        JSON,
        "    if len(value) < len(pairs):\n",
        "    if False:\n",
        COMMAND,
    ),
    (
        "exports: names that look alike",
        NAMES,
        "    return name.translate(_LOOKS_LIKE)\n",
        "    return name\n",
        CLAIMS,
    ),
    (
        "names: one that looks like an account's",
        PEOPLE,
        "        if is_alike(taken, name):\n",
        "        if False:\n",
        TWO,
    ),
    (
        "names: both people look alike",
        ASKING,
        "        if is_alike(asker, self.actor.name):\n",
        "        if False:\n",
        TWO,
    ),
    (
        "names: analyst and approver look alike",
        DECISION,
        '    if is_alike(approval["by"], analyst) and not policy.solo:\n',
        "    if False:\n",
        TWO,
    ),
)
