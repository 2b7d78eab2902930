"""Locks: one process at a time builds the tools, one creates a cluster, one owns a given cluster.

The kernel releases a lock when its holder ends, however that happens. The lock file names the
holder, so that waiting processes can report it; nothing else depends on that text.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from kwok_operator.controlplane.stopping import go_on
from kwok_operator.reporter import Reporter, elapsed

_POLL_SECONDS = 0.2


@contextmanager
def exclusive(path: Path, *, purpose: str, reporter: Reporter) -> Iterator[None]:
    """Hold the lock while the block runs. If another process holds it, report which, and wait."""
    lock = _lock(path)
    started = time.monotonic()
    report = reporter.say
    while True:
        try:
            lock.acquire(timeout=_POLL_SECONDS, poll_interval=_POLL_SECONDS)
            break
        except Timeout:
            holder = path.read_text(encoding="utf-8").strip() or "another process"
            seconds = elapsed(time.monotonic() - started)
            report(f"waiting for {holder}: only one may at a time (lock {path}), {seconds}")
            report = reporter.update
            go_on()
    try:
        _name_holder(path, f"process {os.getpid()}, {purpose}")
        yield
    finally:
        _name_holder(path, "")
        lock.release()


def hold(path: Path) -> AbstractContextManager[object]:
    """Hold the lock until the block ends; raise Timeout if another process holds it."""
    return _lock(path).acquire(blocking=False)


def _name_holder(path: Path, text: str) -> None:
    # The disk may be full, and what holds the lock may make room.
    with suppress(OSError):
        path.write_text(text, encoding="utf-8")


def _lock(path: Path) -> FileLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    # thread_local=False: an event loop takes the lock in one thread and releases it in another.
    return FileLock(path, thread_local=False)
