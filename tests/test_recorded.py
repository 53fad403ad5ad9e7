"""A bench whose rows were copied is as whole as one that the code makes in the same database."""

from collections import Counter

import pytest
from sqlalchemy import Engine, text

from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity
from tests.recorded import that_approves, with_allowance, with_probe


def rows(owner: Engine) -> Counter[str]:
    """The rows of each table."""
    with owner.connect() as connection:
        named = connection.scalars(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        )
        return Counter(
            {name: connection.scalar(text(f"SELECT count(*) FROM {name}")) for name in named.all()}
        )


@pytest.mark.parametrize("making", [with_allowance, with_probe, that_approves])
def test_a_copied_bench_is_as_whole_as_one_that_is_made(engine, owner, recorded, making):
    empty = rows(owner)
    copied = [recorded.bench(engine, making) for _ in range(2)]
    with_copies = rows(owner)
    making(engine)
    assert with_copies - empty == Counter(
        {name: 2 * more for name, more in (rows(owner) - with_copies).items()}
    )
    for bench in copied:
        assert integrity.check(engine, bench.dataset) == []
        verify_lines(entries.export(engine, bench.dataset, bench.auditor, "jsonl"))
    assert len({bench.dataset for bench in copied}) == 2
