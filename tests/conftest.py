"""Shared fixtures: a real PostgreSQL and Valkey for the whole run, a fresh database per module."""

import gc
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import hypothesis
import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, make_url, text

from accountant.database import connect, migrate
from accountant.rights import PROCESSES, Process
from accountant.settings import load
from tests import ceph_server, limits, object_stores, scheduling
from tests.recorded import Recorded, that_approves, with_allowance
from tests.support import Bench
from web.stack.addresses import ROLES

#: Nobody pulls the plug during a test: commits go to the kernel, as ever, and need not be on disk.
#: What a killed process had committed is still there. Nothing copies the log either.
NOT_SYNCED = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
TEMPLATE = "migrated"
# Where nothing is compiled for the next process, each of hundreds would compile torch anew: it is
# kept in the environment, and no file appears beside a source.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(sys.prefix) / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
#: Models of tests are small: a second thread mostly waits, and takes a processor from other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
#: Jobs end when they are done, unless a test's policy says otherwise: no test waits for a
#: stopwatch's sake.
os.environ.setdefault("EXCHEQUER_RESULTS_EVERY_SECONDS", "0")


#: People of tests are made as they are needed; what a new account may not do has tests of its own.
os.environ.setdefault("EXCHEQUER_NEW_ACCOUNT_HOURS", "0")
os.environ.setdefault("EXCHEQUER_DATA_CHECKS_PER_DAY", "1000000")
for waiting in ("WAITING_JOBS", "APPROVALS"):  # one person of a test asks for hundreds of jobs
    os.environ.setdefault(f"EXCHEQUER_{waiting}_PER_PERSON", "1000000")
# Processes of one database share the key of its cookies, whichever homes a test gives them.
os.environ.setdefault("EXCHEQUER_KEY_SESSION", "5e" * 32)
# How many workers live when a job is asked for is nothing that a test decides.
os.environ.setdefault("EXCHEQUER_FAN_OUT", "1")
load.cache_clear()

# Imports make a million objects that live to the end: looking through them takes a fifth
# of the time of collecting the tests.
gc.disable()

# The same examples in every run of a tree, and no clock: what fails is wrong, not unlucky or slow.
# `make test ARGS=--hypothesis-profile=fresh` draws others.
hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "fresh", hypothesis.settings.get_profile("repeatable"), derandomize=False, print_blob=True
)
hypothesis.settings.load_profile("repeatable")


def pytest_configure(config):
    config.pluginmanager.register(limits)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    scheduling.longest_first(items)
    for item in items:
        # what is too long for each change is not quick either
        if item.get_closest_marker("release"):
            item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Garbage is collected again, among what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def little_to_look_through():
    """What earlier modules left is looked through once: a collection of garbage in this one is
    quick.
    """
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path, config):
    """Half a minute of imports less where only quick tests are asked for."""
    if collection_path.suffix != ".py":
        return None
    return True if scheduling.is_left_out(collection_path, config.option.markexpr) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return scheduling.OneProcessAModule(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """As many as there are processors, and two more, as tests wait for servers and timers."""
    return (os.cpu_count() or 2) + 2


@pytest.fixture(scope="session")
def s3_url():
    """moto's server, which speaks S3, by its URL."""
    if object_stores.LACKS:
        pytest.skip(f"not installed: {', '.join(object_stores.LACKS)}")
    with object_stores.started() as url:
        yield url


@pytest.fixture(scope="session")
def ceph_url():
    """A gateway of Ceph that speaks S3, by its URL."""
    if lacks := ceph_server.LACKS + object_stores.LACKS:
        pytest.skip(f"not installed: {', '.join(lacks)}")
    with ceph_server.serving() as url:
        yield url


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """The two embedded servers, stopped at the end."""
    from web.local import Servers
    from web.stack import postgres

    home = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        with patch.dict(postgres.SETTINGS, NOT_SYNCED):  # other servers start as they do for people
            running = stack.enter_context(Servers(home))
        prepared(running)
        yield running


def prepared(servers) -> None:
    """Make the migrated database of which others are copies."""
    with as_superuser(servers) as admin:
        create(admin, TEMPLATE, make_url(servers.owner_url).username)
    url = make_url(servers.owner_url).set(database=TEMPLATE).render_as_string(hide_password=False)
    migrate(url, as_application(servers, url), {each: as_process(url, each) for each in PROCESSES})


@contextmanager
def as_superuser(servers) -> Iterator[Connection]:
    engine = create_engine(
        make_url(servers.owner_url).set(username="postgres"),
        isolation_level="AUTOCOMMIT",
        poolclass=NullPool,
    )
    with engine.connect() as connection:
        yield connection


def create(admin: Connection, name: str, owner: str | None, template: str = "template1") -> None:
    # Its files are copied: the other way, through the log, takes twice the time.
    admin.execute(
        text(f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {template} STRATEGY file_copy")
    )


@contextmanager
def fresh_database(servers) -> Iterator[str]:
    """A fresh, migrated database, as the owner of its tables: a copy of one that was migrated
    once.
    """
    name = f"test_{uuid.uuid4().hex[:12]}"
    owner = make_url(servers.owner_url)
    # As the cluster's superuser: dropping a database ends sessions that other roles left open.
    with as_superuser(servers) as admin:
        create(admin, name, owner.username, TEMPLATE)
    yield owner.set(database=name).render_as_string(hide_password=False)
    with as_superuser(servers) as admin:
        admin.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def as_application(servers, owner_url: str) -> str:
    """The same database as the role of the application."""
    database = make_url(owner_url).database
    return (
        make_url(servers.database_url).set(database=database).render_as_string(hide_password=False)
    )


def as_process(owner_url: str, process: Process) -> str:
    """The same database as the role of one process."""
    return make_url(owner_url).set(username=ROLES[process]).render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def owner_url(servers) -> Iterator[str]:
    """A fresh, migrated database, as the owner of its tables."""
    with fresh_database(servers) as url:
        yield url


@pytest.fixture(scope="module")
def database_url(servers, owner_url) -> str:
    """The same as the role of the application: what the suite does needs no more rights than it
    has.
    """
    return as_application(servers, owner_url)


@pytest.fixture
def owner(owner_url) -> Iterator[Engine]:
    """For tests that take a guard of the database out."""
    engine = connect(owner_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def engine(database_url) -> Iterator[Engine]:
    engine = connect(database_url, pool_size=30)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def recorded(servers, tmp_path_factory) -> Iterator[Recorded]:
    """Benches that are made once in this run, by whichever of its processes needs them first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "recorded"
    folder.mkdir(exist_ok=True)
    with fresh_database(servers) as owner_url:
        engine = connect(as_application(servers, owner_url))
        yield Recorded(engine, folder)
        engine.dispose()


@pytest.fixture
def bench(engine, recorded) -> Bench:
    """A dataset whose jobs all need approval, with an allowance of (10, 2.9053e-6)."""
    return recorded.bench(engine, with_allowance)


@pytest.fixture
def open_bench(engine, recorded) -> Bench:
    """The same, but jobs up to epsilon 10 are approved by policy, and the probe is known."""
    return recorded.bench(engine, that_approves)
