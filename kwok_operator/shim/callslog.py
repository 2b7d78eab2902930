"""Logs cluster-autoscaler's calls and their outcome, as JSON lines in a file.

    {"at": 1767366000.204, "method": "NodeGroupIncreaseSize", "group": "a", "argument": 3,
     "code": "OK", "ms": 4.1}

It logs calls that change something, calls that fail, and each Refresh, with which a loop of
cluster-autoscaler begins. It leaves out all others, also those answered UNIMPLEMENTED: then
cluster-autoscaler uses its own defaults. If the file can't be written to, the calls still succeed.
"""

import json
import logging
import os
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from kwok_operator.shim import messages
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb

logger = logging.getLogger(__name__)

_ALWAYS: Final = "Refresh"
_NOTHING_WRONG: Final = (StatusCode.OK, StatusCode.UNIMPLEMENTED)
_MOST_NAMES: Final = 50
_SIZES: Final[Mapping[str, Any]] = {
    "NodeGroupIncreaseSize": pb.NodeGroupIncreaseSizeRequest,
    "NodeGroupDecreaseTargetSize": pb.NodeGroupDecreaseTargetSizeRequest,
}
_DELETION: Final = "NodeGroupDeleteNodes"


class CallsLog:
    """Appends lines about calls to a file. Raises OSError if it can't be opened."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._path = path
        self._broken = False

    def close(self) -> None:
        os.close(self._file)

    def wrap(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Returns the handlers, by the same paths, wrapped so that their calls are logged."""
        return {path: self._wrap(path, handler) for path, handler in handlers.items()}

    def _wrap(self, path: str, handler: Handler) -> Handler:
        method = path.rpartition("/")[2]

        def call(request: bytes) -> bytes | Awaitable[bytes]:
            began = time.time()
            try:
                answer = handler(request)
            except RpcError as error:
                self._log(method, request, error.code, began)
                raise
            if isinstance(answer, bytes):
                self._log(method, request, StatusCode.OK, began)
                return answer
            return self._awaited(method, request, answer, began)

        return call

    async def _awaited(
        self, method: str, request: bytes, answer: Awaitable[bytes], began: float
    ) -> bytes:
        code = StatusCode.CANCELLED
        try:
            result = await answer
            code = StatusCode.OK
        except RpcError as error:
            code = error.code
            raise
        finally:
            self._log(method, request, code, began)
        return result

    def _log(self, method: str, request: bytes, code: StatusCode, began: float) -> None:
        changes = method in _SIZES or method == _DELETION
        if self._broken or not (changes or method == _ALWAYS or code not in _NOTHING_WRONG):
            return
        line: dict[str, Any] = {"at": round(began, 3), "method": method}
        if changes:
            line |= _arguments(method, request)
        line |= {"code": code.name, "ms": round((time.time() - began) * 1_000, 1)}
        try:
            os.write(self._file, f"{json.dumps(line, separators=(',', ':'))}\n".encode())
        except OSError as error:
            self._broken = True
            logger.warning("calls are logged no more: file=%s error=%s", self._path, error)


def _arguments(method: str, request: bytes) -> dict[str, Any]:
    """Returns what the log shows of a request: the group, and the change of its size or the names
    of the nodes to delete."""
    try:
        if method in _SIZES:
            size = messages.read(_SIZES[method], request)
            return {"group": size.id, "argument": size.delta}
        deletion = messages.read(pb.NodeGroupDeleteNodesRequest, request)
    except RpcError:
        return {}
    names = [node.name for node in deletion.nodes[:_MOST_NAMES]]
    more = len(deletion.nodes) - len(names)
    shown = ", ".join(names) + (f" and {more} more" if more else "")
    return {"group": deletion.id, "argument": shown}
