"""What is told about an object that was dropped or changed: the entries of the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """An object, as people call it. `namespace` is empty where the kind has none."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


class Reason(StrEnum):
    """Why; REASONS says each in a sentence."""

    NO_OBJECT = "NoObject"


REASONS: Final[Mapping[Reason, str]] = {
    Reason.NO_OBJECT: "it is no object with a name, so nothing can be made of it",
}


@dataclass(frozen=True, slots=True)
class Note:
    """`field` is the path that it is about, `detail` what else there is to say of it; `count` how
    many objects it stands for. `dropped`: nothing of the object is left.
    """

    ref: Ref
    reason: Reason
    field: str = ""
    detail: str = ""
    count: int = 1
    dropped: bool = False
