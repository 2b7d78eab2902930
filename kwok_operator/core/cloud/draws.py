"""Random numbers that are not remembered: the same question always has the same answer.

A draw is made from the seed, the group's name, the instance's serial and what is drawn, and from
nothing else: no order of calls, no state, no clock. What is drawn is named by a text such as
"readiness" or "creation/3"; other names are other draws.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kwok_operator.models.cloud import Cloud

# Part of every hash, and never changed: a release that draws otherwise breaks everybody's runs.
_DOMAIN = b"kwok-operator/draw/1"
_BITS = 52
"""A number with half a step added still has an exact float, so no draw is 0 or 1."""
_RANGE: Final = float(2**_BITS)


@dataclass(frozen=True, slots=True)
class Instance:
    """Who draws."""

    seed: str
    group: str
    serial: int

    def draw(self, what: str) -> float:
        """A number greater than 0 and less than 1."""
        hashed = hashlib.sha256(_known_part(self.seed, self.group))
        hashed.update(_field(str(self.serial)))
        hashed.update(_field(what))
        number = int.from_bytes(hashed.digest()[:8], "big") >> (64 - _BITS)
        return (number + 0.5) / _RANGE


def instance(cloud: Cloud, *, group: str, serial: int) -> Instance:
    """The instance of a group; the seed is the group's name unless there is one."""
    return Instance(cloud.seed or group, group, serial)


def _field(text: str) -> bytes:
    # With its length before it, no text can run into the next.
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


@lru_cache(maxsize=1_024)
def _known_part(seed: str, group: str) -> bytes:
    return _DOMAIN + _field(seed) + _field(group)
