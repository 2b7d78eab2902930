"""Turns an error answer into an error class with a message.

The HTTP status decides the class; a `Status` object gives message, causes and delay. Such an object
is the body of an answer, or an ERROR event within a watch whose own status was 200. A body that is
no `Status` was written by something in front of the API server, such as a proxy. This module also
describes requests that got no answer; retry.py decides whether to try again.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from kwok_operator.errors import (
    ApiError,
    BadRequestError,
    ConflictError,
    ErrorCause,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)
from kwok_operator.formats.untyped import as_list, as_map

_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def check_status(
    status: int, headers: Mapping[str, str], body: bytes, *, method: str, path: str
) -> None:
    """Raises the error that an answer's status stands for, unless it is a success."""
    if 200 <= status < 300:
        return
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not (isinstance(answer, dict) and answer.get("kind") == "Status"):
        # Something in front of the API server wrote this: a proxy, a load balancer.
        text = headers.get("Location") or body[:300].decode(errors="replace")
        answer = {"message": text or "an empty answer"}
    raise error_of(answer, status=status, headers=headers, method=method, path=path)


def error_of(
    answer: Mapping[str, Any],
    *,
    status: int,
    headers: Mapping[str, str] | None = None,
    method: str,
    path: str,
) -> ApiError:
    """Makes an error from a `Status` object, which is the body of an answer or an event of a watch.

    Fields with odd values count as missing, so that the error is reported in any case.
    """
    details = as_map(answer.get("details"))
    default = ServerError if status >= 500 else ApiError
    return _ERRORS.get(status, default)(
        str(answer.get("message") or ""),
        status=status,
        reason=str(answer.get("reason") or ""),
        details=tuple(
            ErrorCause(
                field=str(cause.get("field") or ""),
                message=str(cause.get("message") or ""),
                reason=str(cause.get("reason") or ""),
            )
            for cause in as_list(details.get("causes"))
            if isinstance(cause, dict)
        ),
        retry_after=_seconds((headers or {}).get("Retry-After", details.get("retryAfterSeconds"))),
        method=method,
        path=path,
    )


def _seconds(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None  # also for an HTTP date, which API servers don't send
    return max(0.0, seconds) if math.isfinite(seconds) else None


def describe_failure(error: Exception, *, timeout: float | None = None) -> str:
    """Describes in a few words why a request got no answer. aiohttp's own messages are long, or
    empty."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not trusted: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            refused = isinstance(error.os_error, ConnectionRefusedError)
            return "connection refused" if refused else str(error.os_error)
        case aiohttp.ConnectionTimeoutError():
            return "it does not take the connection"
        case TimeoutError():
            return f"no answer within {timeout:g} s" if timeout else "no answer in time"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "it cut the connection in the middle of its answer"
    return str(error) or type(error).__name__
