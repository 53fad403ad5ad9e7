"""Webhooks: addresses that are told when something changes."""

from collections.abc import Iterator

from web.client.errors import Json
from web.client.transport import Transport, part


class HookRoutes(Transport):
    """One's own webhooks."""

    def webhook_events(self) -> list[Json]:
        """Return the events that a webhook may subscribe to, and who may see each."""
        return self._list("/webhooks/events", "events")

    def webhooks(self) -> list[Json]:
        """Your webhooks."""
        return self._list("/webhooks", "webhooks")

    def webhook(self, hook_id: str) -> Json:
        """One of your webhooks."""
        return self._json("GET", f"/webhooks/{part(hook_id)}")

    def add_webhook(self, url: str, events: list[str], *, kind: str = "webhook") -> Json:
        """Register a webhook; the answer has its secret, shown this once. `kind`: webhook, chat, mail."""
        return self._json("POST", "/webhooks", json={"url": url, "events": events, "kind": kind})

    def remove_webhook(self, hook_id: str) -> Json:
        """Forget a webhook and its secret; what was not sent yet is not sent."""
        return self._json("DELETE", f"/webhooks/{part(hook_id)}")

    def act_on_webhook(self, hook_id: str, act: str) -> Json:
        """`act`: enable, disable, test, or secret (a new one, shown once)."""
        return self._json("POST", f"/webhooks/{part(hook_id)}/{part(act)}")

    def deliveries(self, hook_id: str) -> Iterator[Json]:
        """Yield deliveries, newest first."""
        path = f"/webhooks/{part(hook_id)}/deliveries"
        return self._pages(path, "deliveries", {})

    def redeliver(self, hook_id: str, delivery_id: str) -> Json:
        """Send a message again, under the same id."""
        return self._json("POST", f"/webhooks/{part(hook_id)}/deliveries/{part(delivery_id)}/redeliver")
