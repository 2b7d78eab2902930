"""Numbers drawn for pods, the same in jq and in Python.

    who (a text) --number_of--> 0..MODULUS-1 --draw(Key)--> 0..RANGE-1

The number of a text is a polynomial over its characters. A draw mixes it in a Feistel network
over two halves, with a cube modulo a prime as the round function and round keys from seed and
use. jq has no bitwise operations and, but in gojq, no whole numbers beyond 2**53; this stays
below, so it is exact wherever it is evaluated.

A release never changes this: it would change everybody's runs.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

RANGE: Final = 999_983
"""A prime: draws are whole numbers below it. Cubes modulo it are a permutation."""
MODULUS: Final = 999_966_000_263
"""The greatest prime below RANGE * RANGE."""
_FACTOR: Final = 8_191
"""With it, MODULUS * _FACTOR and a character are below 2**53."""
_START: Final = 7
_ROUNDS: Final = 4
_KEY_BYTES: Final = 4
_TRY: Final = 1_000
"""Tries count as characters from here on, which no name has."""

_DOMAIN = b"kwok-operator/pod-draw/1"


@dataclass(frozen=True, slots=True)
class Key:
    """What is drawn: another seed or another use gives other draws."""

    seed: str
    use: str

    def rounds(self) -> tuple[int, ...]:
        return _rounds(self.seed, self.use)


@lru_cache(maxsize=1_024)
def _rounds(seed: str, use: str) -> tuple[int, ...]:
    hashed = hashlib.sha256(_DOMAIN)
    for text in (seed, use):
        data = text.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(4, "big") + data)
    digest = hashed.digest()
    parts = (digest[i * _KEY_BYTES : (i + 1) * _KEY_BYTES] for i in range(_ROUNDS))
    return tuple(int.from_bytes(part, "big") % RANGE for part in parts)


def number_of(who: str) -> int:
    """The number that stands for a text."""
    number = _START
    for character in who:
        number = (number * _FACTOR + ord(character)) % MODULUS
    return number


def number_of_try(number: int, restarts: int) -> int:
    """The number of the same text, after so many restarts."""
    return (number * _FACTOR + _TRY + restarts) % MODULUS


def draw(key: Key, number: int) -> int:
    """A number from 0 to RANGE - 1, each as likely as the others."""
    high, low = divmod(number, RANGE)
    for round_key in key.rounds():
        mixed = (high + round_key) % RANGE
        low, high = high, (low + mixed * mixed % RANGE * mixed) % RANGE
    return high


JQ_DEFINITIONS: Final = (
    f"def number_of: reduce explode[] as $c ({_START}; (. * {_FACTOR} + $c) % {MODULUS});"
    f" def number_of_try($restarts): (. * {_FACTOR} + {_TRY} + $restarts) % {MODULUS};"
    f" def draw($keys): (. % {RANGE}) as $low"
    f" | reduce $keys[] as $k ([$low, (. - $low) / {RANGE}];"
    f" ((.[1] + $k) % {RANGE}) as $m"
    f" | [.[1], (.[0] + $m * $m % {RANGE} * $m) % {RANGE}]) | .[1];"
)
"""The same in jq: number_of on a text, the others on a number."""


def jq_draw(key: Key) -> str:
    """The draw of the number that it is applied to."""
    return f"draw({list(key.rounds())})"
