"""Student's t distribution, which the standard library lacks.

Computed from the incomplete beta function as a continued fraction (Numerical Recipes, 6.4).
"""

import math
from functools import lru_cache
from typing import Final

_STEPS: Final = 300
_CLOSE: Final = 1e-14
_TINY: Final = 1e-300


def two_sided_p(t: float, freedom: int) -> float:
    """Returns the probability of a value of t at least as far from 0. `freedom` is the number of
    degrees of freedom, from 1.
    """
    if math.isinf(t):
        return 0.0
    return _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


@lru_cache(maxsize=1024)
def quantile(two_sided: float, freedom: int) -> float:
    """Returns the value of t that has this two-sided probability."""
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > two_sided:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if two_sided_p(middle, freedom) > two_sided:
            low = middle
        else:
            high = middle
    return high


def _beta(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Evaluates the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value


def _away(value: float) -> float:
    """Keeps a divisor away from 0."""
    return value if abs(value) > _TINY else _TINY
