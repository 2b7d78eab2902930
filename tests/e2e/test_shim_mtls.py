"""Mutual TLS of the shim, of the program itself, as clients meet it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.e2e.autoscaler import SERVICE, Shim
from tests.e2e.kubectl import eventually
from tests.e2e.ports import free_address
from tests.fakes.certificates import SERVER_NAME, Certificates, make_certificates


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("others"))


@dataclass
class Served:
    shim: Shim
    address: str

    def asks(
        self, trusted: Certificates, shown: Certificates | None, *, name: str = "client"
    ) -> grpc.StatusCode | None:
        """What becomes of a client's call: None where it is answered."""
        credentials = grpc.ssl_channel_credentials(
            root_certificates=trusted.text("ca.crt").encode(),
            private_key=shown.text(f"{name}.key").encode() if shown else None,
            certificate_chain=shown.text(f"{name}.crt").encode() if shown else None,
        )
        options = [
            ("grpc.ssl_target_name_override", SERVER_NAME),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        with grpc.secure_channel(self.address, credentials, options=options) as channel:
            return outcome(channel)

    def told(self, words: str) -> None:
        eventually(lambda: words in self.shim.log, describe=f"the log says {words!r}")


def outcome(channel: grpc.Channel) -> grpc.StatusCode | None:
    refresh = channel.unary_unary(
        f"{SERVICE}Refresh",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=pb.RefreshResponse.FromString,
    )
    try:
        refresh(pb.RefreshRequest(), timeout=20)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


@pytest.fixture(scope="module")
def served(
    shim_kubeconfig: Path, ours: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    shim = Shim(kubeconfig=shim_kubeconfig, directory=tmp_path_factory.mktemp("shim"))
    address = free_address()
    files = (("cert", "server.crt"), ("key", "server.key"), ("cacert", "ca.crt"))
    shim.start(f"--listen={address}", *(f"--{flag}={ours.path(name)}" for flag, name in files))
    served = Served(shim, address)
    try:
        eventually(lambda: served.asks(ours, ours) is None, describe="it serves")
        yield served
    finally:
        shim.stop()


@pytest.mark.core
def test_who_is_served(served: Served, ours: Certificates, others: Certificates) -> None:
    turned_away = grpc.StatusCode.UNAVAILABLE
    assert served.asks(ours, None) is turned_away
    served.told("it shows no certificate")
    assert served.asks(ours, others) is turned_away
    served.told("its certificate is refused")
    assert served.asks(ours, ours, name="expired") is turned_away
    served.told("certificate has expired")
    with grpc.insecure_channel(served.address) as channel:
        assert outcome(channel) is turned_away
    assert served.asks(others, ours) is turned_away, "a server of another CA is not trusted"
    assert served.asks(ours, ours) is None, "who may goes on being served"
