"""Defines what the checks of a scenario may read outside it: files, programs, the cluster.

This is only the interface; `rehearsal/surroundings.py` implements it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kwok_operator.errors import KwokOperatorError


class UnusableReferenceError(KwokOperatorError):
    """Something that a scenario names doesn't exist, or can't be used. The text has the problem and
    the remedy.
    """


@dataclass(frozen=True, slots=True)
class Material:
    """The files that are applied for a path: the name and text of each.

    It is incomplete if more is applied than the files show, as by a kustomization's patches.
    """

    texts: tuple[tuple[str, str], ...]
    complete: bool = True


class Surroundings(Protocol):
    """What the checks of a scenario may read outside it: files, programs, the cluster. Methods
    raise UnusableReferenceError with a sentence that follows the field's name.
    """

    @property
    def own_cluster(self) -> bool:
        """Whether the cluster is created for the rehearsal. Otherwise it may contain anything."""

    @property
    def kubernetes(self) -> tuple[str, ...]:
        """The minor versions of Kubernetes that a cluster can have; empty if unknown."""

    def material(self, path: str) -> Material:
        """Returns the files that are applied if a scenario names this path."""

    def text(self, path: str) -> str:
        """Returns the text of a file without objects to apply, such as a placement."""

    def beside(self, program: str, name: str) -> str | None:
        """Returns the path of a file or folder beside a program; None if the program is missing."""

    def executable(self, program: str) -> bytes:
        """Returns the content of a program's file; empty if there is none, or it can't be read."""

    def check_program(self, name: str) -> None:
        """Checks that a process or a step can start this program. No error if `lacks` is True for
        the program.
        """

    def lacks(self, name: str) -> bool:
        """Whether a program is missing and that is no problem, as the scenario is only checked, not
        played.
        """

    def check_trace(self, path: str) -> None:
        """Checks that a trace can be replayed."""

    def check_trouble(self, plan: Mapping[str, Any]) -> None:
        """Checks a plan of failures of the cloud's API."""
