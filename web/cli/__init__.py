"""The `exchequer` command. One file each: price, the stack and people, datasets and models, jobs, ledger.

Nothing imported here loads torch, pyarrow, SQLAlchemy or Flask: commands that run a part of the local
stack import it when they are called, and all others speak to the web service.
"""

from web.cli.commands import app


def main() -> None:
    """Entry point of the `exchequer` command."""
    app()


__all__ = ["app", "main"]
