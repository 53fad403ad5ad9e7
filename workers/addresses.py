"""Resolution of a registered host name: done once, and every address it has is checked."""

import socket
from collections.abc import Sequence
from ipaddress import ip_address

from accountant.core import webhook_rules
from accountant.core.webhook_rules import Network, Target


def addresses(target: Target, allowed: Sequence[Network]) -> list[str]:
    """Return a target's addresses. Raises InvalidRequest for a forbidden one, OSError for none."""
    infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    names = list(dict.fromkeys(str(info[4][0]) for info in infos))
    for name in names:
        address = ip_address(name)
        inside = target.scheme == "http" and not address.is_loopback
        if inside or not webhook_rules.may_reach(address, allowed):
            raise webhook_rules.unreachable()
    return names
