"""What a scenario refers to outside of itself, as its checks ask for it.

Owns the questions; who answers them reads files and looks for programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kwok_operator.errors import KwokOperatorError


class UnusableReferenceError(KwokOperatorError):
    """Something that a scenario names isn't there, or can't be used: problem and remedy."""


@dataclass(frozen=True, slots=True)
class Material:
    """What applying a path means: name and text of each file.

    It isn't complete where more comes of it than the files say, as of a kustomization's patches.
    """

    texts: tuple[tuple[str, str], ...]
    complete: bool = True


class Surroundings(Protocol):
    """Each raises UnusableReferenceError with a sentence that goes on after the field's name."""

    @property
    def own_cluster(self) -> bool:
        """Whether the cluster is made for the rehearsal: else anything may be there."""

    @property
    def kubernetes(self) -> tuple[str, ...]:
        """The minor versions that a cluster can have; empty where that isn't known."""

    def material(self, path: str) -> Material:
        """What is to be applied."""

    def check_program(self, name: str) -> None:
        """A program of a process or a step."""

    def check_trace(self, path: str) -> None:
        """A trace to play."""

    def check_trouble(self, plan: Mapping[str, Any]) -> None:
        """What goes wrong with the cloud's API."""
