"""Mutual TLS of the shim, with files that are renewed while it runs."""

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest
import uvloop

from kwok_operator.errors import SettingsError
from kwok_operator.shim import tls as tls_module
from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.settings import Certificates as Files
from kwok_operator.shim.tls import Tls
from tests.fakes import certificates
from tests.fakes.certificates import SERVER_NAME

Made = certificates.Certificates
LONG: Final = 60.0
"""Seconds for what takes none: machines are busy."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return certificates.make_certificates(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return certificates.make_certificates(tmp_path_factory.mktemp("new"))


class Mounted:
    """The files of the shim, in one place, with a time of change that counts up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._time = 1_000_000_000
        self.files = Files(*(str(directory / name) for name in ("tls.crt", "tls.key", "ca.crt")))

    def put(self, made: Made, *names: str) -> None:
        sources = {"tls.crt": "server.crt", "tls.key": "server.key", "ca.crt": "ca.crt"}
        for name in names or sources:
            self._time += 1
            target = self._directory / name
            shutil.copy(made.path(sources[name]), target)
            os.utime(target, (self._time, self._time))

    def times(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in self._directory.iterdir()}

    def set_times(self, times: dict[Path, int]) -> None:
        for path, time in times.items():
            os.utime(path, ns=(time, time))

    def remove(self, name: str) -> None:
        (self._directory / name).unlink()


@pytest.fixture
def mounted(old: Made, tmp_path: Path) -> Mounted:
    mounted = Mounted(tmp_path)
    mounted.put(old)
    return mounted


def channel(
    port: int, trusted: Made, client: Made | None, *, shown: str = "client"
) -> grpc.aio.Channel:
    """`trusted` is whose CA the client believes, `client` whose certificate it shows."""
    credentials = grpc.ssl_channel_credentials(
        root_certificates=trusted.text("ca.crt").encode(),
        private_key=client.text(f"{shown}.key").encode() if client else None,
        certificate_chain=client.text(f"{shown}.crt").encode() if client else None,
    )
    options = [
        ("grpc.ssl_target_name_override", SERVER_NAME),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


async def call(over: grpc.aio.Channel) -> bool:
    try:
        return bytes(await over.unary_unary("/t/Echo", bytes, bytes)(b"x", timeout=LONG)) == b"x"
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        return False


async def gets_in(port: int, trusted: Made, client: Made | None, *, shown: str = "client") -> bool:
    async with channel(port, trusted, client, shown=shown) as over:
        return await call(over)


@asynccontextmanager
async def serving(tls: Tls) -> AsyncIterator[int]:
    """The port."""
    server = GrpcServer({"/t/Echo": lambda message: message})
    yield await server.listen_tcp("127.0.0.1", 0, ssl=tls.context)
    await server.stop(0)


async def test_clients_that_are_turned_away_are_logged_once_a_minute(
    mounted: Mounted, old: Made, new: Made, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    async with serving(Tls(mounted.files, clock=lambda: now)) as port:

        async def told(client: Made | None, shown: str = "client") -> list[str]:
            caplog.clear()
            assert not await gets_in(port, old, client, shown=shown)
            return [
                record.message for record in caplog.records if record.name == tls_module.__name__
            ]

        assert await gets_in(port, old, old)
        refused = "client turned away: error=its certificate is refused: "
        assert await told(None) == ["client turned away: error=it shows no certificate"]
        assert await told(old, "expired") == [refused + "certificate has expired"]
        (other,) = await told(new)
        assert other.startswith(refused)
        assert await told(None) == []
        now = tls_module.WARN_INTERVAL
        assert await told(None) == ["client turned away: error=it shows no certificate"]


async def test_renewed_files_are_taken_over(mounted: Mounted, old: Made, new: Made) -> None:
    tls = Tls(mounted.files)
    async with serving(tls) as port:
        async with channel(port, old, old) as open_one:
            assert await call(open_one)
            mounted.put(new)
            tls.reload_if_changed()
            assert await gets_in(port, new, new)
            assert not await gets_in(port, new, old), "the old CA counts no more"
            assert not await gets_in(port, old, new), "the old certificate is gone"
            assert await call(open_one), "what is open stays"


class Resuming:
    """A client that keeps its session, and offers it again."""

    def __init__(self, port: int, made: Made, version: ssl.TLSVersion) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=made.path("ca.crt"))
        self._context.minimum_version = self._context.maximum_version = version
        self._context.load_cert_chain(made.path("client.crt"), made.path("client.key"))
        self._session: ssl.SSLSession | None = None

    def connect(self) -> str:
        """What becomes of a connection."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=LONG) as raw:
            try:
                with self._context.wrap_socket(
                    raw, server_hostname=SERVER_NAME, session=self._session
                ) as secure:
                    if not secure.recv(1):
                        return "refused"
                    self._session = secure.session
                    return "resumed" if secure.session_reused else "verified"
            except (ssl.SSLError, ConnectionError):
                return "refused"


@pytest.mark.parametrize(
    ("version", "becomes"),
    [(ssl.TLSVersion.TLSv1_2, "refused"), (ssl.TLSVersion.TLSv1_3, "verified")],
)
async def test_no_session_is_resumed(
    mounted: Mounted, old: Made, new: Made, version: ssl.TLSVersion, becomes: str
) -> None:
    tls = Tls(mounted.files)
    async with serving(tls) as port:
        client = Resuming(port, old, version)
        before = [await asyncio.to_thread(client.connect) for _ in range(2)]
        mounted.put(new, "ca.crt")
        tls.reload_if_changed()
        assert await asyncio.to_thread(client.connect) == "refused"
        assert before == [becomes] * 2


async def test_files_that_do_not_fit_each_other_change_nothing(
    mounted: Mounted, old: Made, new: Made, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(mounted.files)
    async with serving(tls) as port:
        mounted.put(new, "tls.crt")
        sentence = "certificates not renewed, the old ones stay"

        def told() -> int:
            """In two looks."""
            caplog.clear()
            tls.reload_if_changed()
            tls.reload_if_changed()
            return caplog.text.count(sentence)

        assert told() == 1
        assert told() == 0
        mounted.put(old, "ca.crt")
        assert told() == 1
        mounted.remove("tls.key")
        assert told() == 1
        assert await gets_in(port, old, old)
        mounted.put(new, "tls.key", "ca.crt")
        times = mounted.times()
        tls.reload_if_changed()
        assert await gets_in(port, new, new)
        mounted.put(old)
        mounted.set_times(times)
        tls.reload_if_changed()
        assert await gets_in(port, old, old), "copies may have the times of the old ones"


async def test_a_client_that_names_no_server_is_served_the_same(
    mounted: Mounted, new: Made
) -> None:
    """As one that connects to an IP address."""
    tls = Tls(mounted.files)
    async with serving(tls) as port:
        mounted.put(new)
        tls.reload_if_changed()
        context = ssl.create_default_context(cafile=new.path("ca.crt"))
        context.check_hostname = False
        context.load_cert_chain(new.path("client.crt"), new.path("client.key"))
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=""
        )
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert ssl.DER_cert_to_PEM_cert(shown).split() == new.text("server.crt").split()
        writer.close()


async def test_it_looks_by_itself(
    mounted: Mounted, new: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "CHECK_INTERVAL", 0.01)
    tls = Tls(mounted.files)
    async with serving(tls) as port:
        looking = asyncio.create_task(tls.keep_reloading())
        mounted.put(new)
        while not await gets_in(port, new, new):
            assert not looking.done()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


@pytest.fixture
def on_uvloop() -> Iterator[Callable[..., None]]:
    """As it is deployed. gRPC's client has a loop of its own, and is run in a thread."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield lambda work: runner.run(work)


def test_all_the_same_on_uvloop(
    on_uvloop: Callable[..., None],
    mounted: Mounted,
    old: Made,
    new: Made,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def blocking(port: int, trusted: Made, client: Made) -> bool:
        return asyncio.run(gets_in(port, trusted, client))

    async def work() -> None:
        tls = Tls(mounted.files)
        async with serving(tls) as port:
            assert await asyncio.to_thread(blocking, port, old, old)
            mounted.put(new)
            tls.reload_if_changed()
            assert await asyncio.to_thread(blocking, port, new, new)
            assert not await asyncio.to_thread(blocking, port, new, old)
            assert "client turned away: error=its certificate is refused" in caplog.text

    on_uvloop(work())


def test_files_that_cannot_be_used(old: Made, tmp_path: Path) -> None:
    for name in ("cert", "key", "cacert"):
        mounted = Mounted(tmp_path)
        mounted.put(old)
        Path(getattr(mounted.files, name)).write_text("no PEM")
        with pytest.raises(SettingsError, match="--cert, --key, --cacert: can't be used"):
            Tls(mounted.files)
        Path(getattr(mounted.files, name)).unlink()
        with pytest.raises(SettingsError, match="No such file"):
            Tls(mounted.files)
