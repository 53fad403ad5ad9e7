"""After every refusal no word of a record stands in a log, a table or an error: words are planted
for it.
"""

import logging
import uuid

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant import settings
from accountant.catalogue import corpora, datasets, registration
from accountant.queries import datasets as dataset_queries
from accountant.settings import Settings
from tests.support import person
from web.stack.processes import log_path
from workers.data import manifest
from workers.jobs import checks

CANARY = "zanzibar-canary"
SPEC = {
    "unit_column": "who",
    "label_column": "kind",
    "labels": ["a", "b"],
    "text_template": "{text}",
}

#: What a worker refuses: the suffix, and bytes with the word wherever a record may stand.
FILES = {
    "no header": ("csv", f"{CANARY},{CANARY} text,a\n{CANARY},more,b\n"),
    "a header that differs": ("csv", f"Who,text ,kind,{CANARY}\nann,x,a,y\n"),
    "broken quoting": ("csv", f'who,text,kind\n{CANARY},"{CANARY}\n'),
    "too many fields": ("csv", f"who,text,kind\n{CANARY},{CANARY},a,{CANARY}\n"),
    "another label": ("csv", f"who,text,kind\n{CANARY},x,{CANARY}\n"),
    "no unit": ("csv", f"who,text,kind\n,{CANARY},a\n"),
    "a NUL in the header": ("csv", f"who,text,kind,{CANARY}\0\nann,{CANARY},{CANARY},x\n"),
    "no UTF-8": ("csv", f"who,text,kind\nann,{CANARY}\udcff,a\n"),
    "an endless field": ("csv", f"who,text,kind\nann,{CANARY}{'x' * 3_000_000},{CANARY}\n"),
    "no JSON": ("jsonl", f'{{"who": "{CANARY}", "text": "{CANARY}\n'),
    "no object": ("jsonl", f'["{CANARY}"]\n'),
    "no column": ("jsonl", f'{{"{CANARY}": "{CANARY}"}}\n'),
    "half a character": ("jsonl", f'{{"who": "ann", "text": "{CANARY}\\ud800", "kind": "a"}}\n'),
    "no Parquet": ("parquet", f"PAR1{CANARY}PAR1"),
    "no gzip": ("csv.gz", f"{CANARY}"),
}


@pytest.fixture
def worker(tmp_path, database_url, monkeypatch):
    """The checks of a worker in this process, with a data root of its own."""
    served = Settings(home=tmp_path, DATABASE_URL=database_url, data_roots=str(tmp_path))
    monkeypatch.setattr(settings, "load", lambda: served)
    return tmp_path


def everything(engine, servers, caplog, capfd) -> dict[str, str]:
    """Every log and every table, as text."""
    found = {"our logs": caplog.text, "our output": "".join(capfd.readouterr())}
    found["PostgreSQL's log"] = log_path(servers.home, "postgres").read_text(errors="replace")
    with engine.connect() as connection:
        listed = text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for name in connection.execute(listed).scalars().all():
            readable = text("SELECT has_table_privilege(:name, 'SELECT')")
            if connection.execute(readable, {"name": name}).scalar_one():
                rows = connection.execute(text(f"SELECT t::text FROM {name} t")).scalars()
                found[f"table {name}"] = "\n".join(rows)
    return found


def test_no_refusal_of_data_leaves_a_word_of_a_record(engine, servers, worker, caplog, capfd):
    steward = person(engine, "steward")
    told = []
    for number, (form, content) in enumerate(FILES.values()):
        path = worker / f"file{number}.{form}"
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        spec = datasets.read_dataset({"name": f"data-{number}", "uri": str(path), **SPEC})
        checks.check_dataset(str(datasets.add_dataset(engine, spec, steward)))
        told.append(dataset_queries.dataset(engine, spec.name, steward).versions[0])
        declared = {"name": f"corpus-{number}", "uri": str(path), "statement": "made up"}
        corpus = corpora.CorpusSpec(text_template="{nothing}", **declared)
        checks.check_corpus(str(corpora.add(engine, corpus, steward)))
    assert {each.state for each in told} == {"invalid"}
    assert all(each.error for each in told)
    assert not [
        name for name, held in everything(engine, servers, caplog, capfd).items() if CANARY in held
    ]


def test_a_corpus_is_read_from_its_files_once(engine, worker, monkeypatch):
    steward, opened, fsspec_open = person(engine, "steward"), [], manifest.fsspec.open

    def opens(file, *args, **options):
        opened.append(str(file))
        return fsspec_open(file, *args, **options)

    monkeypatch.setattr(manifest.fsspec, "open", opens)
    path = worker / "read-once.csv"
    path.write_text("text\na match\na race\n")
    spec = corpora.CorpusSpec(name="read-once", uri=str(path), statement="made up")
    corpus = corpora.add(engine, spec, steward)
    checks.check_corpus(str(corpus))
    assert registration.find(engine, "corpus", corpus).state == "ready"
    assert [file.removeprefix("file://") for file in opened] == [str(path)]


@pytest.mark.parametrize(
    "files",
    [{"a.csv": "text\nx\n", "b.csv": ""}, dict.fromkeys(("a.csv", "b.csv"), "text\nx\n")],
    ids=["empty", "the same bytes"],
)
def test_a_corpus_of_empty_or_repeated_files_is_refused_by_name(engine, worker, files):
    (folder := worker / "folder").mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    spec = corpora.CorpusSpec(name=f"c-{uuid.uuid4()}", uri=str(folder), statement="made up")
    corpus = corpora.add(engine, spec, person(engine, "steward"))
    checks.check_corpus(str(corpus))
    row = registration.find(engine, "corpus", corpus)
    assert row.state == "invalid"
    assert "b.csv" in row.error


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT CAST(:value AS uuid)",
        "SELECT CAST(:value AS jsonb)",
        "SELECT CAST(:value AS integer)",
        "INSERT INTO users (id, name, roles) VALUES (gen_random_uuid(), :value, ARRAY[:value])",
        "INSERT INTO datasets (id, name) VALUES (gen_random_uuid(), :value)",
        "INSERT INTO outbox (task, subject) VALUES (:value, gen_random_uuid())",
        f"SELECT '{CANARY}' FROM nowhere WHERE x = :value",
        "SELECT set_config('timezone', :value, true)",
    ],
)
def test_no_failed_statement_leaves_a_value(engine, servers, caplog, capfd, statement):
    with pytest.raises(DBAPIError) as failed, engine.begin() as connection:
        connection.execute(text(statement), {"value": CANARY})
    error = failed.value
    logging.getLogger("web").error("reference 1", exc_info=error)
    said = f"{error} {error!r} {error.orig} {error.orig!r}".replace(statement, "")
    assert "SQLSTATE" in said
    assert CANARY not in said or CANARY in statement  # the service writes no value into a statement
    found = everything(engine, servers, caplog, capfd)
    assert CANARY not in found["PostgreSQL's log"]
