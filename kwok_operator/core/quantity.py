"""Kubernetes quantities ("500m", "16Gi", 4): read, subtracted, written in the canonical way.

The grammar is apimachinery's pkg/api/resource.Quantity. Values are exact decimals, in the unit of
the resource (cores, bytes, pieces).
"""

import re
from decimal import ROUND_CEILING, Decimal

_PATTERN = re.compile(
    r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse_quantity(value: object) -> Decimal:
    """The number a quantity stands for.

    Raises ValueError where the API server would refuse the value, with a hint at what is wrong.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("is not a number or a string such as 4, 500m or 16Gi")
    match = _PATTERN.match(str(value))
    if not match:
        raise ValueError("is not a quantity such as 4, 500m or 16Gi")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * Decimal(2) ** _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def format_quantity(amount: Decimal, *, like: object) -> str:
    """Writes an amount in the notation of the quantity it derives from: binary, milli or plain."""
    suffix = (_PATTERN.match(str(like)) or ["", "", ""])[2] or ""
    if suffix in _BINARY:
        for unit, power in reversed(_BINARY.items()):
            if amount and amount % 2**power == 0:
                return f"{int(amount / 2**power)}{unit}"
    if amount == amount.to_integral_value():
        return str(int(amount))
    return f"{int((amount * 1000).to_integral_value(rounding=ROUND_CEILING))}m"
