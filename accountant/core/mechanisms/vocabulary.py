"""The price of `vocabulary`: nothing. A public job, which reads a registered corpus and never a
dataset.

A term list says which words and word sequences there are to count. Made of a public corpus it tells
nothing of anybody; `dp-kps` and others then count its terms in records, every one of them, seen or
not.
"""

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms

#: What the list is to a mechanism that reads it.
TERM_LIST = "term-list"


class Vocabulary(Parameters):
    """Parameters of `vocabulary`."""

    corpus: str = Field(min_length=1, max_length=63, description="the name of a public corpus here")
    words: int = Field(3, ge=1, le=5, description="words of a term, at most")
    least_documents: int = Field(5, ge=1, le=10**9, description="terms of fewer texts are left out")
    most_documents: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="words of more texts are left out, and terms that begin or end with one; "
        "nothing: none",
    )
    function_words: bool = Field(
        False,
        description="keep words such as the, of and was (a public English list), and terms that "
        "begin or end with one",
    )
    most_terms: int = Field(
        20_000, ge=1, le=1_000_000, description="the terms of most texts are kept"
    )
    most_texts: int = Field(
        1_000_000, ge=1, le=10**9, description="texts of the corpus that are read"
    )


def price(_: Vocabulary, __: Terms) -> Price:
    """Return nothing, in every currency."""
    return Price(FREE, ("public texts only: free",))


def resolve(parameters: Vocabulary, _: Terms) -> Vocabulary:
    """Refuse counts that no term can have."""
    most = parameters.most_documents
    if most is not None and most < parameters.least_documents:
        least = parameters.least_documents
        raise invalid(
            "most_documents", f"{most} is below least_documents", f"{least} or more, or nothing"
        )
    return parameters


MECHANISM = Mechanism(
    id="vocabulary",
    title="Vocabulary",
    summary="Lists the terms of a public corpus with the number of texts that have them; reads no "
    "records.",
    source="the public vocabulary of paper 002, section 2",
    parameters=Vocabulary,
    price=price,
    resolve=resolve,
    context_tokens=lambda _parameters, _template_tokens: 0,
    size_field="most_terms",
    uses_model=False,
    progress_unit="passes",
    resources=lambda _: {"corpus": "corpus"},
    public=True,
    runner="workers.mechanisms.vocabulary",
    groups={
        "Size and privacy": "corpus words least_documents most_documents function_words "
        "most_terms most_texts",
    },
    order=10,
    goal="preparation",
    advice="the list of terms that dp-kps counts, from a public corpus",
    plain="corpus most_terms",
    example={"corpus": "public-reviews"},
    artifacts={"terms": "terms with the number of texts that have each"},
    releases=(TERM_LIST,),
)
