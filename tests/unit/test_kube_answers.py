"""What an answer that isn't a success becomes."""

import json
import ssl
from typing import Any

import aiohttp
import pytest

from kwok_operator import errors
from kwok_operator.errors import ApiError, ApiUnreachableError, ErrorCause, TemplateError
from kwok_operator.kube.answers import check_status, describe_failure


def refused(status: int, body: Any = b"", headers: dict[str, str] | None = None) -> ApiError:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ApiError) as caught:
        check_status(status, headers or {}, content, method="POST", path="/api/v1/nodes")
    return caught.value


def test_each_status_has_its_class() -> None:
    for status in (200, 201, 202):
        check_status(status, {}, b"not even JSON", method="GET", path="/")
    for status, kind in {
        307: ApiError,
        400: errors.BadRequestError,
        401: errors.UnauthorizedError,
        403: errors.ForbiddenError,
        404: errors.NotFoundError,
        409: errors.ConflictError,
        410: errors.GoneError,
        415: ApiError,
        422: errors.InvalidError,
        429: errors.TooManyRequestsError,
        500: errors.ServerError,
        503: errors.ServerError,
    }.items():
        error = refused(status)
        assert (type(error), error.status) == (kind, status)


def test_status_object_is_read() -> None:
    error = refused(
        422,
        {
            "kind": "Status",
            "message": 'Node "a" is invalid:\n  spec: bad',
            "reason": "Invalid",
            "details": {"causes": [{"field": "spec", "message": "bad", "reason": "FieldBad"}]},
        },
    )
    assert error.reason == "Invalid"
    assert error.details == (ErrorCause(field="spec", message="bad", reason="FieldBad"),)
    assert str(error) == (
        'requesting POST /api/v1/nodes: 422 Invalid: Node "a" is invalid: spec: bad'
    )


def test_sparse_and_odd_details_are_fine() -> None:
    causes: list[Any] = [None, [{}], ["odd"], 7]
    for details in [None, {}, ["odd"], "odd", *({"causes": each} for each in causes)]:
        assert refused(422, {"kind": "Status", "details": details}).message == ""


def test_delay_that_the_server_asks_for() -> None:
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    for header, details, seconds in [
        (None, {}, None),
        ("7", {}, 7.0),
        ("7", {"retryAfterSeconds": 1}, 7.0),
        (None, {"retryAfterSeconds": 3}, 3.0),
        ("0", {}, 0.0),
        ("-1", {}, 0.0),
        ("nan", {}, None),
        (date, {}, None),
    ]:
        headers = {"Retry-After": header} if header else {}
        error = refused(429, {"kind": "Status", "details": details}, headers)
        assert error.retry_after == seconds, (header, details)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>\n<h1>Bad gateway</h1>", "<html> <h1>Bad gateway</h1>"),
        (b"", "an empty answer"),
        (b'["list"]', '["list"]'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 9_000, "x" * 300),
    ],
)
def test_answer_of_something_in_between(body: bytes, words: str) -> None:
    assert str(refused(502, body)) == f"requesting POST /api/v1/nodes: 502: {words}"


def test_redirects_and_long_messages() -> None:
    error = refused(302, b"", {"Location": "https://login.example"})
    assert str(error).endswith("302: https://login.example")
    assert len(str(refused(422, {"kind": "Status", "message": "y" * 100_000}))) == 2_000


def test_template_error_is_a_sentence() -> None:
    error = TemplateError(
        field="status.capacity.cpu",
        value="many",
        problem="is not a quantity",
        remedy='write it as "4"\nor "4000m"',
    )
    assert str(error) == (
        'status.capacity.cpu: \'many\' is not a quantity; write it as "4" or "4000m"'
    )


def test_unreachable_names_server_and_cause() -> None:
    error = ApiUnreachableError(
        server="https://k8s:6443", cause="connection refused", method="GET", path="/readyz"
    )
    assert (
        str(error) == "requesting GET /readyz: no answer from https://k8s:6443: connection refused"
    )


KEY = aiohttp.client_reqrep.ConnectionKey("k8s", 6443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "x")), "connection refused"),
        (aiohttp.ClientConnectorError(KEY, OSError(113, "No route")), "No route"),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError("self-signed")),
            "its certificate is not trusted: ('self-signed',)",
        ),
        (aiohttp.ConnectionTimeoutError("long"), "does not take the connection"),
        (TimeoutError(), "no answer within 5 s"),
        (aiohttp.ServerDisconnectedError(), "closed the connection"),
        (aiohttp.ClientPayloadError("x"), "in the middle"),
        (aiohttp.ClientOSError(104, "reset"), "reset"),
        (OSError(), "OSError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_why_there_was_no_answer(error: Exception, words: str) -> None:
    assert words in describe_failure(error, timeout=5.0)
