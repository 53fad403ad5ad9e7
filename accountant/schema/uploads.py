"""The fields of files that people sent."""

from pydantic import Field

from accountant.schema.base import Answer, Sha256, Time


class Upload(Answer):
    """A file that is kept."""

    address: str = Field(description="for `uri` of a dataset or corpus")
    name: str | None = Field(None, description="as its sender called it; for display alone")
    sha256: Sha256
    format: str
    compression: str | None
    bytes: int
    uncompressed_bytes: int
    columns: list[str]
    uploaded_by: str
    uploaded_at: Time
    datasets: list[str] = Field(description="that were registered with it")
    expires_at: Time | None = Field(description="when it is destroyed; null: something names it")


class Discarded(Answer):
    """A file that is gone."""

    sha256: Sha256
    removed: bool
