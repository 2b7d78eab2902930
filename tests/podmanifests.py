"""KwokPodProfiles that the API server takes, and such that it refuses, each with a part of why. To
be used as `tests.manifests` is.
"""

from typing import Any

from tests.cloudmanifests import KINDS, SHARES, TIMES
from tests.manifests import Manifest, group


def profile(spec: Any = None, *, name: str = "batch", **metadata: Any) -> Manifest:
    """A whole KwokPodProfile; without a spec it has none."""
    return group(spec, name=name, **metadata) | {"kind": "KwokPodProfile"}


def failing(**fields: Any) -> Manifest:
    return profile({"failures": [fields]})


def using(**cpu: Any) -> Manifest:
    return profile({"usage": {"cpu": cpu}})


WAVE = {"min": "10%", "max": "2"}
LEVELS = "must be an amount such as"
TYPES = (
    "ImagePullBackOff CreateContainerConfigError Error OOMKilled CrashLoopBackOff Evicted".split()
)

GOOD: dict[str, Manifest] = {
    "profile without spec": profile(),
    "empty profile": profile({}),
    "longest name of a profile": profile({}, name="a" * 253),
    "whose pods": profile(
        {
            "namespaceSelector": {"matchLabels": {"team": "batch"}},
            "podSelector": {
                "matchLabels": {"app": ""},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["system"]},
                    {"key": "example.com/a", "operator": "Exists"},
                ],
            },
            "nodeGroups": ["gpu-b", "m5.large"],
            "priority": 1_000_000,
            "seed": "run 1, émile",
        }
    ),
    "a whole life": profile(
        {
            "start": {
                "delay": {"lognormal": {"p50": "8s", "p99": "1m"}},
                "initContainers": [{"fixed": "5s"}, {"samples": ["1s", "2s"]}],
                "readyDelay": {"uniform": {"min": "2s", "max": "10s"}},
            },
            "run": {"duration": {"exponential": {"mean": "10m"}}},
            "termination": {"delay": {"normal": {"mean": "3s", "stddev": "1s"}}},
        }
    ),
    "nothing in a life": profile({"start": {}, "run": {}, "termination": {}, "usage": {}}),
    "each failure": profile(
        {"failures": [{"type": kind, "probability": "0.1", "indexes": "3,10-19"} for kind in TYPES]}
    ),
    "a failure in detail": failing(
        type="OOMKilled", indexes="0", after={"fixed": "0s"}, exitCode=255, message="Too much."
    ),
    "a constant use": using(constant="250m"),
    "a share of requests": using(shareOfRequests="1.5"),
    "a ramp": using(ramp={"from": "0%", "to": "1500m", "over": "0s"}),
    "a wave": using(wave={**WAVE, "period": "1h30m", "peakAt": "0s"}),
    "null in a use": using(constant="1", ramp=None),
}

BAD: dict[str, tuple[Manifest, str]] = {
    "a delay that is none": (
        profile({"start": {"delay": {"fixed": "soon"}}}),
        "spec.start.delay.fixed",
    ),
    "share beyond 1": (failing(type="Error", probability="1.5"), SHARES),
    "no pods fail": (failing(type="Error"), "must have probability, indexes or both"),
    "indexes in words": (failing(type="Error", indexes="all"), "must be indexes or ranges of them"),
    "a failure of no type": (failing(probability="1"), "spec.failures[0].type"),
    "an unknown failure": (failing(type="Panic", probability="1"), "spec.failures[0].type"),
    "exit code where none exits": (
        failing(type="Evicted", probability="1", exitCode=1),
        "exitCode must not be given where no container exits",
    ),
    "a bell in a message": (
        failing(type="Error", probability="1", message="no\u0007more"),
        "must have no control characters",
    ),
    "exit code 0": (failing(type="Error", probability="1", exitCode=0), "failures[0].exitCode"),
    "nine failures": (
        profile({"failures": [{"type": "Error", "probability": "0.1"}] * 9}),
        "spec.failures",
    ),
    "two kinds of a start": (
        profile({"start": {"delay": {"fixed": "1s", "exponential": {"mean": "1s"}}}}),
        KINDS,
    ),
    "a run without a unit": (profile({"run": {"duration": {"fixed": "90"}}}), TIMES),
    "a run as text": (profile({"run": {"duration": "90s"}}), "spec.run.duration"),
    "nine init containers": (
        profile({"start": {"initContainers": [{"fixed": "1s"}] * 9}}),
        "spec.start.initContainers",
    ),
    "no seed": (profile({"seed": ""}), "spec.seed"),
    "priority below 0": (profile({"priority": -1}), "spec.priority"),
    "priority as text": (profile({"priority": "7"}), "spec.priority"),
    "a group's name in capitals": (profile({"nodeGroups": ["GPU"]}), "spec.nodeGroups[0]"),
    "a label with a blank": (
        profile({"podSelector": {"matchLabels": {"app": "a b"}}}),
        "spec.podSelector.matchLabels",
    ),
    "In without values": (
        profile({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        "matchExpressions: In and NotIn",
    ),
    "no way of use": (using(), "must have exactly one of constant"),
    "two ways of use": (
        using(constant="1", shareOfRequests="0.5"),
        "must have exactly one of constant",
    ),
    "a negative use": (using(constant="-1"), "must be a quantity and not negative"),
    "a share in percent": (using(shareOfRequests="80%"), "must be a number as text, such as"),
    "a level in words": (using(wave={**WAVE, "max": "all"}), LEVELS),
    "a ramp from nothing": (using(ramp={"to": "1", "over": "1m"}), "spec.usage.cpu.ramp.from"),
    "a wave that stands": (
        using(wave={**WAVE, "period": "0h0m"}),
        "wave.period must be longer than 0s",
    ),
}
