"""The base of all public fields, and the types that they share.

A decimal is a text on the wire and a number here, exact in both; a time likewise. `document` is the
JSON of an answer: a field that its reader may not see is never set, and is not in it.
"""

import decimal
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema

from accountant.core.states import JOB_STATES


class Amount(decimal.Decimal):
    """A decimal whose text has every digit and no exponent."""

    def __str__(self) -> str:
        return super().__format__("f")

    def __format__(self, spec: str, _: decimal.Context | None = None, /) -> str:
        return super().__format__(spec or "f")


def _amount(value: Any) -> Amount:
    try:
        return Amount(value)
    except (decimal.InvalidOperation, TypeError):
        raise ValueError("no decimal") from None


_AMOUNT = {
    "type": "string",
    "pattern": r"^-?[0-9]+(\.[0-9]+)?$",
    "description": "a decimal: every digit counts",
}
_TIME = {"type": "string", "format": "date-time", "description": "RFC 3339, in UTC"}

Decimal = Annotated[
    Amount, PlainValidator(_amount), PlainSerializer(str, return_type=str), WithJsonSchema(_AMOUNT)
]
Time = Annotated[
    datetime, PlainSerializer(datetime.isoformat, return_type=str), WithJsonSchema(_TIME)
]
#: As the entries of a ledger are hashed with it: to the microsecond, ending in Z.
ChainTime = Annotated[
    datetime,
    PlainSerializer(
        lambda at: at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), return_type=str
    ),
    WithJsonSchema(_TIME),
]
Id = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
State = Annotated[str, Field(json_schema_extra={"enum": list(JOB_STATES)})]
Checked = Literal["checking", "ready", "invalid"]
Json = dict[str, Any]


class Answer(BaseModel):
    """Base of every answer. Indexed, it is its JSON document; its attributes have the types of
    Python.

    Fields that a newer server adds are left out.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    def document(self) -> Json:
        """Return the JSON document: what was set, and nothing that was not."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def __getitem__(self, name: str) -> Any:
        return self.document()[name]

    def __contains__(self, name: str) -> bool:
        return name in self.document()


def documents(answers: Iterable[Answer]) -> list[Json]:
    """Return the JSON documents of several."""
    return [answer.document() for answer in answers]
