"""The metadata that all tables share, and their commonest columns."""

from decimal import Decimal
from typing import Any

from sqlalchemy import Column, DateTime, Integer, MetaData, Numeric, TypeDecorator, Uuid, func

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Units(TypeDecorator[int]):
    """An exact integer amount of up to 38 digits."""

    impl = Numeric(38, 0)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> Decimal | None:  # noqa: ARG002
        if isinstance(value, float):
            raise TypeError("a balance is never a float")
        return None if value is None else Decimal(value)

    def process_result_value(self, value: Decimal | None, dialect: Any) -> int | None:  # noqa: ARG002
        return None if value is None else int(value)


def moment(name: str, *, required: bool = False, default: bool = False) -> Column[Any]:
    """A point in time; by `default` when the row is written, by the server's clock."""
    server_default = func.clock_timestamp() if default else None
    nullable = not (required or default)
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=server_default)


def key() -> Column[Any]:
    """A random number that the writer makes."""
    return Column("id", Uuid, primary_key=True)


def count(name: str) -> Column[Any]:
    """How many; at first none."""
    return Column(name, Integer, nullable=False, server_default="0")


def units(name: str) -> Column[Any]:
    """An exact amount; at first nothing."""
    return Column(name, Units, nullable=False, server_default="0")
