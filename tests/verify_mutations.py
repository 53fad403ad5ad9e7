"""Guards of a verification in blocks and by shape, each taken out alone (tests.mechanism_mutations)."""

LEDGER = "accountant/core/ledger/"
BLOCKS, RUNS, VERIFIER = LEDGER + "export_blocks.py", LEDGER + "entry_runs.py", LEDGER + "verifier.py"
BLOCK_TESTS = "tests/accountant/core/ledger/test_export_blocks.py"
SHAPE_TESTS = "tests/accountant/core/ledger/test_shapes.py"

#: (title, file, text, what stands there instead, tests that have to fail)
IN_BLOCKS = (
    (
        "verify: what is in no run after a block's last is not judged",
        BLOCKS,
        "    for line in reread()[at:] if at < block.lines else ():\n        add_json_row(verifier, line)\n",
        "",
        BLOCK_TESTS,
    ),
    (
        "verify: what is in no run before another is not judged",
        BLOCKS,
        "        for line in reread()[at : run.line] if at < run.line else ():\n"
        "            add_json_row(verifier, line)\n",
        "",
        BLOCK_TESTS,
    ),
    (
        "verify: later blocks are not looked at",
        BLOCKS,
        "                add_block(checked, block, partial(blocks.lines, number))\n",
        "                if number < 2:\n"
        "                    add_block(checked, block, partial(blocks.lines, number))\n",
        BLOCK_TESTS,
    ),
    (
        "verify: a run need not follow the block before it",
        VERIFIER,
        "run.seq + done != self.count + 1 or previous != self.head or entries",
        "entries",
        BLOCK_TESTS,
    ),
    (
        "verify: a run may begin before the time of the entry before it",
        VERIFIER,
        " or entries[done][1] < self._at:\n",
        ":\n",
        SHAPE_TESTS,
    ),
    (
        "verify: entries of a run need not follow each other",
        RUNS,
        "text.previous == last.hash and text.seq == last.seq + 1 and text.at >= last.at",
        "True",
        BLOCK_TESTS,
    ),
    (
        "verify: entries of a run need not be in the order of time",
        RUNS,
        " and text.at >= last.at",
        "",
        BLOCK_TESTS,
    ),
    (
        "verify: the hash of an entry in a run is not compared",
        RUNS,
        "text.hash != recorded_hash or ",
        "",
        BLOCK_TESTS,
    ),
    (
        "verify: runs pass checkpoints by",
        VERIFIER,
        "            stop = min(stop, done + self._checkpoints[self._met].seq - self.count)\n",
        "            pass\n",
        BLOCK_TESTS,
    ),
    (
        "verify: a block that is not all text passes",
        BLOCKS,
        "    if not block.text:\n",
        "    if False:\n",
        BLOCK_TESTS,
    ),
    (
        "verify: a helper that ended passes for one that has no more to say",
        BLOCKS,
        "        except (EOFError, OSError):\n            raise HelperLost from None\n",
        "        except (EOFError, OSError):\n"
        "            ready.update(dict.fromkeys(range(10_000), Block(0, True, [])))\n",
        BLOCK_TESTS,
    ),
    (
        "verify: an approval without a reason passes by shape",
        LEDGER + "rules.py",
        '_is_said(by) and _is_said(approval.get("reason"))',
        "_is_said(by)",
        SHAPE_TESTS,
    ),
)
