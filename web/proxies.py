"""Proxies before the service: what they say of a request counts, and what anybody else says does
not.

A request is a proxy's where it comes from one of `proxy_addresses`; `trusted_proxies` of them stand
in a row. Each appends the address that asked it to X-Forwarded-For; the last that is no proxy's is
the client's.
"""

import ipaddress
import re
import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from accountant.settings import PATH, Settings

#: What ProxyFix reads of a request that is a proxy's.
_READ = (
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PREFIX",
)
#: Headers by which gunicorn believes a neighbour that TLS ended before it.
_TLS = ("HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_PROTOCOL", "HTTP_X_FORWARDED_SSL")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(stated: str) -> tuple[Network, ...]:
    """Return the networks of a setting. Raises RuntimeError naming what is none."""
    networks = []
    for network_text in filter(None, (part.strip() for part in stated.split("|"))):
        try:
            networks.append(ipaddress.ip_network(network_text, strict=False))
        except ValueError:
            raise RuntimeError(
                f"EXCHEQUER_PROXY_ADDRESSES: {network_text!r} is no address or network; allowed: "
                "such as 10.0.0.5|10.1.0.0/16"
            ) from None
    return tuple(networks)


class Proxies:
    """WSGI middleware that takes away what no proxy said, and hands on what one did."""

    def __init__(self, application: Any, settings: Settings) -> None:
        self.application = application
        self.behind = ProxyFix(application, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self.hops = settings.trusted_proxies
        self.networks = networks(settings.proxy_addresses)
        self.public_host = (
            "" if settings.public_url is None else urlsplit(settings.public_url).netloc
        )

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request as it came, or as the proxies before the service say that it came."""
        passed = self._passed(environ)
        stated = {name: values for name in _READ if (values := _values(environ, name))}
        tls = isinstance(environ.get("gunicorn.socket"), ssl.SSLSocket)
        if not passed and not tls and any(name in environ for name in _TLS):
            environ["wsgi.url_scheme"] = "http"
        for name in [
            variable_name
            for variable_name in environ
            if variable_name.startswith("HTTP_X_FORWARDED_")
        ]:
            del environ[name]
        environ.pop("HTTP_FORWARDED", None)
        if not passed:
            answer: Iterable[bytes] = self.application(environ, start_response)
            return answer
        for name, values in stated.items():
            environ[name] = values[-min(passed, len(values))]
        self._choose_host(environ)
        return self.behind(environ, start_response)

    def _passed(self, environ: dict[str, Any]) -> int:
        """Return the number of proxies that a request passed."""
        chain = _values(environ, "HTTP_X_FORWARDED_FOR")
        address, passed = environ.get("REMOTE_ADDR", ""), 0
        while passed < self.hops and self._is_proxy(address):
            passed += 1
            if not chain:
                break
            address = chain.pop()
        return passed

    def _is_proxy(self, stated: str) -> bool:
        if stated in ("", "localhost"):  # a Unix socket has no address
            stated = "127.0.0.1"
        try:
            address = ipaddress.ip_address(stated)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self.networks)

    def _choose_host(self, environ: dict[str, Any]) -> None:
        """Take the host of the public address, or else of the proxy.

        A proxy that hands the client's Host on leaves the client's X-Forwarded-Host alone as a
        rule. One that asks under the service's own address has to say the other.
        """
        if self.public_host:
            environ["HTTP_X_FORWARDED_HOST"] = self.public_host
        elif _port(environ.get("HTTP_HOST", "")) != environ.get("SERVER_PORT"):
            environ.pop("HTTP_X_FORWARDED_HOST", None)


def _values(environ: dict[str, Any], name: str) -> list[str]:
    values = [part.strip() for part in environ.get(name, "").split(",")]
    return [_plain(value) if name == "HTTP_X_FORWARDED_FOR" else value for value in values if value]


def _plain(stated: str) -> str:
    """Return an address without the port of some proxies: 192.0.2.1:443, [2001:db8::1]:443."""
    bare, _, _ = (
        stated.removeprefix("[").partition("]") if stated.startswith("[") else (stated, "", "")
    )
    return bare.partition(":")[0] if bare.count(":") == 1 else bare


def _port(host: str) -> str:
    _, _, port = host.rpartition("]")[2].partition(":")
    return port or "80"


# --- The path below which the service lies, where a proxy gives it one of a host's paths

_SAFE = re.compile(PATH)


class Mount:
    """WSGI middleware that puts each link below a path, whether or not the proxy takes it off
    requests.

    The path is that of EXCHEQUER_PUBLIC_URL, or else the one that the server or a trusted proxy
    states.
    """

    def __init__(self, application: Any, path: str) -> None:
        self.application = application
        self.path = path

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request, with its path split into the mount and the rest."""
        stated = environ.get("SCRIPT_NAME", "").rstrip("/")
        environ["SCRIPT_NAME"] = self.path or (stated if _SAFE.fullmatch(stated) else "")
        if self.path:
            environ["PATH_INFO"] = below(self.path, environ.get("PATH_INFO", ""))
        return self.application(environ, start_response)


def below(mount: str, path: str) -> str:
    """Return a request's path without the mount, if it begins with it."""
    return path.removeprefix(mount) if mount and f"{path}/".startswith(f"{mount}/") else path


def check_mount(app: Flask, path: str) -> None:
    """Raise RuntimeError if the mount's first name is a page's: requests could be either's."""
    first = path.split("/")[1] if path else ""
    taken = {rule.rule.split("/")[1] for rule in app.url_map.iter_rules()} - {""}
    if first in taken:
        raise RuntimeError(
            f"EXCHEQUER_PUBLIC_URL: its path begins with /{first}, which is a page of the service; "
            "use another path, such as /exchequer"
        )
