"""Identifies a program's file: its digest, and the version of a Go module that it is built from.

A Go program contains a list of its modules, which `go version -m` prints. The program isn't run.
"""

import hashlib
import re
from pathlib import Path
from typing import Final

from kwok_operator.userfiles import chunks

_DIGITS: Final = 12
_OVERLAP: Final = 1_000
"""This many bytes of a chunk are read again with the next one: more than a line has."""


def version_in_words(path: Path, module: str) -> str:
    """Returns a text such as `v1.14.1 (sha256 0123456789ab)`, without the version if the file
    doesn't name the module. Raises OSError.
    """
    digest, version, last = hashlib.sha256(), None, b""
    # A line of the list is: mod or dep, module, version, checksum, separated by tabs. A flag of the
    # build may set the version that the program itself prints.
    said = rb"(?:\t(?=v)|/[/\w]+\.Version=)([-+.0-9A-Za-z]{1,100})[\t\n\"' ]"
    line = re.compile(re.escape(module.encode()) + said)
    for chunk in chunks(path):
        digest.update(chunk)
        version = version or line.search(last + chunk)
        last = chunk[-_OVERLAP:]
    sha = f"sha256 {digest.hexdigest()[:_DIGITS]}"
    return f"{version[1].decode()} ({sha})" if version else sha
