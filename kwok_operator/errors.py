"""Errors that cross a module boundary.

KwokOperatorError
├── SettingsError            a flag or an environment variable has an unusable value
├── ConnectionConfigError    no usable kubeconfig or in-cluster configuration
├── PreflightError           the cluster lacks what the operator needs (API, permission)
├── TemplateError            a template can't become a node: field, value, problem, remedy
├── LineError                a line of a file is invalid: where, field, value, remedy
│   ├── TraceError           a line of a trace can't be replayed
│   └── RecordingError       a line of a rehearsal's recording can't be read
├── ManifestError            a text is invalid: not YAML, or not the expected kind of object
├── ControlPlaneError        no control plane on this machine; see controlplane/errors.py
├── NotLeadingError          a write of a replica that doesn't lead
├── ApiError                 the API server answered with an error status
│   ├── BadRequestError      400
│   ├── UnauthorizedError    401
│   ├── ForbiddenError       403
│   ├── NotFoundError        404
│   ├── ConflictError        409
│   ├── GoneError            410
│   ├── InvalidError         422
│   ├── TooManyRequestsError 429
│   └── ServerError          5xx
├── ApiUnreachableError      no answer at all: connection refused, time-out, TLS
└── DecodeError              an answer of another form than requested

str() of each is one line, fit for a log, an Event or a condition; but a ControlPlaneError may end
with some lines of a log.
"""

import re
from dataclasses import dataclass
from typing import Final

_MAX_TEXT: Final = 2_000
"""The most characters of a line. An API server's message repeats the refused value, which may be a
whole node."""
TERMINAL_LINE: Final = 10_000
"""The most characters of a line at a terminal. Longer lines are no sentences for people."""
_PASSWORD: Final = re.compile(r"(?<=https://)[^/@\s]+@|(?<=http://)[^/@\s]+@", re.IGNORECASE)


def one_line(text: object, *, limit: int = _MAX_TEXT) -> str:
    """Makes one line of a text: replaces white space and newlines by single blanks, and cuts what
    is too long for a log line.

    Control characters, and those that can't be encoded, become question marks. User and password
    are removed from URLs, as logs and reports are copied elsewhere.
    """
    line = _PASSWORD.sub("", " ".join(str(text).split()))
    if not line.isprintable():
        line = "".join(char if char.isprintable() else "?" for char in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


class KwokOperatorError(Exception):
    """The base class of all errors that this package raises on purpose."""


class SettingsError(KwokOperatorError):
    """A flag or an environment variable has an unusable value."""


class ConnectionConfigError(KwokOperatorError):
    """There is no usable kubeconfig or in-cluster configuration."""


class PreflightError(KwokOperatorError):
    """The cluster lacks what the operator needs to start: an API, a permission, a CRD."""


class NotLeadingError(KwokOperatorError):
    """The fence (operator/leadership.py) refused a write: the process is ending, or does not lead
    yet."""


class TemplateError(KwokOperatorError):
    """A template can't become a node."""

    def __init__(self, *, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        super().__init__(field, problem)

    def __str__(self) -> str:
        sentence = f"{self.field}: {one_line(repr(self.value), limit=200)} {self.problem}"
        return one_line(f"{sentence}; {self.remedy}" if self.remedy else sentence)


class LineError(KwokOperatorError):
    """A line of a file is invalid."""

    def __init__(self, *, where: str, field: str, value: object, problem: str, remedy: str) -> None:
        self.where = where
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        super().__init__(where, field, problem)

    def __str__(self) -> str:
        # Lists and objects are not shown, as they may be large and deep.
        plain = isinstance(self.value, str | int | float)
        shown = f" {one_line(repr(self.value), limit=200)}" if plain else ""
        return one_line(f"{self.where}: {self.field}:{shown} {self.problem}; {self.remedy}")


class TraceError(LineError):
    """A line of a trace can't be replayed."""


class RecordingError(LineError):
    """A rehearsal's recording can't be read."""


class ManifestError(KwokOperatorError):
    """A text is invalid; the message names the place, with line and column."""

    def __str__(self) -> str:
        return one_line(super().__str__())


@dataclass(frozen=True, slots=True)
class ErrorCause:
    """One entry of `details.causes` in the API server's answer: which field, and what is wrong."""

    field: str
    message: str
    reason: str


class ApiError(KwokOperatorError):
    """The API server answered with an error status. `status` is the HTTP status."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        details: tuple[ErrorCause, ...] = (),
        retry_after: float | None = None,
        method: str = "",
        path: str = "",
    ) -> None:
        self.message = message
        self.status = status
        self.reason = reason
        self.details = details
        self.retry_after = retry_after
        self.method = method
        self.path = path
        super().__init__(message)

    @property
    def by_policy(self) -> bool:
        """Whether an admission webhook or policy refused the request, so that more rights of the
        account would not help."""
        return " denied " in self.message

    def __str__(self) -> str:
        asked = f"requesting {self.method} {self.path}: " if self.method else ""
        answer = f"{self.status} {self.reason}".strip()
        return one_line(f"{asked}{answer}: {self.message}" if self.message else asked + answer)


class BadRequestError(ApiError):
    """400: the request can't be understood, or an unknown field was refused."""


class UnauthorizedError(ApiError):
    """401: the API server doesn't know the account."""


class ForbiddenError(ApiError):
    """403: the API server knows the account, and denies the request."""


class NotFoundError(ApiError):
    """404: there is no such object, or no such API."""


class ConflictError(ApiError):
    """409: the name is taken, or the object has changed meanwhile."""


class GoneError(ApiError):
    """410: the resourceVersion or the continue token is too old."""


class InvalidError(ApiError):
    """422: the object is understood, but invalid. `details` names the fields."""


class AlteredNodeError(InvalidError):
    """The API server stored a node of which a webhook removed what shows its group (label,
    annotations, owner) or its template (hash)."""

    def __init__(self, lost: str, *, method: str, path: str) -> None:
        super().__init__(
            f"something alters nodes on their way and takes away or rewrites {lost}, by which the"
            " operator recognises them; exempt nodes with the label kwok-operator.io/node-group"
            " from the mutating webhook or policy that does it (kubectl get"
            " mutatingwebhookconfigurations,mutatingadmissionpolicies)",
            status=422,
            reason="Altered",
            method=method,
            path=path,
        )


REFUSED: Final = (BadRequestError, ForbiddenError, InvalidError)
"""Refusals that concern one object: the same request would fail again, those about other objects
may succeed."""


class TooManyRequestsError(ApiError):
    """429: the API server asks to wait, for `retry_after` seconds if it says so."""


class ServerError(ApiError):
    """5xx: the API server, or something in front of it, is in trouble."""


class ApiUnreachableError(KwokOperatorError):
    """There was no answer, or only a part of it. A write may have been carried out nevertheless."""

    def __init__(self, *, server: str, cause: str, method: str = "", path: str = "") -> None:
        self.server = server
        self.cause = cause
        self.method = method
        self.path = path
        super().__init__(server, cause)

    def __str__(self) -> str:
        asked = f"requesting {self.method} {self.path}: " if self.method else ""
        return one_line(f"{asked}no answer from {self.server}: {self.cause}")


class DecodeError(KwokOperatorError):
    """An answer has another form than requested: it is no JSON, or another kind of object."""

    def __str__(self) -> str:
        return one_line(super().__str__())


FAILED_REQUEST: Final = (ApiError, ApiUnreachableError, DecodeError)
"""The errors by which a request can fail: an error status (a webhook may choose any), no answer, or
an unreadable one."""
