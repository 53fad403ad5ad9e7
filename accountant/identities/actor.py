"""The actor of a request: a person with their roles."""

from dataclasses import dataclass
from uuid import UUID

from accountant.core.errors import NotPermitted


@dataclass(frozen=True)
class Actor:
    """A signed-in person. The name goes into entries; the roles were read at sign-in."""

    id: UUID
    name: str
    roles: frozenset[str]

    def require(self, *roles: str) -> None:
        """Raise NotPermitted unless the actor has one of `roles`."""
        if not self.roles & set(roles):
            raise NotPermitted(f"this needs the role {' or '.join(roles)}")
