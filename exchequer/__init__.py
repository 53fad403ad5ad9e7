"""The Python client of the service, under the name that it is installed by. See web.client."""

from web.client import *  # noqa: F403
from web.client import __all__ as __all__
