"""Python with a wall clock that is off by as many seconds as a file says.

It is imported by the operator's interpreter at its start, from PYTHONPATH, before anything has
taken `time.time` or `datetime` for itself. The monotonic clock is left alone, as clock jumps leave
it alone.
"""

import datetime
import os
import time

_FILE = os.environ["CHAOS_CLOCK"]
_real_time = time.time
_real_time_ns = time.time_ns
_real_datetime = datetime.datetime


def _offset() -> float:
    try:
        with open(_FILE) as file:
            return float(file.read() or 0)
    except OSError:
        return 0.0


def _time() -> float:
    return _real_time() + _offset()


class _Kind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_datetime)


class _Datetime(_real_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_Datetime":
        return cls.fromtimestamp(_time(), tz)

    @classmethod
    def utcnow(cls) -> "_Datetime":
        return cls.fromtimestamp(_time(), datetime.UTC).replace(tzinfo=None)


def _time_ns() -> int:
    return _real_time_ns() + round(_offset() * 1_000_000_000)


time.time = _time
time.time_ns = _time_ns
datetime.datetime = _Datetime  # type: ignore[misc]
