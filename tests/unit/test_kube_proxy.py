"""Which proxy the environment means for an API server, as Go programs read it."""

import pytest

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube.proxy import proxy_for

PROXY = "http://proxy:3128"


def test_which_proxy_is_meant() -> None:
    for server, environ, proxy in [
        ("https://k8s:6443", {}, None),
        ("https://k8s:6443", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://k8s:6443", {"https_proxy": PROXY}, PROXY),
        ("https://k8s:6443", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        ("https://k8s:6443", {"HTTP_PROXY": PROXY}, None),
        ("http://k8s:8080", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
    ]:
        assert proxy_for(server, environ) == proxy, (server, environ)


def test_which_servers_need_none() -> None:
    for server, without, direct in [
        ("https://10.96.0.1", "10.0.0.0/8", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://11.0.0.1", "10.0.0.0/8, 192.168.0.0/16", False),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://10.96.0.1", "example.com", False),
        ("https://api.example.com", "example.com", True),
        ("https://api.example.com", ".example.com", True),
        ("https://api.example.com", "*.example.com", True),
        ("https://badexample.com", "example.com", False),
        ("https://example.com", "Example.com", True),
        ("https://api.example.com", "x,, *", True),
        ("https://api.example.com", "10.0.0.0/8", False),
    ]:
        proxy = proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": without})
        assert proxy == (None if direct else PROXY), (server, without)


def test_socks_is_refused() -> None:
    with pytest.raises(ConnectionConfigError, match="HTTPS_PROXY socks5://p is not supported"):
        proxy_for("https://k8s", {"HTTPS_PROXY": "socks5://p"})
