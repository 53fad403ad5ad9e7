"""What a command needs to be installed: a wheel holds the client alone."""

import importlib.util

from web.cli.output import Failed
from web.version import DISTRIBUTION, ROOT, is_checkout


def require(user: str, *packages: str) -> None:
    """Check that this is a checkout in which these packages are installed.

    `user` names the command or part that needs them. Raises Failed with what to do.
    """
    if not is_checkout():
        raise Failed(
            f"{user} needs the service, and this is its client alone (the package {DISTRIBUTION}). "
            "Run it in a clone of Exchequer's repository, where `make demo` installs everything."
        )
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise Failed(
                f"{name} is not installed, and {user} needs it. `make demo` in {ROOT} installs "
                "everything."
            )
