"""One run at a time builds the tools, one at a time creates a cluster, one owns it.

A lock is an flock on a file in the cache: the kernel gives it up when its holder ends, however
that happens, so nothing is ever stale. The file names the holder, which is only for the message of
those who wait.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kwok_operator.controlplane.stopping import go_on
from kwok_operator.reporter import Reporter, elapsed

_POLL_SECONDS = 0.2


@contextmanager
def exclusive(path: Path, *, purpose: str, reporter: Reporter) -> Iterator[None]:
    """Hold the lock while the block runs; wait for it, saying for whom."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _acquire(file.fileno(), path=path, reporter=reporter)
        file.truncate(0)
        file.write(f"process {os.getpid()}, {purpose}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def hold(path: Path) -> TextIO:
    """Hold the lock until the file is closed; raise BlockingIOError if somebody else holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def _acquire(descriptor: int, *, path: Path, reporter: Reporter) -> None:
    started = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        holder = path.read_text(encoding="utf-8").strip() or "another process"
        text = f"waiting for {holder}: only one may at a time (lock {path})"
        if told:
            reporter.update(f"{text}, {elapsed(time.monotonic() - started)}")
        else:
            reporter.say(text)
            told = True
        go_on()
        time.sleep(_POLL_SECONDS)
