"""What any gRPC server can be asked about itself: whether it serves, and what it speaks.

    request bytes ──check_health──> response bytes      for probes: grpc.health.v1.Health/Check
    request bytes ──reflect──> response bytes           for grpcurl and the like

Reflection is a stream in which each request has one answer. Both of its versions have the same
messages, and only the newer one is told of: clients take it where they can.
"""

from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.descriptor import FileDescriptor

from kwok_operator.errors import one_line
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode, StreamHandler
from kwok_operator.shim.messages import read
from kwok_operator.shim.proto import externalgrpc_pb2, health_pb2, reflection_pb2

HEALTH_CHECK: Final = "/grpc.health.v1.Health/Check"
REFLECTIONS: Final = (
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)


def _with_imports(*files: FileDescriptor) -> dict[str, FileDescriptor]:
    """The files by name, each after those that it imports."""
    found: dict[str, FileDescriptor] = {}
    for file in files:
        found |= {**_with_imports(*file.dependencies), file.name: file}
    return found


_SERVED: Final = (externalgrpc_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
_FILES: Final = _with_imports(*_SERVED)
SERVICES: Final = tuple(
    service.full_name for file in _SERVED for service in file.services_by_name.values()
)
_FILE_OF_METHOD: Final = {
    f"{service.full_name}.{method}": file
    for file in _SERVED
    for service in file.services_by_name.values()
    for method in service.methods_by_name
}


def health_handlers(serving: Callable[[], bool]) -> Mapping[str, Handler]:
    """The handler of health checks; `serving` says at any moment whether all is well."""
    return {HEALTH_CHECK: lambda request: check_health(request, serving=serving())}


def reflection_streams() -> Mapping[str, StreamHandler]:
    """The handlers of both versions of reflection."""

    async def answer(request: bytes) -> bytes:
        return reflect(request)

    return dict.fromkeys(REFLECTIONS, answer)


def check_health(request: bytes, *, serving: bool) -> bytes:
    """The whole server and each of its services are as healthy as `serving` says.

    Raises RpcError: NOT_FOUND for a service that there isn't.
    """
    name = read(health_pb2.HealthCheckRequest, request).service
    if name and name not in SERVICES:
        shown, known = one_line(name, limit=200), ", ".join(SERVICES)
        raise RpcError(StatusCode.NOT_FOUND, f"there is no service {shown}; there are {known}")
    status = health_pb2.HealthCheckResponse
    answer = status(status=status.SERVING if serving else status.NOT_SERVING)
    return answer.SerializeToString()


def reflect(request: bytes) -> bytes:
    """The answer to one request of a reflection stream; what isn't there is told in the answer.

    Raises RpcError: INVALID_ARGUMENT for bytes that are no request.
    """
    asked = read(reflection_pb2.ServerReflectionRequest, request)
    answer = reflection_pb2.ServerReflectionResponse(valid_host=asked.host, original_request=asked)
    match asked.WhichOneof("message_request"):
        case "list_services":
            services = [reflection_pb2.ServiceResponse(name=name) for name in SERVICES]
            answer.list_services_response.service.extend(services)
        case "file_by_filename":
            _add_file(answer, _FILES.get(asked.file_by_filename))
        case "file_containing_symbol":
            _add_file(answer, _file_of(asked.file_containing_symbol))
        case "file_containing_extension" | "all_extension_numbers_of_type":
            _add_error(answer, StatusCode.NOT_FOUND, "there are no extensions")
        case _:
            _add_error(answer, StatusCode.INVALID_ARGUMENT, "the request asks for nothing")
    return answer.SerializeToString()


def _file_of(symbol: str) -> FileDescriptor | None:
    if symbol in _FILE_OF_METHOD:
        return _FILE_OF_METHOD[symbol]
    try:
        found = externalgrpc_pb2.DESCRIPTOR.pool.FindFileContainingSymbol(symbol)
    except KeyError:
        return None
    # The pool has whatever the process has loaded.
    return _FILES.get(found.name)


def _add_file(answer: reflection_pb2.ServerReflectionResponse, file: FileDescriptor | None) -> None:
    if file is None:
        _add_error(answer, StatusCode.NOT_FOUND, "nothing that is served has this name")
        return
    files = [each.serialized_pb for each in _with_imports(file).values()]
    # The one that was asked for comes first.
    answer.file_descriptor_response.file_descriptor_proto.extend(reversed(files))


def _add_error(
    answer: reflection_pb2.ServerReflectionResponse, code: StatusCode, message: str
) -> None:
    answer.error_response.error_code = code
    answer.error_response.error_message = message
