"""Dataset identity: each privacy unit has one account, however often it is registered.

Two registrations of the same people would be two allowances. So the units of all data found right
are kept as keyed fingerprints. Data that shares a unit by column with another dataset is refused,
and so is data whose records are enough evidence of the same people (core.text_evidence).
docs/decisions/0005 says why.

A public corpus is compared with all data when it is registered, and new data with all corpora: what
is private from then on makes them invalid. Each comparison answers a question about data, so it
says which data to its stewards alone, is listed for auditors, and somebody may ask only so many a
day (catalogue.registration).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core import text_evidence
from accountant.core.errors import DataError
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.ledger_log import sources
from accountant.ledger_log.log import LedgerLog
from accountant.transactions import ledger_log, owners, registrations
from accountant.transactions.ledger_log import writing

#: The advisory lock under which one dataset at a time is compared with all others and added to
#: them.
_LOCK = 0x65786368_75696431


_datasets = tables.datasets


@dataclass(frozen=True)
class Fingerprint:
    """16 bytes of a keyed hash.

    `is_unit`: of a privacy unit that a column names; else of a record. `weight`: the evidence that
    an equal one elsewhere is of the same people.
    """

    value: bytes
    is_unit: bool
    weight: float = math.inf


def claim(
    engine: Engine,
    version_id: UUID,
    proof: bytes,
    fingerprints: Iterable[Fingerprint],
    checked: Mapping[str, Any],
    key: bytes | None = None,
) -> None:
    """Make a version that waits for its check ready, or invalid where its units are another
    dataset's.

    One transaction, in memory that does not grow with `fingerprints`; what the iterable raises
    passes through and leaves the version as it was. `proof` is what the key of the fingerprints
    makes of a public text: fingerprints of another key would never meet those that are there.
    Raises DataError for such. `checked`: the body of the REGISTER of what was read; DataError where
    the rows say otherwise by then. `key`: the secret itself; with it, what a recovery needs to know
    of the version is kept beside the log.
    """
    with writing(engine) as connection:
        _without_limit(connection)
        _stage(connection, fingerprints)
        # Reading is over. From here on nobody else compares: who comes second sees what the first
        # added.
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        _require_all_data(engine)
        _check_key(connection, proof)
        versions, accounts = tables.dataset_versions, tables.accounts
        checking = versions.c.id == version_id, versions.c.state == "checking"
        unit_records = (
            _datasets.c.unit_column.is_(None) | (_datasets.c.missing_units == "separate")
        ).label("has_unit_records")
        query = select(versions.c.dataset_id, unit_records).join(
            _datasets, _datasets.c.id == versions.c.dataset_id
        )
        row = connection.execute(query.where(*checking)).one_or_none()
        if row is None:
            return  # a second message: checked meanwhile
        dataset_id = row.dataset_id
        shares = _shares(connection, dataset_id, row.has_unit_records)
        if not shares:
            connection.execute(_ADD, {"dataset": dataset_id})
        # Only now the account's row, so that no job waits while a large file is compared; and
        # before the version's, as every writer takes them. The ledger says which data was found
        # right.
        connection.execute(
            select(accounts.c.dataset_id)
            .where(accounts.c.dataset_id == dataset_id)
            .with_for_update()
        )
        if (
            connection.execute(select(versions.c.id).where(*checking).with_for_update()).first()
            is None
        ):
            connection.rollback()
            return  # it was settled or taken away meanwhile
        found = (
            {"state": "invalid", "error": REFUSED, "shared_with": shares}
            if shares
            else {"state": "ready", "data": checked["data"]}
        )
        row = connection.execute(
            update(versions).where(versions.c.id == version_id).values(found).returning(*versions.c)
        ).one()
        if shares:
            name = connection.execute(
                select(_datasets.c.name).where(_datasets.c.id == dataset_id)
            ).scalar_one()
            _note(connection, shares, row.created_by, f"data of {name}")
        else:
            _keep(connection, version_id, key)
            registrations.found_right(connection, version_id, checked)
            _withdraw_corpora(connection, dataset_id)


def _require_all_data(engine: Engine) -> None:
    """Raise LedgerBehind if any ledger is behind its log: lost people have no fingerprint."""
    if lost := ledger_log.behind(engine)[0]:
        raise lost[0]


def _keep(connection: Connection, version_id: UUID, key: bytes | None) -> None:
    """Keep beside the log what no entry says of a version, before it is stated as right."""
    log = ledger_log.log_of(connection)
    if log is None or key is None:
        return
    staged = connection.execute(_KEPT, execution_options={"yield_per": 10_000})
    _keep_beside(
        connection, log, version_id, key, ((row.fingerprint, row.is_unit) for row in staged)
    )


def keep_known(
    connection: Connection, log: LedgerLog, dataset: str, number: int, key: bytes
) -> None:
    """Like `_keep`, for a version found right before, with its dataset's fingerprints."""
    versions, known = tables.dataset_versions, tables.fingerprints
    query = select(versions.c.id, versions.c.dataset_id).join(
        _datasets, _datasets.c.id == versions.c.dataset_id
    )
    row = connection.execute(
        query.where(_datasets.c.name == dataset, versions.c.number == number)
    ).one()
    units = select(known.c.fingerprint, known.c.is_unit).where(known.c.dataset_id == row.dataset_id)
    rows = connection.execute(units, execution_options={"yield_per": 10_000})
    _keep_beside(
        connection, log, row.id, key, ((entry.fingerprint, entry.is_unit) for entry in rows)
    )


def _keep_beside(
    connection: Connection,
    log: LedgerLog,
    version_id: UUID,
    key: bytes,
    fingerprints: Iterable[tuple[bytes, bool]],
) -> None:
    versions = tables.dataset_versions
    join = versions.join(_datasets, _datasets.c.id == versions.c.dataset_id)
    query = select(_datasets).select_from(join).where(versions.c.id == version_id)
    dataset = connection.execute(query).one()
    version = connection.execute(select(versions).where(versions.c.id == version_id)).one()
    stated = {
        "dataset": _stated(connection, dataset, DATASET),
        "version": _stated(connection, version, ()),
    }
    sources.keep(log, dataset.name, version.number, key, stated, fingerprints)


def is_key(connection: Connection, proof: bytes) -> bool:
    """Return whether fingerprints were made under this proof's key, or there are none yet."""
    kept = connection.execute(select(tables.fingerprint_key.c.proof)).scalar_one_or_none()
    return kept in (None, proof)


#: Columns that no entry states, and a recovery writes again; who registered them is kept by name.
DATASET = ("description", "secret_patterns", "secret_terms", "secrets_salt")


def _stated(connection: Connection, row: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    users = tables.users
    name = connection.execute(select(users.c.name).where(users.c.id == row.created_by)).scalar_one()
    told = {column: getattr(row, column) for column in columns}
    return {**told, "created_by": name, "created_at": row.created_at.isoformat()}


def compare_corpus(
    engine: Engine, corpus_id: UUID, proof: bytes, texts: Iterable[Fingerprint]
) -> dict[str, float]:
    """Keep the fingerprints of a corpus, and return the share of it that each dataset has; mostly
    none.

    `texts`: as a dataset whose units are these records would have them, so they are compared as its
    units would be, with units and records of all data found right. Where there are shares, nothing
    is kept, and the activity log says whose data it was. Raises as `claim` does.
    """
    corpora = tables.corpora
    with engine.begin() as connection:
        _without_limit(connection)
        _stage(connection, texts)
        # data and corpora, one at a time
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        _require_all_data(engine)
        _check_key(connection, proof)
        row = connection.execute(select(corpora).where(corpora.c.id == corpus_id)).one()
        shares = _shares(connection, None, True)
        if shares:
            _note(connection, shares, row.created_by, f"corpus {row.name}")
        else:
            connection.execute(_ADD_CORPUS, {"corpus": corpus_id})
        return shares


def _withdraw_corpora(connection: Connection, dataset_id: UUID) -> None:
    """Make the corpora invalid that hold what is staged, which is private from here on."""
    corpora = tables.corpora
    name = connection.execute(
        select(_datasets.c.name).where(_datasets.c.id == dataset_id)
    ).scalar_one()
    here = connection.execute(_RECORDS).scalar_one()
    for row in connection.execute(_CORPORA).all():
        if row.evidence < _enough_in_corpus(here, row.whole):
            continue
        shares = {name: row.shared / row.whole}
        values = {"state": "invalid", "facts": None, "error": REFUSED, "shared_with": shares}
        connection.execute(update(corpora).where(corpora.c.id == row.id).values(values))
        _note(connection, shares, row.created_by, f"corpus {row.name}")


def _note(connection: Connection, shares: Mapping[str, float], person: UUID, checked: str) -> None:
    """Record for auditors that data was found to be another dataset's, once for each."""
    users = tables.users
    name = connection.execute(select(users.c.name).where(users.c.id == person)).scalar_one()
    for dataset in shares:
        actor = Actor(person, name, frozenset())
        activity_log.record(connection, actor, "overlap found", "dataset", dataset, checked=checked)


# --- what is told ---------------------------------------------------------------------------------

#: What everybody is told: which data it is, and how much, is for the stewards of that data.
REFUSED = "it can't be registered here"


def told(connection: Connection, viewer: Actor, row: Any, corpus: bool) -> str | None:
    """Return a version's or corpus's error as `viewer` may read it, with their own datasets."""
    shares = dict(row.shared_with or {})
    if shares:
        mine = select(_datasets.c.name).where(
            _datasets.c.name.in_(shares), owners.overseen(viewer, owners.STEWARD)
        )
        known = set(connection.execute(mine).scalars())
        shares = {name: share for name, share in shares.items() if name in known}
    if not shares:
        error: str | None = row.error
        return error
    if corpus:
        return (
            f"texts of it are private records, of dataset {_named(shares)}. Whatever reads a "
            "public corpus is free: take them out, or register other data"
        )
    name, share = next(iter(shares.items()))
    joins = f"exchequer dataset add-version {name} --uri ADDRESS"
    problem = f"units of it have an account already, in dataset {_named(shares)}"
    if share >= 0.5:
        return (
            f"{problem}. If it is that data, register it as a version there, which joins that "
            f"account ({joins}); if not, correct the data so that nobody is in both"
        )
    return (
        f"{problem}. Take out whoever is in both, and correct the data. Only a later state of that "
        f"very data is a version of it ({joins}): other people are not to join its account"
    )


def _without_limit(connection: Connection) -> None:
    """Lift the time limit: fingerprints are sent while a file is read, and compared for long."""
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"SET LOCAL {limit} = 0"))


def _stage(connection: Connection, fingerprints: Iterable[Fingerprint]) -> None:
    """Stream the fingerprints into a table that the end of the transaction drops: each once, with
    evidence.

    A record without weight is left out, and one that very many of the data's records equal.
    """
    connection.execute(
        text(
            "CREATE TEMPORARY TABLE read (fingerprint bytea, is_unit boolean, weight float8) ON "
            "COMMIT DROP"
        )
    )
    driver = connection.connection.driver_connection
    assert driver is not None
    with (
        driver.cursor() as cursor,
        cursor.copy("COPY read (fingerprint, is_unit, weight) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["bytea", "bool", "float8"])
        for fingerprint in fingerprints:
            copy.write_row((fingerprint.value, fingerprint.is_unit, fingerprint.weight))
    values = {"share": text_evidence.COMMON_SHARE, "records": text_evidence.COMMON_RECORDS}
    connection.execute(_STAGE, values)
    connection.execute(_KEEP, {"copies": text_evidence.COMMON_COPIES})
    connection.execute(text("ANALYZE staged"))


def _check_key(connection: Connection, proof: bytes) -> None:
    key = tables.fingerprint_key
    connection.execute(upsert(key).values(proof=proof).on_conflict_do_nothing())
    if connection.execute(select(key.c.proof)).scalar_one() != proof:
        raise DataError(
            "this worker's identity key is not the one that fingerprints were made with; every "
            "worker needs the same home/keys/identity or EXCHEQUER_KEY_IDENTITY"
        )


_STAGE = text(
    "CREATE TEMPORARY TABLE staged ON COMMIT DROP AS SELECT fingerprint, is_unit, max(weight) AS "
    "weight, count(*) AS copies FROM read GROUP BY fingerprint, is_unit HAVING is_unit OR "
    "max(weight) > 0 AND count(*) <= greatest(CAST(:records AS float8), :share * (SELECT count(*) "
    "FROM read WHERE NOT is_unit))"
)
#: The part that later data is compared with.
_KEEP = text(
    "CREATE TEMPORARY TABLE kept ON COMMIT DROP AS SELECT fingerprint, is_unit FROM staged "
    "WHERE is_unit OR copies <= :copies * "
    "(SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY copies) FROM staged WHERE NOT is_unit)"
)
_KEPT = text("SELECT fingerprint, is_unit FROM kept ORDER BY 1")
_RECORDS = text("SELECT count(*) FROM staged WHERE NOT is_unit")

#: Sorted, so that two who insert the same ones without a lock would wait for one another in one
#: order.
_ADD = text(
    "INSERT INTO fingerprints (fingerprint, dataset_id, is_unit) SELECT fingerprint, :dataset, "
    "is_unit FROM kept ORDER BY fingerprint ON CONFLICT (fingerprint, dataset_id) DO NOTHING"
)

_ADD_CORPUS = text(
    "INSERT INTO corpus_fingerprints (fingerprint, corpus_id) "
    "SELECT fingerprint, CAST(:corpus AS uuid) FROM kept ON CONFLICT DO NOTHING"
)
_CORPORA = text(
    "SELECT c.id, c.name, c.created_by, count(*) AS shared, sum(s.weight) AS evidence, "
    "(SELECT count(*) FROM corpus_fingerprints WHERE corpus_id = c.id) AS whole "
    "FROM staged s JOIN corpus_fingerprints f ON f.fingerprint = s.fingerprint "
    "JOIN corpora c ON c.id = f.corpus_id WHERE c.state <> 'invalid' GROUP BY c.id ORDER BY c.name"
)

#: Two people by column who wrote the same are two people: records count where those of one side are
#: units.
_SHARED = text(
    "SELECT d.name, count(*) AS shared, sum(s.weight) AS evidence, (SELECT count(*) FROM staged "
    "WHERE is_unit = s.is_unit) AS here, (SELECT count(*) FROM fingerprints WHERE dataset_id = "
    "d.id AND is_unit = s.is_unit) AS there FROM staged s JOIN fingerprints f ON f.fingerprint = "
    "s.fingerprint JOIN datasets d ON d.id = f.dataset_id WHERE f.dataset_id IS DISTINCT FROM "
    "CAST(:dataset AS uuid) AND (s.is_unit OR :by_record OR d.unit_column IS NULL OR "
    "d.missing_units = 'separate') GROUP BY d.id, s.is_unit ORDER BY 2 DESC, 1"
)


def _shares(connection: Connection, dataset_id: UUID | None, by_record: bool) -> dict[str, float]:
    """Return the share of the staged units that each other dataset of the same people has, largest
    first.

    `dataset_id`: None for a corpus.
    """
    enough = _enough_in_corpus if dataset_id is None else text_evidence.threshold
    shares: dict[str, float] = {}
    for row in connection.execute(_SHARED, {"dataset": dataset_id, "by_record": by_record}):
        if row.evidence >= enough(row.here, row.there):
            shares[row.name] = max(shares.get(row.name, 0.0), row.shared / row.here)
    return shares


def _enough_in_corpus(here: int, there: int) -> float:
    """Return one long text is enough: what reads a corpus costs nothing, for ever."""
    return min(text_evidence.threshold(here, there), text_evidence.MOST_WEIGHT)


def _named(shares: dict[str, float]) -> str:
    return ", ".join(f"{name!r} ({_roughly(share)})" for name, share in shares.items())


def _roughly(share: float) -> str:
    """Return a share in words: the steward needs to know whether it is a slip or the same data."""
    if share < 0.01:
        return "under 1 % of it"
    if share > 0.99:
        return "all of it, or nearly"
    return f"about {max(1, round(share * 100, -1 if share >= 0.1 else 0)):.0f} % of it"
