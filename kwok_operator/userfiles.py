"""Reads files that users name: only those that have an end, and only up to a limit. Writes files
that only their owner may read.

A file on the command line may be a pipe: `validate <(kustomize build .)`. A file that another file
names must be a regular file: a FIFO waits for a writer, a device has no end, and some files of
/proc look like regular files but are not. So it is opened without waiting.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 * 1024 * 1024
_CHUNK: Final = 2**16


def read_bytes(path: str | Path, *, limit: int = MAX_BYTES, given: bool = False) -> bytes:
    """Returns the whole file; `given`: it was named on the command line, so it may be a pipe.

    Raises OSError with a sentence if it has more than `limit` bytes, or is of a kind that isn't
    accepted.
    """
    data = bytearray()
    for chunk in chunks(path, given=given):
        data += chunk
        if len(data) > limit:
            raise _odd(f"has more than {limit:,} bytes; name a smaller file", path, errno.EFBIG)
    return bytes(data)


def chunks(path: str | Path, *, given: bool = False) -> Iterator[bytes]:
    """Yields the file piece by piece. Raises OSError like `read_bytes`, but has no limit of
    length."""
    with FileIO(str(path), opener=None if given else _open) as file:
        while (chunk := file.read(_CHUNK)) != b"":
            if chunk is None:
                raise _odd("is no ordinary file: it waits for more; copy it, and name that", path)
            yield chunk


def write_secretly(path: Path, content: bytes) -> None:
    """Writes a file that only its owner may read: whole, or not at all. A link in its place is
    replaced, and the file that it points to stays as it is. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    kind = os.fstat(descriptor)
    # /dev/null is accepted as an empty file: KUBECONFIG=/dev/null.
    nothing = stat.S_ISCHR(kind.st_mode) and kind.st_rdev == os.stat(os.devnull).st_rdev
    if stat.S_ISREG(kind.st_mode) or nothing:
        return descriptor
    os.close(descriptor)
    what = "a directory" if stat.S_ISDIR(kind.st_mode) else "no ordinary file: a pipe or a device"
    raise _odd(f"is {what}; name a file", path)


def _odd(problem: str, path: str | Path, number: int = errno.EINVAL) -> OSError:
    return OSError(number, problem, str(path))
