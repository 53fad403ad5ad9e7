"""Shared parts of the web's tests: a REST client, a browser without scripts, and a site with
people.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import Engine

from accountant.identities import credentials
from accountant.identities.actor import Actor
from tests.support import Bench, person

PASSWORD = "correct horse battery"


class Api:
    """One person's REST client."""

    def __init__(self, app: Flask, token: str | None) -> None:
        self.client = app.test_client()
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, **options: Any) -> Any:
        return self.client.get(f"/api/v1{path}", headers=self.headers, **options)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(f"/api/v1{path}", json=body, headers=self.headers | named)

    def put(self, path: str, body: Any) -> Any:
        return self.client.put(f"/api/v1{path}", json=body, headers=self.headers)

    def raw(self, path: str, data: bytes) -> Any:
        return self.client.post(f"/api/v1{path}", data=data, headers=self.headers)


class Pages:
    """One person's browser: forms go out with the token that their page carried."""

    def __init__(self, app: Flask) -> None:
        self.client: FlaskClient = app.test_client()

    def get(self, path: str) -> Any:
        return self.client.get(path)

    def token(self, path: str, name: str = "csrf_token") -> str:
        found = re.search(rf'name="{name}" value="([^"]+)"', self.client.get(path).text)
        assert found, f"{path} has no form"
        return found[1]

    def post(self, path: str, page: str, /, **values: str) -> Any:
        return self.client.post(path, data={"csrf_token": self.token(page), **values})

    def sign_in(self, name: str, password: str = PASSWORD) -> Any:
        return self.post("/sign-in", "/sign-in", name=name, password=password)


@dataclass
class Site:
    """A dataset with its people, each with an API client and a browser."""

    app: Flask
    engine: Engine
    bench: Bench
    password_hash: str
    people: dict[str, Actor] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        """The results folder of the service."""
        return Path(self.app.extensions["exchequer"]["settings"].results)

    def actor(self, who: str) -> Actor:
        """`who` is a role of the bench, or a new person whose role is the word before '-'."""
        if who not in self.people:
            known = getattr(self.bench, who, None)
            actor = (
                known if isinstance(known, Actor) else person(self.engine, who.partition("-")[0])
            )
            credentials.set_password(self.engine, actor.id, self.password_hash)
            self.people[who] = actor
        return self.people[who]

    def api(self, who: str) -> Api:
        return Api(self.app, credentials.add_token(self.engine, self.actor(who).id, "test", None))

    def pages(self, who: str) -> Pages:
        browser = Pages(self.app)
        assert browser.sign_in(self.actor(who).name).status_code == 303
        return browser

    @property
    def dataset(self) -> str:
        return f"/datasets/{self.bench.dataset}"

    def job(self, tokens: int = 10, **values: object) -> dict[str, Any]:
        """The body of a request that is right."""
        body = {
            "dataset": self.bench.dataset,
            "mechanism": "private-prediction",
            "model": self.bench.model,
            "parameters": {"tokens_per_batch": tokens},
            "purpose": "a test",
        }
        return body | values

    def submitted(self, who: str = "analyst", tokens: int = 10) -> str:
        """A job of `who` that awaits approval."""
        answer = self.api(who).post("/jobs", self.job(tokens))
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json["id"]
        return job_id
