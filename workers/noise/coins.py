"""Private draws of who takes part, by the operating system's entropy.

Called by their module's name (`coins.heads(rate)`), so that tests can decide them.
"""

import secrets
from random import SystemRandom


def heads(rate: float) -> bool:
    """Return a coin that shows heads with probability `rate`, exactly."""
    numerator, denominator = rate.as_integer_ratio()  # the denominator is a power of two
    return secrets.randbits(denominator.bit_length() - 1) < numerator if denominator > 1 else True


def places(many: int, count: int) -> list[int]:
    """Return `count` of 0 to many - 1 without replacement, each set equally likely."""
    return SystemRandom().sample(range(many), count)
