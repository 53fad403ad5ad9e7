"""Events with batches that nobody knows, and the same events for whoever does."""

from collections import Counter
from functools import lru_cache

from accountant.core.privacy.events import Allocation, Event, from_releases, releases


@lru_cache(maxsize=4096)
def has_secret_batches(event: Event) -> bool:
    """Return True if the price of the event counts on nobody knowing in which batch a unit lies."""
    return any(isinstance(release, Allocation) for release in releases(event))


def with_known_batches(event: Event) -> Event:
    """Return the event for whoever holds the key of the coins: every batch is known."""
    counts: Counter[Event] = Counter()
    for leaf, count in releases(event).items():
        plain = leaf.plain if isinstance(leaf, Allocation) else leaf
        for release, times in releases(plain).items():
            counts[release] += count * times
    return from_releases(counts)
