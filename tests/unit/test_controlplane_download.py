"""Downloads, from a real server in place of the release sites."""

import io
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kwok_operator.controlplane.download import Sites, kwokctl_url, release_urls
from kwok_operator.controlplane.errors import DownloadError
from kwok_operator.controlplane.tools import find_tools

from .controlplane_fakes import SETS, TOOLS, closed_port, go, quiet, script, settings_for, tool_text


class Site:
    """A server of files by path; `cut` sends half of one."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.requests: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                body = site.files.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write((body or b"")[: 10 if self.path in site.cut else None])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


def archive(name: str, body: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member, content in (("etcd-v3/README", b"read"), (f"etcd-v3/{name}", body)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def sites() -> Sites:
    return Sites(reporter=quiet()[0], connect_seconds=0.2)


def release(site: Site) -> None:
    """Serve all tools; kwokctl is a script that says where, by the variables it is given."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    platform = f"{os.uname().sysname.lower()}-{machine}"
    kwok = SETS["kwok"].version
    kwokctl = (
        f"#!/bin/sh\n[ $1 = --version ] && echo kwokctl version v{kwok} && exit\n"
        f"for each in {' '.join(SETS['kubernetes'].tools)}; do\n"
        f"  echo {site.url}/$KWOK_KUBE_VERSION/$each\ndone\n"
        f"echo {site.url}/kwok-{platform}\n"
        f'echo "{site.url}/etcd-$KWOK_ETCD_VERSION.tar.gz#etcd"\n'
    )
    site.files[f"/kwokctl-{platform}"] = kwokctl.encode()
    site.files[f"/kwok-{platform}"] = tool_text(kwok).encode()
    etcd = SETS["etcd"].version
    site.files[f"/etcd-{etcd}.tar.gz"] = archive("etcd", tool_text(etcd).encode())
    for name in SETS["kubernetes"].tools:
        version = SETS["kubernetes"].version
        site.files[f"/v{version}/{name}"] = tool_text(version, name=name).encode()


def test_all_tools_of_a_cluster(tmp_path: Path, site: Site) -> None:
    release(site)
    settings = settings_for(tmp_path, site=site.url)
    reporter, said = quiet()
    tools = find_tools(settings, reporter=reporter)
    for toolset in SETS.values():
        for name in toolset.tools:
            directory = settings.tool_directory(set_name=toolset.name, version=toolset.version)
            assert tools[name] == directory / name
            assert f"downloaded {name} {toolset.version}" in said.getvalue()
    assert site.requests[0].startswith("/kwokctl-")
    assert len(site.requests) == len(TOOLS)
    assert not list(settings.cache.rglob(".tmp-*"))
    find_tools(settings, reporter=reporter)
    assert len(site.requests) == len(TOOLS), "the second time they are in the cache"


def test_a_release_of_another_version_is_not_used(tmp_path: Path, site: Site) -> None:
    release(site)
    etcd = SETS["etcd"].version
    site.files[f"/etcd-{etcd}.tar.gz"] = archive("etcd", tool_text("0.1.2").encode())
    settings = settings_for(tmp_path, go(tmp_path / "go").parent, site=site.url)
    reporter, said = quiet()
    find_tools(settings, reporter=reporter)
    assert f"reports version 0.1.2, not {etcd[:3]}: building etcd instead" in said.getvalue()
    assert "built etcd" in said.getvalue()
    assert "built kubernetes" not in said.getvalue()


def test_a_missing_release_is_built(tmp_path: Path, site: Site) -> None:
    release(site)
    del site.files[f"/v{SETS['kubernetes'].version}/kube-scheduler"]
    settings = settings_for(tmp_path, go(tmp_path / "go").parent, site=site.url)
    reporter, said = quiet()
    tools = find_tools(settings, reporter=reporter)
    assert "kube-scheduler: HTTP 404: building kubernetes-1.36 instead" in said.getvalue()
    assert set(tools.paths) == set(TOOLS)


def test_a_file_and_a_member_of_an_archive(tmp_path: Path, site: Site) -> None:
    site.files = {"/kwok": b"content", "/e.tar.gz": archive("etcd", b"content")}
    for path in ("kwok", "e.tar.gz#etcd"):
        destination = tmp_path / "new" / path
        sites().fetch(f"{site.url}/{path}", destination=destination)
        assert destination.read_bytes() == b"content"
        assert os.access(destination, os.X_OK)


def test_what_goes_wrong_leaves_nothing(tmp_path: Path, site: Site) -> None:
    good = archive("etcd", os.urandom(9000))
    site.files = {
        "/cut": b"abcdefghijklmnopqrstuvwxyz",
        "/cut.tar.gz": good,
        "/short.tar.gz": good[:5000],
        "/text.tar.gz": b"<html>Please log in</html>",
        "/good.tar.gz": good,
    }
    site.cut = {"/cut", "/cut.tar.gz"}
    messages = {
        "/absent": "HTTP 404",
        "/cut": "10 of 26 bytes came",
        "/cut.tar.gz#etcd": "10 of .* bytes came",
        "/short.tar.gz#etcd": "unpacking",
        "/text.tar.gz#etcd": "unpacking",
        "/good.tar.gz#kubectl": "there is no kubectl in it",
        "/e.zip#etcd": "only tar.gz",
    }
    for path, message in messages.items():
        with pytest.raises(DownloadError, match=message):
            sites().fetch(f"{site.url}{path}", destination=tmp_path / "dir" / "tool")
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_site_that_refuses(tmp_path: Path) -> None:
    both = sites()
    with closed_port() as port:
        for name in ("one", "two"):
            with pytest.raises(DownloadError, match="refused"):
                both.fetch(f"http://127.0.0.1:{port}/{name}", destination=tmp_path / name)


def test_a_site_that_hangs_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    both = sites()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # The handshake of TLS gets no answer: the connection is never made.
        with pytest.raises(DownloadError, match="timed out"):
            both.fetch(f"https://127.0.0.1:{port}/one", destination=tmp_path / "one")
        with pytest.raises(DownloadError, match=r"cannot be reached .*timed out"):
            both.fetch(f"https://127.0.0.1:{port}/two", destination=tmp_path / "two")
        listener.accept()[0].close()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_another_site_is_still_asked(tmp_path: Path, site: Site) -> None:
    both = sites()
    site.files["/kwok"] = b"content"
    with closed_port() as port, pytest.raises(DownloadError):
        both.fetch(f"http://127.0.0.1:{port}/kwok", destination=tmp_path / "kwok")
    both.fetch(f"{site.url}/kwok", destination=tmp_path / "kwok")


def test_where_kwokctl_is() -> None:
    platform = ("linux", "arm64")
    assert kwokctl_url(version="0.8.0", platform=platform, environ={}).endswith(
        "/kwok/releases/download/v0.8.0/kwokctl-linux-arm64"
    )
    mirror = {"KWOK_BINARY_PREFIX": "http://mirror/kwok"}
    assert (
        kwokctl_url(version="0.8.0", platform=platform, environ=mirror)
        == "http://mirror/kwok/kwokctl-linux-arm64"
    )


def test_mirrors_reach_kwokctl(tmp_path: Path) -> None:
    kwokctl = script(
        tmp_path / "kwokctl",
        """
        echo $KWOK_KUBE_BINARY_PREFIX/kube-apiserver $KWOK_KUBECTL_BINARY
        echo $KWOK_ETCD_BINARY_PREFIX/etcd-$KWOK_ETCD_VERSION.tar.gz#etcd
        echo http://site/$KWOK_KUBE_VERSION/kwok-linux-amd64
        test -z "$(ls "$KWOK_WORKDIR")" && echo http://site/empty
        """,
    )
    mirrors = {
        "PATH": os.environ["PATH"],
        "KWOK_KUBE_BINARY_PREFIX": "http://kube",
        "KWOK_ETCD_BINARY_PREFIX": "http://etcd",
        "KWOK_WORKDIR": "/",
    }
    urls = release_urls(kwokctl, kubernetes="1.36.3", etcd="3.6.1", environ=mirrors)
    assert urls == {
        "kube-apiserver": "http://kube/kube-apiserver",
        "kubectl": "http://kube/kubectl",
        "etcd": "http://etcd/etcd-3.6.1.tar.gz#etcd",
        "kwok": "http://site/v1.36.3/kwok-linux-amd64",
        "empty": "http://site/empty",
    }


def test_a_kwokctl_that_fails(tmp_path: Path) -> None:
    kwokctl = script(tmp_path / "kwokctl", "exit 1")
    with pytest.raises(DownloadError, match="asking"):
        release_urls(kwokctl, kubernetes="1.36.3", etcd="3.6.1", environ={})
