"""A mechanism for tests that says it is public, and tries to open a dataset."""

from collections.abc import Iterator

from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms

NAME = "peek"


class Peek(Parameters):
    """`path`: what it tries to open, and `how`."""

    path: str
    how: str = "read"


MECHANISM = Mechanism(
    id=NAME,
    title="Peek",
    summary="For tests.",
    source="none",
    parameters=Peek,
    price=lambda *_: Price(FREE),
    resolve=lambda parameters, _: parameters,
    context_tokens=lambda *_: 0,
    size_field="path",
    uses_model=False,
    runner="tests.peeks",
    public=True,
)


class Runner:
    """Opens what it may not."""

    def total(self, parameters: Peek, terms: Terms) -> int:
        return 1

    def make(self, parameters: Peek, terms, model, progress, public) -> Iterator[object]:
        from workers.data import corpora, records
        from workers.interface import Text

        match parameters.how:
            case "read":
                found = records.read(parameters.path, records.Layout("{text}"), b"k" * 32).records
            case "rows":
                found = list(records.rows(parameters.path, ["text"]))
            case "corpus":
                found = list(corpora.Corpus("mine", parameters.path, "{text}").texts())
            case _:
                found = []
        yield Text(f"{len(found)} records: {found[:1]}")
