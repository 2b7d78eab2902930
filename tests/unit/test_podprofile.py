"""KwokPodProfile as the API server and Python see it."""

from typing import Any

import pytest
from pydantic import ValidationError

from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.usage import USAGE_NAME, compile_usage, without_usage

EVERYTHING: dict[str, Any] = {
    "namespaceSelector": {"matchLabels": {"team": "batch"}},
    "podSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]},
    "nodeGroups": ["gpu-b"],
    "priority": 7,
    "seed": "run-1",
    "start": {
        "delay": {"lognormal": {"p50": "8s", "p99": "1m"}},
        "initContainers": [{"fixed": "5s"}],
        "readyDelay": {"uniform": {"min": "2s", "max": "10s"}},
    },
    "run": {"duration": {"exponential": {"mean": "10m"}}},
    "failures": [
        {
            "type": "Error",
            "probability": "0.05",
            "indexes": "3,10-19",
            "after": {"samples": ["3s"]},
            "exitCode": 3,
            "message": "no",
        },
        {"type": "ImagePullBackOff", "indexes": "0"},
    ],
    "termination": {"delay": {"fixed": "3s"}},
    "usage": {
        "cpu": {"ramp": {"from": "10%", "to": "1.5", "over": "30m"}},
        "memory": {"wave": {"min": "100Mi", "max": "90%", "period": "1h", "peakAt": "30m"}},
    },
}


def spec_of(**given: Any) -> KwokPodProfileSpec:
    return KwokPodProfileSpec.model_validate(given)


def test_everything_is_read_and_written_as_it_was() -> None:
    written = spec_of(**EVERYTHING).dump()
    assert {key: written[key] for key in EVERYTHING if key != "podSelector"} == {
        **{key: EVERYTHING[key] for key in EVERYTHING if key != "podSelector"},
        "namespaceSelector": {"matchLabels": {"team": "batch"}, "matchExpressions": []},
    }
    assert spec_of(**written) == spec_of(**EVERYTHING)
    assert spec_of(start=None, failures=None, usage=None) == spec_of()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"failures": [{"type": "Error", "probability": "5%"}]}, "failures.0.probability"),
        ({"failures": [{"type": "Panic", "probability": "1"}]}, "failures.0.type"),
        ({"failures": [{"type": "Error", "exitCode": 0}]}, "failures.0.exitCode"),
        ({"failures": [{"type": "Evicted"}] * 9}, "failures"),
        ({"usage": {"cpu": {"wave": {"min": "a", "max": "1"}}}}, "usage.cpu.wave.min"),
        ({"start": []}, "start"),
        ({"run": {"duration": 7}}, "run.duration"),
    ],
)
def test_what_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        spec_of(**given)
    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == field


def usage_of(*profiles: tuple[str, dict[str, Any], list[str] | None]) -> Any:
    return compile_usage(
        [Profile.of(name, spec_of(**given), namespaces=where) for name, given, where in profiles]
    )


def test_one_object_says_what_all_use() -> None:
    a = {"usage": {"cpu": {"constant": "250m"}}, "podSelector": {"matchLabels": {"app": "a"}}}
    b = {"usage": {"memory": {"shareOfRequests": "0.5"}}, "priority": 1}
    found = usage_of(("a", a, ["x"]), ("b", b, ["y", "x"]), ("c", {}, ["z"]))
    assert found["metadata"]["name"] == USAGE_NAME
    assert found["spec"]["selector"] == {"matchNamespaces": ["x", "y"]}
    (usage,) = found["spec"]["usages"]
    cpu, memory = (usage["usage"][name]["expression"] for name in ("cpu", "memory"))
    holds = '("app" in pod.metadata.labels && pod.metadata.labels["app"] == "a")'
    assert cpu.index('["x", "y"]') < cpu.index(holds) < cpu.index('Quantity("250m")')
    assert '(container.resources.requests["memory"] * 0.500000)' in memory
    assert "250m" not in memory
    for expression in (cpu, memory):
        assert expression.count("(") == expression.count(")")


def test_a_key_beyond_ascii_is_written_as_it_is() -> None:
    """CEL knows no pairs of escapes: with one, what all pods use would be 0."""
    key = "\N{GRINNING FACE}"
    selector = {"matchLabels": {key: "x"}}
    found = usage_of(("a", {"usage": {"cpu": {"constant": "1"}}, "podSelector": selector}, None))
    assert f'pod.metadata.labels["{key}"]' in str(found)


def test_without_usage_there_is_no_object() -> None:
    assert usage_of(("a", {"run": {"duration": {"fixed": "1s"}}}, None)) is None
    assert usage_of(("a", {"usage": {"cpu": {"constant": "1"}}}, [])) is None
    everywhere = usage_of(("a", {"usage": {"cpu": {"constant": "1"}}}, None))
    assert "selector" not in everywhere["spec"]


def test_usage_without_room_is_reported_and_the_others_keep_theirs() -> None:
    """Of an expression that is too long, or too deep, kwok makes nothing at all."""
    use = {"usage": {"cpu": {"constant": "250m"}}}
    far = [Profile.of(f"far{n}", spec_of(), namespaces=[f"far{n}"]) for n in range(200)]
    near = [Profile.of(f"near{n:03}", spec_of(**use), namespaces=["x"]) for n in range(120)]
    assert without_usage([*far, *near]) == {profile.name for profile in near[90:]}
    found = compile_usage([*far, *near])
    assert found is not None
    asked = found["spec"]["usages"][0]["usage"]["cpu"]["expression"]
    assert asked.count("250m") == 90 and "far" not in asked
    huge = Profile.of("huge", spec_of(**use), namespaces=[f"ns-{n:060}" for n in range(2_000)])
    assert without_usage([near[0], huge]) == {"huge"}
