"""What many unit tests have around them: an API server, time, and those who listen."""

from collections.abc import AsyncIterator

import pytest

from kwok_operator.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.certificates import Certificates, make_certificates
from tests.fakes.recording import Clock, RecordedEvents
from tests.fakes.reflecting import Names, Naps, Start, reflecting


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(connection=server.connection(), sleep=Naps()) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def sink() -> Names:
    return Names()


@pytest.fixture
async def start(server: FakeApiServer, sink: Names, naps: Naps) -> AsyncIterator[Start]:
    """Starts a reflector of the server's nodes."""
    async with reflecting(server=server, sink=sink, naps=naps) as start:
        yield start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
