"""gRPC's health service, for probes: grpc.health.v1.Health/Check."""

from collections.abc import Callable, Mapping
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.messages import read
from kwok_operator.shim.proto import externalgrpc_pb2, health_pb2

SERVICES: Final = tuple(
    service.full_name
    for file in (externalgrpc_pb2, health_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)


def health_handlers(serving: Callable[[], bool]) -> Mapping[str, Handler]:
    """Returns the handler of health checks; `serving` is called for each of them."""
    return {"/grpc.health.v1.Health/Check": lambda request: check(request, serving=serving())}


def check(request: bytes, *, serving: bool) -> bytes:
    """Answers a health check. The server and its services all have the same health: `serving`.

    Raises RpcError: NOT_FOUND for an unknown service.
    """
    name = read(health_pb2.HealthCheckRequest, request).service
    if name and name not in SERVICES:
        shown, known = one_line(name, limit=200), ", ".join(SERVICES)
        raise RpcError(StatusCode.NOT_FOUND, f"there is no service {shown}; there are {known}")
    status = health_pb2.HealthCheckResponse
    answer = status(status=status.SERVING if serving else status.NOT_SERVING)
    return answer.SerializeToString()
