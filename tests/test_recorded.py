"""A bench whose rows were copied is as whole as one that the code makes in the same database."""

from collections import Counter
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, text

from accountant.core.ledger.export_formats import verify_lines
from accountant.database import connect
from accountant.queries import entries, integrity
from tests.conftest import as_application, fresh_database
from tests.recorded import Recorded, that_approves, with_allowance, with_probe


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


def test_another_process_reads_what_was_made_and_makes_none(servers, engine, recorded):
    recorded.bench(engine, with_probe)
    with (
        fresh_database(servers) as owner_url,
        patch.object(Recorded, "_record", side_effect=AssertionError),
    ):
        elsewhere = connect(as_application(servers, owner_url))
        bench = Recorded(elsewhere, recorded.folder).bench(elsewhere, with_probe)
        assert integrity.check(elsewhere, bench.dataset) == []
        verify_lines(entries.export(elsewhere, bench.dataset, bench.auditor, "jsonl"))
        elsewhere.dispose()
