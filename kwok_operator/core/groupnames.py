"""The name of the group that stands for a value of a label or an annotation.

A pure function of the value: a name never changes because another value appears. A value that is
a good name stays as it is, any other becomes a readable part and five characters of a hash.
"""

import base64
import hashlib
import re
from typing import Final

from kwok_operator.constants import MAX_GROUP_NAME_LENGTH
from kwok_operator.models.base import DNS_NAME

_OBJECT_NAME = re.compile(DNS_NAME)
_MAX_OBJECT_NAME: Final = 253
_HASH_LENGTH: Final = 5
_NOTHING_READABLE: Final = "group"


def is_object_name(text: str) -> bool:
    """Whether the API server takes it for the name of an object."""
    return len(text) <= _MAX_OBJECT_NAME and _OBJECT_NAME.fullmatch(text) is not None


def is_group_name(text: str) -> bool:
    """Whether the API server takes it for the name of a KwokNodeGroup."""
    return len(text) <= MAX_GROUP_NAME_LENGTH and is_object_name(text)


def group_name(value: str) -> str:
    """`m5.large` is `m5.large`, `Standard_D4s_v3` is `standard-d4s-v3-` and a hash."""
    if is_group_name(value):
        return value
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).digest()
    suffix = base64.b32encode(digest).decode().lower()[:_HASH_LENGTH]
    readable = re.sub(r"[^a-z0-9]+", "-", value.lower())[: MAX_GROUP_NAME_LENGTH - len(suffix) - 1]
    return f"{readable.strip('-') or _NOTHING_READABLE}-{suffix}"
