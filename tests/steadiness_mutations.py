"""Guards of the self-test "one record moves one batch", each taken out alone
(tests.mechanism_mutations).
"""

STEADINESS, MODELS = "workers/engine/steadiness.py", "workers/models.py"
FOUND_TESTS, MODEL_TESTS = "tests/workers/engine/test_steadiness.py", "tests/workers/test_models.py"
COMPARED = "return torch.equal(others, without) and torch.equal(others, changed)"

#: (title, file, text, what stands there instead, tests that have to fail)
SELF_TEST = (
    (
        "self-test: a removal is not compared",
        STEADINESS,
        COMPARED,
        "return torch.equal(others, changed)",
        FOUND_TESTS,
    ),
    (
        "self-test: a change is not compared",
        STEADINESS,
        COMPARED,
        "return torch.equal(others, without)",
        FOUND_TESTS,
    ),
    (
        "self-test: reading alone is compared",
        STEADINESS,
        "return torch.stack([read, torch.cat([values for _, values in decoder.step({0: 1})])])",
        "return torch.stack([read])",
        FOUND_TESTS,
    ),
    (
        "self-test: writing alone is compared",
        STEADINESS,
        "return torch.stack([read, torch.cat([values for _, values in decoder.step({0: 1})])])",
        "return torch.stack([torch.cat([values for _, values in decoder.step({0: 1})])])",
        FOUND_TESTS,
    ),
    (
        "self-test: none when a model is loaded",
        MODELS,
        "    check_loaded(structure)\n",
        "    pass\n",
        MODEL_TESTS,
    ),
    (
        "self-test: bfloat16 does not give way to float32",
        MODELS,
        "again = coarse and or_float32",
        "again = False",
        MODEL_TESTS,
    ),
)
