"""Finds the HTTP proxy for an API server in HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

It reads them as Go programs do, so that settings for kubectl work here, too. For example, NO_PROXY
may have networks (10.0.0.0/8), which Python's own code doesn't know. aiohttp's `trust_env` isn't
used: it would also take passwords from ~/.netrc, and fail if a token is sent.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from kwok_operator.errors import ConnectionConfigError


def proxy_for(server: str, environ: Mapping[str, str]) -> str | None:
    """Returns the proxy's URL, or None for a direct connection."""
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name)
    without = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    host = url.hostname or ""
    if not proxy or _is_local(host) or any(_covers(e.strip(), host) for e in without.split(",")):
        return None
    return checked(proxy if "://" in proxy else f"http://{proxy}", name.upper())


def checked(proxy: str, where: str) -> str:
    """Returns the proxy's URL; raises ConnectionConfigError if aiohttp can't use such a proxy."""
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise ConnectionConfigError(
            f"{where} {proxy} is not supported: use an http:// or https:// proxy"
        )
    return proxy


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _covers(entry: str, host: str) -> bool:
    """Whether one entry of NO_PROXY includes this host."""
    if entry == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    domain = entry.removeprefix("*").removeprefix(".").lower()
    return host == domain or host.endswith("." + domain)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
