"""Datasets, models, corpora, uploads, mechanisms."""

from collections.abc import Mapping
from typing import Any, BinaryIO

from web.client.errors import Json
from web.client.transport import Transport, document, given, part

_BLOCK_BYTES = 2**16


class DataRoutes(Transport):
    """Routes for datasets, models and other registered data, and for mechanisms."""

    def datasets(
        self, *, q: str | None = None, mechanism: str | None = None, open: bool | None = None
    ) -> list[Json]:
        """Return the catalogue: all words of `q`, admitting `mechanism`, `open` to you now."""
        wanted = {"q": q, "mechanism": mechanism, "open": "true" if open else None}
        return list(self._pages("/datasets", "datasets", wanted))

    def dataset(self, name: str) -> Json:
        """Return one dataset with its account."""
        return self._json("GET", f"/datasets/{part(name)}")

    def add_dataset(self, declaration: Mapping[str, Any]) -> Json:
        """Register a dataset; a worker then checks its data (state: checking, ready, invalid)."""
        return self._json("POST", "/datasets", json=dict(declaration))

    def correct_dataset(self, name: str, **changes: Any) -> Json:
        """Declare a refused dataset again: another uri, text_template, label_column, ..."""
        return self._json("POST", f"/datasets/{part(name)}/data", json=changes)

    def add_version(self, name: str, uri: str, **layout: Any) -> Json:
        """Add data to a dataset, on the same account; `layout`: text_template, label_column."""
        return self._json("POST", f"/datasets/{part(name)}/versions", json={"uri": uri, **layout})

    def meaning(self, epsilon: str, delta: str, **of: str) -> Json:
        """Return the bound on a guesser for an (ε, δ). `of`: neighbours, unit."""
        return self._json("GET", "/meaning", params={"epsilon": epsilon, "delta": delta, **of})

    def preview_allowance(
        self, name: str, epsilon: str | None, delta: str | None, **others: Any
    ) -> Json:
        """Return every limit before and after an allowance; nothing is written (stewards)."""
        body = {"epsilon": epsilon, "delta": delta, "reason": "", **others}
        path = f"/datasets/{part(name)}/allowance/preview"
        return self._json("POST", path, json=body, repeat=True)

    def policy(self, name: str) -> Json:
        """Return a dataset's policy alone."""
        return self._json("GET", f"/datasets/{part(name)}/policy")

    def set_policy(self, name: str, policy: Mapping[str, Any], *, seen: str | None = None) -> Json:
        """Replace a dataset's policy: the dataset, or {"decision": ...} where that takes two
        people.

        `seen`: the ETag of the policy that was read (`tagged_policy`); ApiProblem with the code
        `changed` where it is another by now. Without it the last one wins.
        """
        headers = given({"If-Match": seen})
        return self._json(
            "PUT", f"/datasets/{part(name)}/policy", json=dict(policy), headers=headers
        )

    def tagged_policy(self, name: str) -> tuple[Json, str]:
        """Return a dataset's policy, and its ETag."""
        response = self._send("GET", f"/datasets/{part(name)}/policy")
        return dict(document(response)), response.headers.get("ETag", "*")

    def spending(self, name: str) -> Json:
        """Return what is left over time, and how it was spent, for every currency."""
        return self._json("GET", f"/datasets/{part(name)}/spending")

    def allow(
        self, name: str, epsilon: str | None, delta: str | None, reason: str, **others: Any
    ) -> Json:
        """Set a dataset's allowance. Amounts are decimal texts: no digit is lost on the way.

        `others`: shares, order, ex_post, ex_post_settlement, secret.
        """
        body = {"epsilon": epsilon, "delta": delta, "reason": reason, **others}
        return self._json("POST", f"/datasets/{part(name)}/allowance", json=body)

    def quote(
        self,
        dataset: str,
        mechanism: str,
        parameters: Mapping[str, Any],
        *,
        fit: str | None = None,
        epsilon: float | None = None,
        project: str | None = None,
        share: float | None = None,
        model: str | None = None,
    ) -> Json:
        """Return the price of a request on a dataset and what admission would say now; changes
        nothing.

        `share`: as if only this part of what is left, above 0 to 1, were there. `model`: the one
        that would run it; the answer says how long such jobs took on the service.
        """
        body: Json = {"mechanism": mechanism, "parameters": dict(parameters)}
        body |= given(
            {"fit": fit, "epsilon": epsilon, "project": project, "share": share, "model": model}
        )
        return self._json("POST", f"/datasets/{part(dataset)}/quote", json=body, repeat=True)

    def proposal(
        self,
        dataset: str,
        goal: str = "texts",
        *,
        share: float | None = None,
        model: str | None = None,
        project: str | None = None,
    ) -> Json:
        """Return what to ask for on a dataset to reach a goal, and what that would be worth.

        `share`: the part of what is left that it may spend, above 0 to 1; without one, the smallest
        of a few whose proposal is good.
        """
        query = given({"goal": goal, "share": share, "model": model, "project": project})
        return self._json("GET", f"/datasets/{part(dataset)}/proposal", params=query)

    def models(self) -> list[Json]:
        """Return registered models."""
        return list(self._pages("/models", "models", {}))

    def model(self, name: str) -> Json:
        """Return one model."""
        return self._json("GET", f"/models/{part(name)}")

    def add_model(
        self,
        name: str,
        path: str,
        trained_on: str,
        kind: str = "language",
        endpoint: Mapping[str, Any] | None = None,
    ) -> Json:
        """Register a model, `language`, `embedding` or `endpoint`; a worker then looks at it."""
        body: Json = {"name": name, "path": path, "trained_on": trained_on, "kind": kind}
        body |= given({"endpoint": None if endpoint is None else dict(endpoint)})
        return self._json("POST", "/models", json=body)

    def corpora(self) -> list[Json]:
        """Return registered public corpora."""
        return list(self._pages("/corpora", "corpora", {}))

    def corpus(self, name: str) -> Json:
        """Return one corpus."""
        return self._json("GET", f"/corpora/{part(name)}")

    def add_corpus(self, declaration: Mapping[str, Any]) -> Json:
        """Register a public or consented corpus; a worker then reads it through."""
        return self._json("POST", "/corpora", json=dict(declaration))

    def mechanisms(self) -> list[Json]:
        """Return the mechanisms."""
        return self._list("/mechanisms", "mechanisms")

    # --- uploads
    # ------------------------------------------------------------------------------------

    def upload(self, file: BinaryIO, size: int, name: str | None = None) -> Json:
        """Keep a file of `size` bytes as a dataset's or a corpus's data: {address, sha256, columns,
        ...}.

        `name` is what lists show it as.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        blocks = iter(lambda: file.read(_BLOCK_BYTES), b"")
        return self._json(
            "POST", "/uploads", params={"name": name}, content=blocks, headers=headers
        )

    def uploads(self) -> list[Json]:
        """Return files that are kept, with what was registered with them (stewards)."""
        return list(self._pages("/uploads", "uploads", {}))

    def uploaded(self, sha256: str) -> Json:
        """Return one file that is kept."""
        return self._json("GET", f"/uploads/{part(sha256)}")

    def discard_upload(self, sha256: str) -> Json:
        """Destroy a file that nothing was registered with."""
        return self._json("DELETE", f"/uploads/{part(sha256)}")
