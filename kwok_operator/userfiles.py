"""Files that users name: only what has an end is read, and only so much of it.

What stands on a command line may be a pipe: `validate <(kustomize build .)`. What another file
names is an ordinary file: a FIFO waits for a writer, a device has no end, and some files of /proc
look like files and are neither. So it is opened without waiting.
"""

import errno
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 * 1024 * 1024
_CHUNK: Final = 2**16


def read_bytes(path: str | Path, *, limit: int = MAX_BYTES, given: bool = False) -> bytes:
    """The whole file; `given` is one of the command line.

    Raises OSError with a sentence where it has more than `limit` bytes, or can't be read so.
    """
    data = bytearray()
    for chunk in chunks(path, given=given):
        data += chunk
        if len(data) > limit:
            raise _odd(f"has more than {limit:,} bytes; name a smaller file", path, errno.EFBIG)
    return bytes(data)


def chunks(path: str | Path, *, given: bool = False) -> Iterator[bytes]:
    """The file piece by piece. Raises OSError as above, whatever its length."""
    with FileIO(str(path), opener=None if given else _open) as file:
        while (chunk := file.read(_CHUNK)) != b"":
            if chunk is None:
                raise _odd("is no ordinary file: it waits for more; copy it, and name that", path)
            yield chunk


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    kind = os.fstat(descriptor)
    # An empty file by another name: KUBECONFIG=/dev/null.
    nothing = stat.S_ISCHR(kind.st_mode) and kind.st_rdev == os.stat(os.devnull).st_rdev
    if stat.S_ISREG(kind.st_mode) or nothing:
        return descriptor
    os.close(descriptor)
    what = "a directory" if stat.S_ISDIR(kind.st_mode) else "no ordinary file: a pipe or a device"
    raise _odd(f"is {what}; name a file", path)


def _odd(problem: str, path: str | Path, number: int = errno.EINVAL) -> OSError:
    return OSError(number, problem, str(path))
