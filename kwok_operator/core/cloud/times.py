"""Milliseconds since the epoch, and the RFC 3339 of the API."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Milliseconds since the epoch. Raises ValueError for what is no RFC 3339 time with a zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write it as 2026-01-02T03:04:05Z")
    return milliseconds_of(time)


def milliseconds_of(time: datetime) -> int:
    """Milliseconds since the epoch; `time` has a zone."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def format_time(at: int) -> str:
    """RFC 3339 in whole seconds, as other times in status; what is less is cut off."""
    return (_EPOCH + timedelta(seconds=at // 1_000)).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_exact_time(at: int) -> str:
    """RFC 3339 with milliseconds."""
    return f"{format_time(at).removesuffix('Z')}.{at % 1_000:03}Z"
