"""Random numbers for pods, computed from a text, the same in jq and in Python.

    who (a text) --number_of--> 0..MODULUS-1 --draw(DrawKey)--> 0..RANGE-1

The number of a text is a polynomial over its characters. A draw mixes it in a Feistel network over
two halves, with a cube modulo a prime as the round function and round keys from seed and use. jq
has no bitwise operations and, except in gojq, no exact whole numbers beyond 2**53. All numbers here
stay below that, so they are exact in every jq.

Releases never change this function, as that would change the result of everybody's runs.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

RANGE: Final = 999_983
"""Draws are whole numbers below this prime. Modulo it, cubing is a permutation."""
MODULUS: Final = 999_966_000_263
"""The greatest prime below RANGE * RANGE."""
_FACTOR: Final = 8_191
"""The base of the polynomial: MODULUS * _FACTOR plus a character is below 2**53."""
_START: Final = 7
_ROUNDS: Final = 4
_KEY_BYTES: Final = 4
_TRY: Final = 1_000
"""The number of a try is hashed like a character with this number or a greater one. No name
contains such characters."""

_DOMAIN = b"kwok-operator/pod-draw/1"


@dataclass(frozen=True, slots=True)
class DrawKey:
    """The key of a draw: a different seed or use makes different draws."""

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
    """Hashes a text to a number."""
    number = _START
    for character in who:
        number = (number * _FACTOR + ord(character)) % MODULUS
    return number


def number_of_try(number: int, restarts: int) -> int:
    """Returns the number from which a pod draws anew after `restarts` restarts. `number` is what
    `number_of` made of the text that stands for the pod, such as namespace/name."""
    return (number * _FACTOR + _TRY + restarts) % MODULUS


def draw(key: DrawKey, number: int) -> int:
    """Draws a number from 0 to RANGE - 1, all equally likely, from `number`."""
    high, low = divmod(number, RANGE)
    for round_key in key.rounds():
        mixed = (high + round_key) % RANGE
        low, high = high, (low + mixed * mixed % RANGE * mixed) % RANGE
    return high


JQ_DEFINITIONS: Final = (
    f"def number_of: reduce explode[] as $c ({_START}; (. * {_FACTOR} + $c) % {MODULUS});"
    f" def number_of_try($restarts): (. * {_FACTOR} + {_TRY} + $restarts) % {MODULUS};"
)
"""`number_of` and `number_of_try` in jq. Their input is the text, or the number."""


def jq_draw(key: DrawKey) -> str:
    """Returns a jq expression that does what `draw` does with this key. Its input (`.`) is the
    number that `number_of` or `number_of_try` made of a text.

    It has the code of each round of the Feistel network, one after the other: gojq takes three
    times as long for a loop over an array.
    """
    rounds = f"(. % {RANGE}) as $a | ((. - $a) / {RANGE}) as $b"
    low, high = "$a", "$b"
    for i, round_key in enumerate(key.rounds()):
        cube = f"$m * $m % {RANGE} * $m"
        rounds += (
            f" | (({high} + {round_key}) % {RANGE}) as $m | (({low} + {cube}) % {RANGE}) as $r{i}"
        )
        low, high = high, f"$r{i}"
    return f"({rounds} | {high})"
