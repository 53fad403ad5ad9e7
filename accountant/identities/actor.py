"""Who asks: a person and what they may do."""

from dataclasses import dataclass
from uuid import UUID

from accountant.core.errors import NotPermitted


@dataclass(frozen=True)
class Actor:
    """Who acts: the name goes into the entry, the roles were checked when they signed in."""

    id: UUID
    name: str
    roles: frozenset[str]

    def require(self, *roles: str) -> None:
        """Raise NotPermitted unless the actor has one of `roles`."""
        if not self.roles & set(roles):
            raise NotPermitted(f"this needs the role {' or '.join(roles)}")
