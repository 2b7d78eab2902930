"""Times in spec.cloud: fixed ones, and those that are drawn for each instance anew.

Owns how a time and a distribution are written, and what the API server refuses in them. draws.py
computes which span a draw gives.
"""

from typing import Annotated

from pydantic import Field

from kwok_operator.api.base import ApiModel, ApiRule, Text, exactly_one_of, matches, rules
from kwok_operator.formats.times import parse_duration

MAX_HOURS = 720
"""Longer times count as so many hours: 30 days."""
NEVER = "Never"

_TIME_PARTS = r"([0-9]{1,3}h)?([0-9]{1,5}m)?([0-9]{1,7}s)?"
_TIME = rf"^{_TIME_PARTS}$"
_TIME_OR_NEVER = rf"^({_TIME_PARTS}|{NEVER})$"
_TIME_IN_WORDS = "a time such as 90s, 10m or 1h30m"
_MAX_TIME_LENGTH = 16


Time = Annotated[
    str,
    Text(
        pattern=_TIME,
        min_length=2,
        max_length=_MAX_TIME_LENGTH,
        message=f"must be {_TIME_IN_WORDS}",
    ),
]
"""A time such as 90s or 1h30m; over 720h it counts as 720h."""

TimeOrNever = Annotated[
    str,
    Text(
        pattern=_TIME_OR_NEVER,
        min_length=2,
        max_length=_MAX_TIME_LENGTH,
        message=f"must be {_TIME_IN_WORDS}, or {NEVER}",
    ),
]
"""A time, or Never."""


def _in_order(low: str, high: str, *, of: str) -> ApiRule:
    # The patterns first: a time that breaks its pattern is reported once, by the pattern.
    a, b = f"self.{low}", f"self.{high}"
    return ApiRule(
        f"!{matches(_TIME, of=a)} || !{matches(_TIME, of=b)} || duration({a}) <= duration({b})",
        f"{of}.{low} must not be longer than {of}.{high}: lower one or raise the other",
        lambda part: parse_duration(part[low]) <= parse_duration(part[high]),
    )


class Uniform(ApiModel):
    model_config = rules(_in_order("min", "max", of="uniform"))

    min: Time = Field(description="The shortest time. Example: 20s.")
    max: Time = Field(description="The longest time. Example: 1m.")


class Normal(ApiModel):
    mean: Time = Field(description="The mean. Example: 45s.")
    stddev: Time = Field(
        description="The standard deviation; what falls below zero counts as zero. Example: 10s."
    )


class Lognormal(ApiModel):
    model_config = rules(
        _in_order("p50", "p99", of="lognormal"),
        ApiRule(
            f"!{matches(_TIME, of='self.p50')} || duration(self.p50) > duration('0s')",
            "lognormal.p50 must be longer than 0s: for no delay, give fixed: 0s instead",
            lambda lognormal: parse_duration(lognormal["p50"]) > 0,
        ),
    )

    p50: Time = Field(description="The time that half of the draws stay within. Example: 40s.")
    p99: Time = Field(description="The time that 99 of 100 stay within. Example: 3m.")


class Exponential(ApiModel):
    mean: Time = Field(description="The mean. Example: 6h.")


class Delay(ApiModel):
    """A time that is drawn for each instance anew."""

    model_config = rules(
        exactly_one_of("fixed", "uniform", "normal", "lognormal", "exponential", "samples")
    )

    fixed: Time | None = Field(
        default=None, description="Always the same time. Default: not this way. Example: 30s."
    )
    uniform: Uniform | None = Field(
        default=None, description="Any time between two. Example: {min: 20s, max: 1m}."
    )
    normal: Normal | None = Field(
        default=None, description="Around a mean. Example: {mean: 45s, stddev: 10s}."
    )
    lognormal: Lognormal | None = Field(
        default=None,
        description="Mostly short with a long tail, as boots of machines are."
        " Example: {p50: 40s, p99: 3m}.",
    )
    exponential: Exponential | None = Field(
        default=None, description="As likely to end now as at any other time. Example: {mean: 6h}."
    )
    samples: tuple[Time, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="Times as measured, each as likely as the others; name one twice to have it"
        " twice as often. At most 100. Default: not this way. Example: [31s, 38s, 2m].",
    )
