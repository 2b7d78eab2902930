"""Reads the file of a Karpenter program: its provider, and the CRDs of its version.

A Go program contains the paths of its packages, and Karpenter also embeds the CRDs that it was
built with. The program isn't run. If it is a script, nothing is known of it.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from kwok_operator.errors import ManifestError
from kwok_operator.formats.yamltext import load_documents

_CORE: Final = b"sigs.k8s.io/karpenter/pkg/"
_PROVIDER: Final = b"/karpenter/kwok/cloudprovider"
_SCRIPT: Final = b"#!"
_BEGIN: Final = re.compile(
    rb"---\napiVersion: apiextensions\.k8s\.io/v1\nkind: CustomResourceDefinition\n"
)
_REST: Final = re.compile(
    # Nothing marks its end in the file. controller-gen writes the subresources last.
    rb"[^\0]{1,500000}?\n +subresources:\n(?: +[^\n\0]*\n){0,5}? +status: \{\}\n"
)
_MOST: Final = 20
"""The most CRDs that are read: Karpenter has five."""
_REMEDY: Final = "build the folder kwok of kubernetes-sigs/karpenter, and name that program"


def no_karpenter(program: bytes) -> str:
    """Returns why a program isn't Karpenter with the kwok provider; empty if it may be."""
    if not program or program.startswith(_SCRIPT) or _PROVIDER in program:
        return ""
    if _CORE in program:
        return f"is Karpenter with another provider, which needs its cloud; {_REMEDY}"
    return f"is no Karpenter; {_REMEDY}"


def missing_gates(program: bytes, gates: Iterable[str]) -> list[str]:
    """Returns the feature gates that a program doesn't know, and would silently ignore."""
    unknown = not program or program.startswith(_SCRIPT)
    return [] if unknown else [each for each in sorted(gates) if each.encode() not in program]


def embedded_crds(program: bytes) -> Iterator[Any]:
    """Yields the CRDs that a program contains, except those that can't be parsed."""
    for begin in islice(_BEGIN.finditer(program), _MOST):
        if rest := _REST.match(program, begin.end()):
            with suppress(ManifestError, UnicodeDecodeError):
                yield from load_documents((begin[0] + rest[0]).decode(), where="the program")
