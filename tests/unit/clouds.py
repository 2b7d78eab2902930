"""Any spec.cloud, for property-based tests, with times of seconds to minutes."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from kwok_operator.cloud.api.cloud import Cloud

GROUP = "group-a"
QUICK = settings(deadline=None, max_examples=50)
"""For properties of whole courses, which are slow to make up."""


def cloud(**fields: Any) -> Cloud:
    """A spec.cloud as in a manifest, in camelCase."""
    return Cloud.model_validate(fields)


_TIMES = st.integers(0, 900).map(lambda seconds: f"{seconds}s")
_POSITIVE = st.integers(1, 900).map(lambda seconds: f"{seconds}s")
_SHARES = st.sampled_from(["0", "0.01", "0.3", "0.5", "0.9", "1"])
_SERIALS = st.sampled_from(["0", "3,10-19", "0-99", "7-3"])

DELAYS = st.one_of(
    st.fixed_dictionaries({"fixed": _TIMES}),
    st.tuples(st.integers(0, 300), st.integers(0, 300)).map(
        lambda ends: {"uniform": {"min": f"{min(ends)}s", "max": f"{max(ends)}s"}}
    ),
    st.fixed_dictionaries({"normal": st.fixed_dictionaries({"mean": _TIMES, "stddev": _TIMES})}),
    st.tuples(st.integers(1, 300), st.integers(0, 300)).map(
        lambda ends: {"lognormal": {"p50": f"{ends[0]}s", "p99": f"{ends[0] + ends[1]}s"}}
    ),
    st.fixed_dictionaries({"exponential": st.fixed_dictionaries({"mean": _TIMES})}),
    st.fixed_dictionaries({"samples": st.lists(_TIMES, min_size=1, max_size=5)}),
)

_CHANCES = st.one_of(
    st.fixed_dictionaries({"probability": _SHARES}),
    st.fixed_dictionaries({"serials": _SERIALS}),
)


def _with(base: st.SearchStrategy[dict[str, Any]], **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(lambda a, b: {**a, **b}, base, st.fixed_dictionaries({}, optional=more))


_CREATION = _with(
    _CHANCES,
    after=DELAYS,
    times=st.integers(0, 5),
    **{"class": st.sampled_from(["OutOfResources", "QuotaExceeded", "Other"])},
)
_FAILURES = st.fixed_dictionaries(
    {},
    optional={
        "creation": st.lists(_CREATION, max_size=3),
        "neverRegisters": _CHANCES,
        "neverReady": _CHANCES,
        "slowDeletion": st.builds(lambda a, b: {**a, "delay": b}, _CHANCES, DELAYS),
    },
)
_INTERRUPTIONS = st.one_of(
    st.fixed_dictionaries({"lifetime": DELAYS}),
    st.fixed_dictionaries({"hourlyRate": _SHARES}),
    st.fixed_dictionaries({"maxLifetime": _POSITIVE}),
).flatmap(lambda part: _with(st.just(part), notice=_TIMES))
_TAINTS = st.lists(DELAYS, max_size=3).map(
    lambda delays: [
        {"key": f"taint-{n}", "effect": "NoSchedule", "removedAfter": delay}
        for n, delay in enumerate(delays)
    ]
)
_RESOURCES = st.lists(DELAYS, max_size=2).map(
    lambda delays: [{"name": f"example.com/r{n}", "after": d} for n, d in enumerate(delays)]
)

_DEVICES = st.fixed_dictionaries(
    {},
    optional={
        "after": DELAYS,
        "neverPublished": _CHANCES,
        "failures": _CHANCES.flatmap(lambda part: _with(st.just(part), after=DELAYS)),
    },
)

CLOUDS: st.SearchStrategy[Cloud] = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.text(min_size=1, max_size=8),
        "provisioningDelay": DELAYS,
        "readinessDelay": DELAYS,
        "startupTaints": _TAINTS,
        "lateResources": _RESOURCES,
        "devices": _DEVICES,
        "failures": _FAILURES,
        "retryAfter": st.sampled_from(["Never", "0s", "10s", "5m"]),
        "interruptions": _INTERRUPTIONS,
        "flapping": st.fixed_dictionaries(
            {"period": _POSITIVE}, optional={"notReady": _SHARES, "nodes": _SHARES}
        ),
    },
).map(Cloud.model_validate)
