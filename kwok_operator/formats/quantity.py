"""Kubernetes quantities ("500m", "16Gi", 4): parses them, and writes them in canonical form.

The grammar is apimachinery's pkg/api/resource.Quantity, without forms that are always mistakes: no
digits at all ("Gi" means 0 in Kubernetes), exponents of three digits. Values are exact, in the unit
of the resource (cores, bytes, pieces).
"""

import math
import re
from fractions import Fraction

_PATTERN = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
_MAX_LENGTH = 100
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse_quantity(value: object) -> Fraction:
    """Returns the number that a quantity stands for.

    Raises ValueError if the API server would refuse the value, with a hint at what is wrong.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("is not a number or a string such as 4, 500m or 16Gi")
    text = str(value)
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if not match:
        raise ValueError("is not a quantity such as 4, 500m or 16Gi")
    number, suffix = Fraction(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * Fraction(2) ** _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number * Fraction(10) ** exponent


def format_quantity(amount: Fraction, *, like: object) -> str:
    """Writes an amount in the notation (binary or decimal) of the quantity `like`.

    It uses the largest unit that leaves no fraction. Fractions below a nanopart, the smallest unit,
    are rounded up, as the API server does.
    """
    suffix = (_PATTERN.fullmatch(str(like)) or ["", "", ""])[2] or ""
    if suffix in _BINARY and amount:
        for unit, power in reversed(_BINARY.items()):
            if amount % 2**power == 0:
                return f"{amount / 2**power}{unit}"
    for unit in ("", "m", "u"):
        scaled = amount / Fraction(10) ** _DECIMAL[unit]
        if scaled.denominator == 1:
            return f"{scaled}{unit}"
    return f"{math.ceil(amount * 10**9)}n"
