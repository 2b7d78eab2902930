"""Converts cluster-autoscaler's options from Go's syntax to the syntax of a group's spec."""

import math
import re
from decimal import Decimal
from typing import Final

_GO_DURATION: Final = re.compile(r"\+?(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|m|s|ms|us|µs|ns))+")
_GO_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")
_SECONDS: Final = {"h": "3600", "m": "60", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6"}
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?")
_MAX_OPTION: Final = 100
"""The most characters of an option. Longer texts are no real values, and too large for Decimal."""


def share(text: str) -> str:
    """Converts a number from 0 to 1 to its text in a group's spec; returns "" for anything else."""
    if len(text) > _MAX_OPTION or not _FLOAT.fullmatch(text):
        return ""
    number = Decimal(text)
    if not 0 <= number <= 1:
        return ""
    return f"{abs(number):.6f}".rstrip("0").rstrip(".") or "0"


def duration(text: str) -> str:
    """Converts a Go duration to whole seconds, rounded up, such as 90s; returns "" for anything
    else."""
    text = text.replace("\u03bc", "\u00b5")
    if len(text) > _MAX_OPTION or (text != "0" and not _GO_DURATION.fullmatch(text)):
        return ""
    parts = (
        Decimal(number) * Decimal(_SECONDS.get(unit, "1e-9"))
        for number, unit in _GO_PART.findall(text)
    )
    seconds = math.ceil(sum(parts, Decimal(0)))
    return f"{seconds}s" if seconds < 10**8 else ""
