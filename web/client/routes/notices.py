"""Notices: addresses that are told when something changes."""

from web.client.errors import Json
from web.client.transport import Transport, part


class NoticeRoutes(Transport):
    """Addresses for notices, which administrators set."""

    def notice_events(self) -> list[Json]:
        """Return the events that an address may be told of, and who may see each."""
        return self._list("/notices/events", "events")

    def notices(self) -> list[Json]:
        """Return your addresses, or all of them for an administrator."""
        return self._list("/notices", "notices")

    def add_notice(self, url: str, events: list[str], *, kind: str, person: str) -> Json:
        """Set an address for a person, who decides what it is told. `kind`: mail, chat, teams or
        json.
        """
        body = {"url": url, "events": events, "kind": kind, "person": person}
        return self._json("POST", "/notices", json=body)

    def remove_notice(self, notice_id: str) -> Json:
        """End the notices to an address; what was not sent yet is not sent."""
        return self._json("DELETE", f"/notices/{part(notice_id)}")

    def test_notice(self, notice_id: str) -> Json:
        """Send a message that says nothing."""
        return self._json("POST", f"/notices/{part(notice_id)}/test")
