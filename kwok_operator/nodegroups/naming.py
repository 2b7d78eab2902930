"""Names of nodes, with the serials in them, and of derived groups.

A node is called `<group>-<hash>-<serial>`: four characters from the group's uid, then a number that
counts up, the *serial*. So no name is ever used again, and pods left behind on a deleted node can't
wake up on a new one. The name of a derived group depends only on the value of the label that it is
made from.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kwok_operator.api.base import DNS_NAME
from kwok_operator.constants import (
    CA_NODE_GROUP_ANNOTATION,
    EMULATED_NODE_GROUP,
    MAX_GROUP_NAME_LENGTH,
    NODE_GROUP_LABEL,
)
from kwok_operator.nodegroups.api.status import LAST_SERIAL

_SERIAL_DIGITS = 6
_MOST_DIGITS = len(str(LAST_SERIAL))
_HASH_LENGTH = 4


def uid_hash(uid: str) -> str:
    """Returns four lower-case letters or digits derived from a uid (32**4, about a million
    values)."""
    digest = hashlib.sha256(uid.encode()).digest()
    return base64.b32encode(digest).decode().lower()[:_HASH_LENGTH]


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names of one group's nodes. Two groups of the same name but different uid have different
    prefixes."""

    prefix: str

    @classmethod
    def of(cls, group: str, uid: str) -> "NodeNames":
        return cls(prefix=f"{group}-{uid_hash(uid)}-")

    def name(self, serial: int) -> str:
        return f"{self.prefix}{serial:0{_SERIAL_DIGITS}d}"

    def serial(self, name: str) -> int | None:
        """Returns the serial in a name; None if `name()` never returns this name."""
        digits = name.removeprefix(self.prefix)
        if digits == name or not (digits.isascii() and digits.isdigit()):
            return None
        if len(digits) > _MOST_DIGITS:
            return None
        serial = int(digits)
        return serial if self.name(serial) == name else None


def longest_name(group: str, *, node: bool = True) -> str:
    """Returns a name as long as those of a group's first million nodes; with `node=False`, as long
    as their common prefix."""
    names = NodeNames.of(group, "")
    return names.name(0) if node else names.prefix.rstrip("-")


def pattern_of_node(group: str, serial: int) -> str:
    """Returns a wildcard pattern of the name that the node with this serial has in any group of
    this name, whatever its uid: each ? stands for one character of the hash."""
    return NodeNames(prefix=f"{group}-{'?' * _HASH_LENGTH}-").name(serial)


def group_of_node(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Returns the group that a node's label (or annotation) names; empty if it names none."""
    label = labels.get(NODE_GROUP_LABEL, "")
    if label == EMULATED_NODE_GROUP:
        return annotations.get(CA_NODE_GROUP_ANNOTATION, label)
    return label


_OBJECT_NAME = re.compile(DNS_NAME)
_MAX_OBJECT_NAME: Final = 253
_GROUP_HASH_LENGTH: Final = 5
_NOTHING_READABLE: Final = "group"


def is_object_name(text: str) -> bool:
    """Whether the API server accepts the text as the name of an object."""
    return len(text) <= _MAX_OBJECT_NAME and _OBJECT_NAME.fullmatch(text) is not None


def is_group_name(text: str) -> bool:
    """Whether the API server accepts the text as the name of a KwokNodeGroup."""
    return len(text) <= MAX_GROUP_NAME_LENGTH and is_object_name(text)


def group_name(value: str) -> str:
    """Makes the name of a derived group from a label's value: `m5.large` stays, `Standard_D4s_v3`
    becomes `standard-d4s-v3-` and a hash."""
    if is_group_name(value):
        return value
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).digest()
    suffix = base64.b32encode(digest).decode().lower()[:_GROUP_HASH_LENGTH]
    readable = re.sub(r"[^a-z0-9]+", "-", value.lower())[: MAX_GROUP_NAME_LENGTH - len(suffix) - 1]
    return f"{readable.strip('-') or _NOTHING_READABLE}-{suffix}"
