"""Every route of /api/v1 as a method, with JSON documents as they come; the command line is built
on it.

    with Api("http://127.0.0.1:8750", token) as api:
        job = api.submit({"dataset": "reviews", ...}, key="monday-1")

`web.client.Client` gives the same as typed objects. The methods are in web.client.routes.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import httpx2

from accountant.core.errors import ExchequerError
from web.client.errors import ApiProblem, InvalidRequest, NotFound
from web.client.routes.data import DataRoutes
from web.client.routes.jobs import DecidingRoutes, JobRoutes
from web.client.routes.ledger import LedgerRoutes
from web.client.routes.people import NoticeRoutes, PeopleRoutes


class Api(PeopleRoutes, DataRoutes, JobRoutes, DecidingRoutes, LedgerRoutes, NoticeRoutes):
    """All routes. Methods raise the errors of web.client.errors, with names that are close."""

    def _send(
        self,
        method: str,
        path: str,
        *,
        repeat: bool | None = None,
        stream: bool = False,
        **options: Any,
    ) -> httpx2.Response:
        try:
            return super()._send(method, path, repeat=repeat, stream=stream, **options)
        except (NotFound, InvalidRequest) as error:
            error.near = tuple(self._near(error, path, options.get("json") or {}))
            raise

    def _near(self, error: ApiProblem, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Yield names close to those that a refused request uses and nothing has."""
        names_of = [
            (f"{p.field}s", body.get(p.field))
            for p in error.problems
            if p.field in ("dataset", "model")
        ]
        segments = path.split("/")
        if error.status == 404 and segments[1] == "datasets" and segments[2:]:
            names_of.append(("datasets", unquote(segments[2])))
        for kind, name in names_of:
            try:
                listed = super()._send("GET", f"/{kind}").json()[kind]
                by_folded = {str(row["name"]).casefold(): str(row["name"]) for row in listed}
            except (ExchequerError, ValueError, LookupError, TypeError):
                continue  # the first error says what matters
            if isinstance(name, str) and name not in by_folded.values():
                yield from (
                    by_folded[match]
                    for match in difflib.get_close_matches(name.casefold(), by_folded)
                )
