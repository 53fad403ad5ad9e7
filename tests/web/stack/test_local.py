"""The local stack with real servers, real processes and small stand-ins for the programs."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
import yaml

from accountant.settings import Settings
from web import local
from web.stack import ports, processes, state
from web.stack.addresses import APPLICATION, OWNER, SERVERS, page_address
from web.stack.processes import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

WEB = """
import http.server, os, socket
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()
server = http.server.HTTPServer(("", 0), Page, bind_and_activate=False)
server.socket = socket.socket(fileno=int(os.environ["EXCHEQUER_LISTENING"]))
server.serve_forever()
"""


def stand_in(
    name: str, code: str = "import time; time.sleep(600)", **more: object
) -> local.Program:
    return local.Program.model_validate(
        {"name": name, "argv": (sys.executable, "-c", code), **more}
    )


PROGRAMS = (
    stand_in("migrate", "print('nothing to migrate')", once=True),
    stand_in("web", WEB, page="/healthz"),
    stand_in("relay", stop_stage=1),
)


def make_settings(home: Path, **more: object) -> Settings:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Settings.model_validate({"home": home, "port": port, **more})


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database folder to copy: making one takes a second or more."""
    home = tmp_path_factory.mktemp("made")
    with local.Servers(home, valkey=False):
        pass
    return home / "postgres"


@pytest.fixture
def settings(
    tmp_path: Path, made_once: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    """Settings of a stack of its own, stopped afterwards whatever the test left of it."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("BROKER_URL", raising=False)
    made = make_settings(tmp_path / "home")
    made.home.mkdir(mode=0o700)
    subprocess.run(["cp", "-a", made_once, made.home / "postgres"], check=True)
    yield made
    local.down(made, on_progress=print)
    assert marked(made.home) == []


def up(settings: Settings, programs: tuple[local.Program, ...] = PROGRAMS) -> local.Status:
    return local.up(settings, on_progress=print, programs=programs)


def down(settings: Settings) -> None:
    local.down(settings, on_progress=print)


def marked(home: Path) -> list[str]:
    """Living processes with this home in arguments, environment or folder; looks by itself."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            text += os.readlink(folder / "cwd").encode()
        except OSError:
            continue
        if str(home).encode() in text and int(folder.name) != os.getpid():
            found.append(f"{folder.name} {text[:100]!r}")
    return found


def pids(settings: Settings) -> dict[str, int | None]:
    return {process.name: process.pid for process in local.status(settings).processes}


def supervisor(settings: Settings) -> processes.Handle:
    record = state.read(settings.home)
    assert record is not None
    handle = record.supervisor()
    assert handle is not None
    return handle


def kill_supervisor(settings: Settings) -> None:
    handle = supervisor(settings)
    os.kill(handle.pid, signal.SIGKILL)
    assert wait_until(lambda: not handle.alive(), 5)


def database(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def owner(status: local.Status) -> str:
    return status.database_url.replace(APPLICATION, OWNER)


def broker(url: str) -> redis.Redis:
    return redis.Redis.from_url(local.redis_url(url))


def write_to_both(status: local.Status) -> None:
    with database(owner(status)) as connection:
        connection.execute("CREATE TABLE kept (value text)")
        connection.execute("INSERT INTO kept VALUES ('row')")
    broker(status.broker_url).rpush("generate", "first", "second")


def read_from_both(status: local.Status) -> tuple[object, object]:
    with database(owner(status)) as connection:
        rows = connection.execute("SELECT value FROM kept").fetchall()
    return rows, broker(status.broker_url).lrange("generate", 0, -1)


KEPT = ([("row",)], [b"first", b"second"])


# --- the two servers alone ------------------------------------------------------------------------


def test_servers_are_durable_private_and_deterministic(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with local.Servers(home) as servers:
        with database(servers.database_url) as connection:
            shown = {
                name: connection.execute(f"SHOW {name}").fetchone()
                for name in ("fsync", "synchronous_commit", "listen_addresses", "server_encoding")
            }
            collation = connection.execute(
                "SELECT datcollate FROM pg_database WHERE datname = current_database()"
            ).fetchone()
            role = connection.execute(
                "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
        assert shown == {
            "fsync": ("on",),
            "synchronous_commit": ("on",),
            "listen_addresses": ("",),
            "server_encoding": ("UTF8",),
        }
        assert collation == ("C",)
        assert role == (False,)
        client = broker(servers.broker_url)
        assert client.config_get("port", "appendonly") == {"port": "0", "appendonly": "yes"}
        for folder in (home, home / "postgres", home / "valkey"):
            assert folder.stat().st_mode & 0o077 == 0
    assert marked(home) == []


def test_one_owner_per_home(tmp_path: Path) -> None:
    with local.Servers(tmp_path, valkey=False) as servers:
        with pytest.raises(local.StackError, match="another process holds"):
            local.Servers(tmp_path).__enter__()
        database(servers.database_url).close()  # the refused one stopped nothing
    assert marked(tmp_path) == []


def test_servers_with_a_deep_home_that_needs_quoting(tmp_path: Path) -> None:
    home = tmp_path / "a, b %20 'c'" / ("x" * 120)
    with local.Servers(home) as servers:
        database(servers.database_url).close()
        assert broker(servers.broker_url).ping()
        link = Path(servers.database_url.partition("host=")[2]).parent
        assert link.stat().st_mode & 0o077 == 0
    assert not link.exists()


def test_servers_end_with_their_owner(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from web.local import Servers\n"
        "with Servers(Path(sys.argv[1])): print('ready', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    owner.kill()
    owner.communicate()
    assert wait_until(lambda: marked(tmp_path) == [], 10)


# --- the stack ------------------------------------------------------------------------------------


def test_import_is_light() -> None:
    code = (
        "import sys, web.local; print([m for m in ('sqlalchemy', 'torch', 'celery') if m in "
        "sys.modules])"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert shown.strip() == "[]"


def test_down_before_any_up(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "home")
    down(settings)
    assert not settings.home.exists()
    assert not local.status(settings).running


def test_twice_in_a_row_with_the_data_kept(settings: Settings) -> None:
    first = up(settings)
    assert first.running
    assert first.address == f"http://127.0.0.1:{settings.port}"
    assert [process.state for process in first.processes].count("running") == 4
    write_to_both(first)
    # nothing started again
    assert pids(settings) == {p.name: p.pid for p in up(settings).processes}

    down(settings)
    assert marked(settings.home) == []
    assert not local.status(settings).running
    down(settings)

    assert read_from_both(up(settings)) == KEPT


def test_supervisor_killed_then_up(settings: Settings) -> None:
    write_to_both(up(settings))
    before = pids(settings)
    kill_supervisor(settings)
    assert not local.status(settings).running

    status = up(settings)
    after = pids(settings)
    assert {after[name] for name in SERVERS} == {before[name] for name in SERVERS}
    assert after["web"] != before["web"]
    assert read_from_both(status) == KEPT

    down(settings)
    assert marked(settings.home) == []
    assert read_from_both(up(settings)) == KEPT


def test_supervisor_killed_then_down(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay ignores the signal that it gets when the supervisor dies, and has a child."""
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
    )
    monkeypatch.setattr(local, "_LEFT_SECONDS", 1.0)
    write_to_both(up(settings, (stand_in("relay", stubborn),)))
    kill_supervisor(settings)
    assert len(marked(settings.home)) >= 4
    down(settings)
    assert marked(settings.home) == []
    assert read_from_both(up(settings)) == KEPT


def test_what_ends_is_started_again(settings: Settings) -> None:
    write_to_both(up(settings))
    for name in ("relay", "postgres", "valkey"):
        pid = pids(settings)[name]
        assert pid is not None
        if name == "valkey":
            time.sleep(1.5)  # appendfsync everysec
        os.kill(pid, signal.SIGKILL)

        def is_back(name: str = name, pid: int = pid) -> bool:
            found = {process.name: process for process in local.status(settings).processes}[name]
            return found.state == "running" and found.pid not in (None, pid) and found.restarts == 1

        assert wait_until(is_back, 15), name
    assert read_from_both(local.status(settings)) == KEPT
    assert "relay was killed by signal 9" in processes.log_tail(settings.home, "supervisor")


def test_a_removed_home_ends_the_stack(settings: Settings) -> None:
    up(settings, (stand_in("relay"),))
    shutil.rmtree(settings.home)
    assert wait_until(lambda: marked(settings.home) == [], 15)


def test_two_at_once_start_one_stack(settings: Settings) -> None:
    found: list[local.Status] = []
    threads = [threading.Thread(target=lambda: found.append(up(settings))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0].running
    assert found[0].processes == found[1].processes
    assert len([line for line in marked(settings.home) if "web.stack.supervisor" in line]) == 1


def test_a_failing_program_is_named_and_nothing_stays(settings: Settings) -> None:
    failing = stand_in("checks", "import sys; sys.exit('no such model')")
    with pytest.raises(local.StackError) as caught:
        up(settings, (*PROGRAMS, failing))
    assert caught.value.process == "checks"
    assert caught.value.reason == "exited with code 1"
    assert caught.value.log == "no such model"
    assert marked(settings.home) == []
    assert not local.status(settings).running


def test_a_missing_program_is_named(settings: Settings) -> None:
    with pytest.raises(local.StackError, match=r"checks: can't be started: .*no-such-program"):
        up(settings, (local.Program(name="checks", argv=("no-such-program",)),))
    assert marked(settings.home) == []


def test_a_failing_migration_is_named(settings: Settings) -> None:
    broken = stand_in("migrate", "raise RuntimeError('bad revision')", once=True)
    with pytest.raises(local.StackError, match=r"(?s)migrate: exited with code 1.*bad revision"):
        up(settings, (broken, *PROGRAMS[1:]))
    assert marked(settings.home) == []


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    """Another program's port: this one's."""
    with socket.create_server(("127.0.0.1", port)) as other:
        yield other.getsockname()[1]


def with_default(home: Path, port: int = 8750, **chosen: object) -> Settings:
    """Settings whose default port is one that nobody else tries."""
    home.mkdir(exist_ok=True)
    made = Settings.model_validate({"home": home, "port": port, **chosen})
    made.model_fields_set.discard("port")
    return made


def claimed(settings: Settings) -> tuple[str, str]:
    """The address that a page gets, and the sentence on a port that was taken."""
    listener, found, taken = ports.claim(settings, settings.home)
    listener.close()
    return page_address(found), taken


@pytest.fixture
def lonely() -> int:
    """A port that nobody else tries."""
    with listening() as port:
        return port


def test_a_chosen_port_that_is_taken_is_an_error_that_names_its_holder(tmp_path: Path) -> None:
    with listening() as port, pytest.raises(local.StackError) as found:
        claimed(Settings(home=tmp_path, port=port))
    name = psutil.Process().name()
    assert f"port {port} is taken by {name} (process {os.getpid()})" in found.value.reason
    assert "set EXCHEQUER_PORT" in found.value.remedy
    assert not (tmp_path / "port").exists()


@pytest.mark.parametrize("broken", [None, "", "x", "0", "99999"])
def test_a_default_port_that_is_taken_moves_the_page_and_the_home_keeps_it(
    tmp_path: Path, lonely: int, broken: str | None
) -> None:
    if broken is not None:
        (tmp_path / "port").write_text(broken)
    settings = with_default(tmp_path, lonely)
    with listening(lonely):
        moved, taken = claimed(settings)
    assert f"port {lonely} is taken by" in taken
    assert moved != f"http://127.0.0.1:{lonely}"
    # the default is free, and the page stays where people know it
    assert claimed(settings) == (moved, "")
    assert page_address(settings) == moved  # while nothing runs, too
    with listening(int(moved.rpartition(":")[2])):
        assert claimed(settings)[0] != moved
    chosen = Settings(home=tmp_path, port=lonely)
    assert claimed(chosen)[0] == page_address(chosen) == f"http://127.0.0.1:{lonely}"


def test_stacks_that_claim_at_the_same_moment_get_ports_of_their_own(
    tmp_path: Path, lonely: int
) -> None:
    stacks = [with_default(tmp_path / str(number), lonely) for number in range(24)]
    with ThreadPoolExecutor(len(stacks)) as pool:
        claims = list(pool.map(lambda settings: ports.claim(settings, settings.home), stacks))
    assert len({settings.port for _, settings, _ in claims}) == len(stacks)
    for listener, *_ in claims:
        listener.close()


def test_hosts_that_this_machine_does_not_have(tmp_path: Path, lonely: int) -> None:
    with pytest.raises(local.StackError, match=r"can't listen on 192\.0\.2\.1 "):
        claimed(with_default(tmp_path, host="192.0.2.1"))
    assert claimed(with_default(tmp_path, lonely, host="::1"))[0] == f"http://[::1]:{lonely}"


CLAIM = """
import sys
from pathlib import Path
from accountant.settings import Settings
from web.stack import addresses, ports
settings = ports.claim(Settings(home=Path(sys.argv[1])), Path(sys.argv[1]))[1]
print(addresses.page_address(settings))
"""


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("ip link set lo up && ip address del 127.0.0.1/8 dev lo", "http://[::1]:8750"),
        ("ip link set lo up", "http://127.0.0.1:8750"),
    ],
    ids=["IPv6 alone", "both"],
)
def test_networks_of_their_own(tmp_path: Path, network: str, expected: str) -> None:
    apart = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    if shutil.which("ip") is None or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("this machine gives nobody a network of their own")
    command = f'{network} && exec "$0" -c "$1" "$2"'
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("EXCHEQUER_")
    }
    found = subprocess.run(
        [*apart, command, sys.executable, CLAIM, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert expected in found.stdout + found.stderr


def test_two_homes_come_up_at_the_same_moment_and_side_by_side(
    tmp_path: Path, made_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody chose a port; one temporary folder, as for one person on one machine."""
    for name in ("DATABASE_URL", "BROKER_URL", "EXCHEQUER_PORT"):
        monkeypatch.delenv(name, raising=False)
    stacks = [Settings(home=tmp_path / name) for name in ("one", "two")]
    for settings in stacks:
        settings.home.mkdir(mode=0o700)
        subprocess.run(["cp", "-a", made_once, settings.home / "postgres"], check=True)
    try:
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(up, stacks)
        assert one.address != two.address
        taken = Settings(home=tmp_path, port=int(one.address.rpartition(":")[2]))
        with pytest.raises(local.StackError, match=f"is taken by Exchequer of {stacks[0].home} "):
            claimed(taken)
        for status in (one, two):
            write_to_both(status)
        down(stacks[0])
        assert read_from_both(local.status(stacks[1])) == KEPT
        assert not urllib.request.urlopen(f"{two.address}/healthz").read()
        with listening(int(one.address.rpartition(":")[2])):
            assert up(stacks[0]).address not in (one.address, two.address)
    finally:
        for settings in stacks:
            down(settings)
            assert marked(settings.home) == []


def test_the_environment_replaces_servers(settings: Settings, tmp_path: Path) -> None:
    with local.Servers(tmp_path / "elsewhere") as other:
        theirs = make_settings(
            settings.home, DATABASE_URL=other.database_url, BROKER_URL=other.broker_url
        )
        status = up(theirs, (stand_in("relay"),))
        assert [process.name for process in status.processes] == ["relay"]
        assert status.database_url == other.database_url
        down(theirs)
        database(other.database_url).close()


def test_our_own_addresses_in_the_environment_replace_nothing(settings: Settings) -> None:
    """Somebody evaluates `environment` in a shell, then starts the stack from it."""
    urls = local.environment(settings)
    same = make_settings(
        settings.home, DATABASE_URL=urls["DATABASE_URL"], BROKER_URL=urls["BROKER_URL"]
    )
    assert {p.name for p in up(same, ()).processes} == set(SERVERS)


def test_every_setting_reaches_the_processes_as_it_is(tmp_path: Path) -> None:
    """Secrets and tables too: what is printed of them is not what they are."""
    stated = {
        "oidc_issuer": "https://login.example.org",
        "oidc_client_id": "exchequer",
        "oidc_client_secret": "a secret",
        "oidc_roles": {"privacy-team": "steward", "it's": "analyst"},
    }
    settings = make_settings(tmp_path / "home", **stated)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in local.environment(settings).items():
            patch.setenv(name, value)
        again = Settings()
    assert again.oidc_roles == settings.oidc_roles
    assert again.oidc_client_secret == settings.oidc_client_secret
    assert again.model_dump(include=set(stated)) == settings.model_dump(include=set(stated))


def test_a_reused_pid_is_left_alone(settings: Settings) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        up(settings, ())
        kill_supervisor(settings)
        record = state.read(settings.home)
        assert record is not None
        record.pid = stranger.pid  # as if the kernel had given the supervisor's pid away
        state.write(settings.home, record)
        assert not local.status(settings).running
        down(settings)
        assert stranger.poll() is None
        stranger.kill()


def test_stages_end_in_order_and_within_their_bounds(settings: Settings, tmp_path: Path) -> None:
    """The worker may finish its task; processes that don't end are killed."""
    told = tmp_path / "order"
    polite = f"""
import signal, sys, time
def end(*_):
    time.sleep(0.5)
    open({str(told)!r}, "a").write(sys.argv[-1] + " ")
    sys.exit()
signal.signal(signal.SIGTERM, end)
time.sleep(600)
"""
    argv = (sys.executable, "-c", polite)
    programs = (
        local.Program(name="generate", argv=(*argv, "worker"), stop_stage=2),
        local.Program(name="web", argv=(*argv, "web")),
        local.Program(name="relay", argv=(*argv, "relay"), stop_stage=1),
        stand_in(
            "checks",
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
            stop_stage=3,
            stop_seconds=0.5,
        ),
    )
    up(settings, programs)
    down(settings)
    assert told.read_text().split() == ["web", "relay", "worker"]


def test_a_celery_worker_is_ready_when_it_takes_messages(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "tiny.py").write_text(
        "import os, celery\n"
        "from workers.jobs.consumer import Alive\n"
        "app = celery.Celery(broker=os.environ['BROKER_URL'])\n"
        "app.steps['consumer'].add(Alive)\n"
        "@app.task(name='leave')\n"
        "def leave(text): open(os.path.join(os.environ['EXCHEQUER_HOME'], 'left'), "
        "'w').write(text)\n"
    )
    flags = f"--workdir {tmp_path} -A tiny worker -Q checks -c 1 -n checks@%h --loglevel WARNING"
    worker = local.Program(
        name="checks",
        argv=(sys.executable, "-m", "celery", *flags.split()),
        alive=True,
        stop_stage=2,
    )
    from celery import Celery

    status = up(settings, (worker,))
    Celery(broker=status.broker_url).send_task("leave", ["a note"], queue="checks")
    note = settings.home / "left"
    assert wait_until(lambda: note.exists() and note.read_text() == "a note", 10)


def test_logs_keep_within_a_bound(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = processes.log_path(tmp_path, "web")
    with open(log, "ab") as writer:
        writer.write(b"x" * 2000)
        writer.flush()
        processes.rotate_logs(tmp_path, 1000)
        writer.write(b"after")
    assert log.read_bytes() == b"after"
    assert log.with_suffix(".log.1").stat().st_size == 2000


def test_the_record_holds_no_password(settings: Settings) -> None:
    """Addresses of replaced servers may hold one; they reach no file."""
    with local.Servers(settings.home / "elsewhere") as other:
        secret = other.database_url.replace("exchequer@", "exchequer:hunter2@")
        theirs = make_settings(settings.home, DATABASE_URL=secret)
        status = up(theirs, ())
        assert "hunter2" not in repr(status)
        for path in (settings.home / "run").iterdir():
            assert "hunter2" not in path.read_text()
        json.loads((settings.home / "run" / "stack.json").read_text())
        down(theirs)


def test_compose_has_no_password_of_its_own() -> None:
    """Each is a file of those that need it: no environment, command or health check names or holds
    one.
    """
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = composed["services"]
    assert set(services) == {
        "certificates", "postgres", "broker", "migrate", "web", "worker", "checks", "relay",
        "signer",
    }  # fmt: skip
    assert all(set(source) == {"environment"} for source in composed["secrets"].values())
    variables = {source["environment"] for source in composed["secrets"].values()}
    assert len(variables) == len(composed["secrets"])
    for name, service in services.items():
        told = json.dumps({key: value for key, value in service.items() if key != "secrets"})
        named = [each for each in variables if re.search(rf"\$\{{?{each}\b", told)]
        assert not named, (name, named)
        assert "$BROKER_URL" not in told  # an address in the arguments of a process
    assert (
        services["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"]
        == "/run/secrets/postgres_password"
    )
