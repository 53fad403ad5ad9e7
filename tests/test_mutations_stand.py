"""`make mutations` tries each mutation in minutes; that its text still stands is asked for here."""

import pytest

from tests.mechanism_mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.title)
def test_what_a_mutation_takes_out_stands_once_and_so_do_its_tests(mutation):
    assert (ROOT / mutation.file).read_text("utf-8").count(mutation.text) == 1
    for named in mutation.tests.split():
        file, _, test = named.partition("::")
        assert (ROOT / file).exists(), named
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text("utf-8")
