"""The Python client, which people import as `exchequer`.

Needs no more than httpx2, pydantic, tenacity and rich; pandas only for `to_pandas`.
"""

from accountant.core.errors import ExchequerError
from accountant.schema.jobs import Artifact
from accountant.schema.ledgers import Entry
from accountant.schema.models import Corpus, Mechanism, Model
from accountant.schema.people import Me as Person
from web.client.api import Api
from web.client.charges import Charge, Runner, dp_sgd, opendp
from web.client.charts import Chart
from web.client.client import Client, connect
from web.client.datasets import Dataset
from web.client.errors import (
    ApiProblem,
    Conflict,
    Forbidden,
    InvalidRequest,
    JobFailed,
    NotFound,
    NotSignedIn,
    RateLimited,
    Refused,
    ServiceUnavailable,
    StillWaiting,
    Unreachable,
    Unreadable,
)
from web.client.facts import Budget, Quote
from web.client.files import Altered
from web.client.jobs import Job, NoMlflow, NoPandas
from web.client.profiles import NoSuchProfile, Profile

__all__ = [
    "Altered",
    "Api",
    "ApiProblem",
    "Artifact",
    "Budget",
    "Charge",
    "Chart",
    "Client",
    "Conflict",
    "Corpus",
    "Dataset",
    "Entry",
    "ExchequerError",
    "Forbidden",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "Mechanism",
    "Model",
    "NoMlflow",
    "NoPandas",
    "NoSuchProfile",
    "NotFound",
    "NotSignedIn",
    "Person",
    "Profile",
    "Quote",
    "RateLimited",
    "Refused",
    "Runner",
    "ServiceUnavailable",
    "StillWaiting",
    "Unreachable",
    "Unreadable",
    "connect",
    "dp_sgd",
    "opendp",
]
