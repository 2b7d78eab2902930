"""Downloads release binaries, if the release sites can be reached.

kwokctl knows where each binary comes from, for every platform (`kwokctl get artifacts`), so no list
of addresses is kept here, except for kwokctl itself. The variables that kwok honours
(KWOK_BINARY_PREFIX, KWOK_KUBE_BINARY_PREFIX, KWOK_ETCD_BINARY_PREFIX, ...) name other places, such
as a mirror. A site that cannot be reached is not tried again in the same run. A file gets its name
only once it is complete; the caller checks whether it is the right version.
"""

from __future__ import annotations

import functools
import http.client
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from kwok_operator.controlplane.errors import DownloadError
from kwok_operator.controlplane.stopping import go_on
from kwok_operator.reporter import Reporter

CONNECT_SECONDS = 3.0
READ_SECONDS = 30.0
KWOK_RELEASES = "https://github.com/kubernetes-sigs/kwok/releases/download"

_CHUNK = 1 << 20


class _Connection(http.client.HTTPConnection):
    """A connection with a short time-out while it is made, and a long one afterwards."""

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _SecureConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req)


class Sites:
    """Fetches files, and remembers which sites could not be reached."""

    def __init__(self, *, reporter: Reporter, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._reporter = reporter
        self._connect_seconds = connect_seconds
        self._opener = urllib.request.build_opener(_Handler, _SecureHandler)
        self._unreachable: dict[str, str] = {}

    def fetch(self, url: str, *, destination: Path) -> None:
        """Download a file. For `archive.tar.gz#name`, extract the member of that name."""
        address, _, member = url.partition("#")
        if member and not address.endswith((".tar.gz", ".tgz")):
            raise DownloadError(f"downloading {address}: only tar.gz archives can be unpacked")
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=destination.parent) as directory:
            whole = Path(directory) / "download"
            self._download(address, to=whole)
            if member:
                whole = _unpack(whole, member=member, address=address)
            whole.chmod(0o755)
            whole.replace(destination)

    def _download(self, address: str, *, to: Path) -> None:
        site = urlsplit(address).netloc
        if site in self._unreachable:
            reason = self._unreachable[site]
            raise DownloadError(f"downloading {address}: {site} cannot be reached ({reason})")
        try:
            with self._opener.open(address, timeout=self._connect_seconds) as response:
                with to.open("wb") as file:
                    self._copy(response, file=file, address=address)
        except urllib.error.HTTPError as err:
            err.close()
            raise DownloadError(f"downloading {address}: HTTP {err.code}") from err
        except (urllib.error.URLError, TimeoutError, ConnectionError) as err:
            reason = str(getattr(err, "reason", err))
            self._unreachable[site] = reason
            raise DownloadError(f"downloading {address}: {reason}") from err
        except http.client.HTTPException as err:
            raise DownloadError(f"downloading {address}: {err!r}") from err

    def _copy(self, response: Any, *, file: IO[bytes], address: str) -> None:
        total = int(response.headers.get("Content-Length") or 0)
        name = address.rsplit("/", 1)[-1]
        done = 0
        for chunk in iter(functools.partial(response.read, _CHUNK), b""):
            go_on()
            file.write(chunk)
            done += len(chunk)
            of = f" of {total >> 20}" if total else ""
            self._reporter.update(f"downloading {name}: {done >> 20}{of} MiB")
        # read(size) returns too few bytes, without an error, when the connection breaks.
        if total and done != total:
            raise DownloadError(f"downloading {address}: {done} of {total} bytes came")


def _unpack(archive: Path, *, member: str, address: str) -> Path:
    target = archive.with_name("member")
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            for entry in tar:
                source = tar.extractfile(entry) if entry.name.split("/")[-1] == member else None
                if source is not None:
                    with target.open("wb") as file:
                        shutil.copyfileobj(source, file)
                    return target
    except (tarfile.TarError, EOFError, zlib.error) as err:
        raise DownloadError(f"unpacking {address}: {err}") from err
    raise DownloadError(f"unpacking {address}: there is no {member} in it")


def kwokctl_url(*, version: str, platform: tuple[str, str], environ: Mapping[str, str]) -> str:
    """Return the address of a kwokctl release, by the same rule that kwokctl uses for kwok."""
    prefix = environ.get("KWOK_BINARY_PREFIX") or f"{KWOK_RELEASES}/v{version}"
    return f"{prefix}/kwokctl-{platform[0]}-{platform[1]}"


def release_urls(
    kwokctl: Path, *, kubernetes: str, etcd: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Ask kwokctl where the binaries of these versions are released. Return the URL of each tool,
    by the tool's name."""
    with tempfile.TemporaryDirectory() as empty:
        # Run in an empty directory: if a cluster existed there, kwokctl would name its local files.
        env = {
            **environ,
            "KWOK_WORKDIR": empty,
            "KWOK_KUBE_VERSION": f"v{kubernetes}",
            "KWOK_ETCD_VERSION": etcd,
        }
        if env.get("KWOK_KUBE_BINARY_PREFIX"):
            # kwokctl itself uses this variable for all binaries but kubectl.
            kubectl = env["KWOK_KUBE_BINARY_PREFIX"] + "/kubectl"
            env.setdefault("KWOK_KUBECTL_BINARY", kubectl)
        arguments = ["get", "artifacts", "--runtime", "binary", "--filter", "binary"]
        try:
            answer = subprocess.run(
                [str(kwokctl), *arguments],
                env=env,
                capture_output=True,
                text=True,
                timeout=READ_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as err:
            raise DownloadError(f"asking {kwokctl} for its artifacts: {err}") from err
    urls = {}
    for url in answer.stdout.split():
        name = url.rpartition("#")[2].rpartition("/")[2]
        urls["kwok" if name.startswith("kwok-") else name] = url
    return urls
