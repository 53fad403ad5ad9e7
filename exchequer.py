"""The Python client, by the name that people import.

    import exchequer

    client = exchequer.connect()                     # who `exchequer login` signed in
    dataset = client.dataset("notes")
    job = dataset.submit("noisy-count", {"epsilon": 0.1}, purpose="how many of each")
    job.wait().to_pandas()

In a wheel this is the package that everything lies in.
"""

from web.client import *  # noqa: F403
from web.client import __all__  # noqa: F401
