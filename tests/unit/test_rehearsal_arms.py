"""A scenario with arms."""

from typing import Any

import pytest
import yaml

from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile, read_scenario
from tests.fakes.scenarios import GROUP, fields, scenario

CA: dict[str, Any] = {"name": "ca", "clusterAutoscaler": {"flags": {"v": "1", "expander": "price"}}}


def read(value: Any, arm: str | None = "b") -> ScenarioFile:
    return read_scenario("a.yaml", yaml.safe_dump(value, sort_keys=False), arm=arm)


def arm_b(base: dict[str, Any], differs: Any) -> dict[str, Any]:
    """What arm b comes to, as a scenario would have it."""
    found = read({**base, "arms": {"a": {}, "b": differs}})
    assert found.scenario is not None, found.findings
    return found.scenario.dump()


@pytest.mark.parametrize(
    ("differs", "path", "expected"),
    [
        ({"until": {"atMost": "5m"}}, ("until", "atMost"), 300.0),
        ({"until": {"atMost": "5m"}}, ("until", "settledFor"), 7.0),
        ({"until": {"settledFor": None}}, ("until",), {"atMost": 60.0}),
        (
            {"processes": [{"name": "ca", "clusterAutoscaler": {"flags": {"v": None, "x": 2}}}]},
            ("processes",),
            [{"name": "ca", "clusterAutoscaler": {"flags": {"expander": "price", "x": "2"}}}],
        ),
        (
            {"processes": [{"name": "new", "command": ["tool"]}]},
            ("processes", 1),
            {"name": "new", "command": ["tool"]},
        ),
        ({"expect": [{"figure": "cost", "atMost": 1}]}, ("expect", 0, "figure"), "cost"),
        ({"workloads": [{"name": "web", "count": 2}]}, ("workloads", 0, "count"), 2),
        ({"workloads": [{"name": "web", "count": 2}]}, ("workloads", 0, "pods"), {"cpu": "1"}),
        (
            {"apply": [{"object": {**GROUP, "spec": {"targetSize": 5}}}, "b.yaml"]},
            ("apply",),
            [{"object": {**GROUP, "spec": {"targetSize": 5}}}, {"path": "a/"}, {"path": "b.yaml"}],
        ),
        (None, ("until", "atMost"), 60.0),
    ],
)
def test_an_arm_is_merged_over_the_rest(
    differs: Any, path: tuple[str | int, ...], expected: Any
) -> None:
    until = {"settledFor": "7s", "atMost": "1m"}
    base = scenario(processes=[CA], until=until, apply=[{"object": GROUP}, "a/"])
    found: Any = arm_b(base, differs)
    for step in path:
        found = found[step]
    assert found == expected
    assert "arms" not in arm_b(base, differs)


def test_what_is_wrong_in_an_arm_has_its_line() -> None:
    value = scenario(processes=[CA], arms={"a": {}, "b": {"until": {"atMost": "soon"}}})
    lines = yaml.safe_dump(value, sort_keys=False).splitlines()
    (finding,) = read(value).findings
    assert finding.line == next(n for n, text in enumerate(lines, 1) if "soon" in text)
    assert not read(value, "a").findings
    below = {"processes": [{"name": "ca", "clusterAutoscaler": {"flgs": {}}}]}
    value = scenario(processes=[CA], arms={"a": {}, "b": below})
    lines = yaml.safe_dump(value, sort_keys=False).splitlines()
    (finding,) = read(value).findings
    assert finding.line == next(n for n, text in enumerate(lines, 1) if "flgs" in text)


@pytest.mark.parametrize(
    ("arms", "chosen", "told"),
    [
        (None, "b", []),
        ([], "b", ["arms"]),
        ({"a": {}}, "b", ["arms"]),
        ({name: {} for name in "abcdefghi"}, "b", ["arms"]),
        ({"a": {}, "../b": {}}, "a", ["arms.../b"]),
        ({"a": {}, "b": 3}, "b", ["arms.b"]),
        ({"a": {}, "b": {"seed": "x", "arms": {}}}, "b", ["arms.b.seed", "arms.b.arms"]),
        ({"a": {}, "b": {}}, None, ["arms"]),
        ({"a": {}, "b": {}}, "c", ["arms"]),
    ],
)
def test_arms_that_can_t_be(arms: Any, chosen: str | None, told: list[str]) -> None:
    found = read(scenario(arms=arms), chosen)
    assert found.findings and found.scenario is None
    assert not told or fields(found.findings) == told


def test_without_arms_nothing_changes() -> None:
    assert (
        read(scenario(), None).scenario
        == read_scenario("a.yaml", yaml.safe_dump(scenario())).scenario
    )
