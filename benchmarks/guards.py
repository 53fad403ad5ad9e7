"""What the owner's triggers cost admission: `python -m benchmarks.guards [--seconds S] [--repeats
N]`.

Admissions per second of `benchmarks.admission` on one hot dataset, with the guards on entries and
balances and without them, in turn on one database, as the role of the web process; medians, and
their ratio.
"""

import argparse
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from accountant.database import connect, migrate
from benchmarks.admission import DATASETS, Ground, Rate, median, new_ground, rate, server
from web.stack.addresses import ROLES

GUARDS = (("entries", "entries_guard"), ("accounts", "accounts_guard"))


def switch(ground: Ground, act: str) -> None:
    """ENABLE or DISABLE the guards, as their owner."""
    engine = create_engine(ground.owner_url)
    with engine.begin() as connection:
        for table, trigger in GUARDS:
            connection.execute(text(f"ALTER TABLE {table} {act} TRIGGER {trigger}"))
    engine.dispose()


def main() -> None:
    """Print a line for each number of clients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--home", type=Path, help="where the server's folder is made: a real disk")
    asked = parser.parse_args()
    with server(asked.home) as (servers, folder):
        ground = new_ground(servers, folder, DATASETS)
        web = (
            make_url(servers.owner_url)
            .set(username=ROLES["web"])
            .render_as_string(hide_password=False)
        )
        migrate(servers.owner_url, servers.database_url, {"web": web})
        ground.engine.dispose()
        ground.engine = connect(web, pool_size=30)
        for clients in (1, 20):
            found: dict[str, list[Rate]] = {"ENABLE": [], "DISABLE": []}
            for _ in range(asked.repeats):
                for act, rates in found.items():
                    switch(ground, act)
                    rates.append(
                        rate(
                            lambda _, number: ground.submit(ground.datasets[0], number),
                            clients,
                            asked.seconds,
                        )
                    )
            guarded, bare = (median(found[act]).per_second for act in found)
            print(
                f"{clients:3} clients: {guarded:.0f} admissions/s with the guards, {bare:.0f} "
                "without, "
                f"ratio {guarded / bare:.2f}",
                flush=True,
            )
        ground.engine.dispose()


if __name__ == "__main__":
    main()
