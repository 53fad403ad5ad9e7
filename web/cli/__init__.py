"""The `exchequer` command. One file each: price, the stack and people, datasets and models, jobs,
ledger.

Nothing imported here loads torch, pyarrow, SQLAlchemy or Flask: commands that run a part of the
local stack import it when they are called, and all others speak to the web service.
"""

import errno
import os
import sys


def main() -> None:
    """Run the `exchequer` command. It says in a sentence if a library can't be loaded."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell closed it
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    try:
        from web.cli.commands import app
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImportError, OSError) as error:
        few = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        remedy = "Run `ulimit -n 1024` first." if few else "Install Exchequer again."
        sys.exit(f"exchequer: can't start: {error}. {remedy}")
    try:
        app()
    finally:
        # output that a full disk refused is thrown away: Python would try again at exit
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
