"""Files that users name: read whole, and only where they are files with an end.

A FIFO waits for a writer, a device has no end, and some files of /proc look like files and are
neither. So a file is opened without waiting, and as much is read as is meant to be there.
"""

import errno
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 * 1024 * 1024


def read_bytes(path: str | Path, *, limit: int = MAX_BYTES) -> bytes:
    """Raises OSError with a sentence where there is no ordinary file of at most `limit` bytes."""
    with open_bytes(path) as file:
        data = bytearray()
        while len(data) <= limit:
            part = file.read(limit + 1 - len(data))
            if part is None:
                raise _odd("is no ordinary file: it waits for more; copy it, and name that", path)
            if not part:
                return bytes(data)
            data += part
    raise _odd(f"has more than {limit:,} bytes; name a smaller file", path)


def open_bytes(path: str | Path) -> FileIO:
    """For those that read piece by piece. Raises OSError where it is no ordinary file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _odd("is no ordinary file (a folder, a pipe or a device); name a file", path)
        return FileIO(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _odd(problem: str, path: str | Path) -> OSError:
    return OSError(errno.EINVAL, problem, str(path))
