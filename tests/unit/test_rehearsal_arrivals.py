"""Which object of a workload is made when, and what it looks like."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.constants import GUARD_TAINT_KEY, REHEARSED_LABEL
from kwok_operator.rehearsal.judge.figures import is_workload
from kwok_operator.rehearsal.scenario.arrivals import arrivals, arrivals_of, last_arrival
from kwok_operator.rehearsal.scenario.manifests import manifest, object_name
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.workload import ScenarioWorkload
from tests.fakes.scenarios import RUNNING

SEEDS = st.text(max_size=5)
WAVES = st.builds(
    lambda size, every, spread: {"size": size, "every": every, "spread": spread * every},
    st.integers(1, 20),
    st.floats(0.5, 100),
    st.floats(0, 1),
)
WAYS: st.SearchStrategy[dict[str, Any]] = (
    st.just({})
    | st.builds(
        lambda rate, spacing: {"rate": rate, "spacing": spacing},
        st.floats(0.01, 1000),
        st.sampled_from(["even", "random"]),
    )
    | st.builds(lambda wave: {"wave": wave}, WAVES)
)


def workload(**parts: Any) -> ScenarioWorkload:
    whole = {"name": "web", "kind": "Pods", "count": 7, "pods": {"cpu": 1, "memory": "1Gi"}}
    return ScenarioWorkload.model_validate(whole | parts)


def times(seed: str = "a", **parts: Any) -> list[float]:
    return [each.at for each in arrivals(workload(**parts), seed=seed)]


@given(WAYS, st.floats(0, 1000), st.integers(1, 60), SEEDS)
def test_each_object_comes_once_and_in_order(
    way: dict[str, Any], at: float, count: int, seed: str
) -> None:
    one = workload(count=count, arrivals={"at": at, **way})
    found = list(arrivals(one, seed=seed))
    assert [each.number for each in found] == list(range(count))
    assert found == sorted(found)
    assert found[0].at >= round(at, 3)
    assert last_arrival(one, seed=seed) == found[-1].at
    assert list(arrivals(one, seed=seed)) == found


@given(WAVES, st.integers(1, 60), SEEDS)
def test_an_object_comes_with_its_wave(wave: dict[str, Any], count: int, seed: str) -> None:
    for number, at in enumerate(times(seed, count=count, arrivals={"wave": wave})):
        begins = number // wave["size"] * wave["every"]
        assert begins - 0.001 <= at <= begins + wave["spread"] + 0.001


def test_at_a_rate() -> None:
    assert times(arrivals={"at": "3s", "rate": "2/s"}) == [3, 3.5, 4, 4.5, 5, 5.5, 6]
    assert times(count=2, arrivals={"rate": "1/h"}) == [0, 3600]
    assert times() == [0] * 7


def test_random_spacing_keeps_the_rate() -> None:
    found = times(count=20_000, arrivals={"rate": 5, "spacing": "random"})
    assert found[-1] / 4_000 == pytest.approx(1, abs=0.03)
    gaps = [after - before for before, after in itertools.pairwise([0.0, *found])]
    # Of exponential gaps the share 1/e is longer than their mean.
    assert sum(gap > 0.2 for gap in gaps) / 20_000 == pytest.approx(1 / math.e, abs=0.02)


DRAWN = {"wave": {"size": 5, "every": 60, "spread": 60}}


def test_another_seed_or_name_is_another_draw() -> None:
    first = times("a", arrivals=DRAWN)
    assert times("b", arrivals=DRAWN) != first
    assert times("a", arrivals=DRAWN, name="api") != first


def test_a_draw_stays_what_it_is() -> None:
    assert times("run-1", count=3, arrivals=DRAWN) == [3.941, 13.497, 19.414]


def test_more_objects_leave_the_first_as_they_are() -> None:
    random = {"rate": 5, "spacing": "random"}
    assert times(count=50, arrivals=random)[:7] == times(arrivals=random)


def test_workloads_come_side_by_side() -> None:
    both = [
        {"name": "a", "kind": "Pods", "count": 3, "pods": {}, "arrivals": {"rate": 1}},
        {"name": "b", "kind": "Job", "count": 4, "each": 2, "pods": {}, "arrivals": {"at": 1}},
        {"name": "c", "arrivals": {"trace": "day.jsonl"}},
    ]
    scenario = Scenario.model_validate({"name": "x", "workloads": both, "expect": [RUNNING]})
    found = [tuple(each) for each in arrivals_of(scenario)]
    assert found == [(0, "a", 0), (1, "a", 1), (1, "b", 0), (1, "b", 1), (2, "a", 2)]


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body if body["kind"] == "Pod" else body["spec"]["template"]
    return found


@pytest.mark.parametrize(
    ("kind", "count", "each", "name", "size"),
    [
        ("Deployment", 40, None, "web", {"replicas": 40}),
        ("Deployment", 40, 4, "web-0003", {"replicas": 4}),
        ("StatefulSet", 3, None, "web", {"replicas": 3, "serviceName": "web"}),
        ("Job", 40, 8, "web-0003", {"parallelism": 8, "completions": 8}),
        ("Pods", 40, None, "web-0003", {}),
    ],
)
def test_an_object(
    kind: str, count: int, each: int | None, name: str, size: dict[str, Any]
) -> None:
    one = workload(kind=kind, count=count, each=each, namespace="shop")
    body = manifest(one, 3)
    assert body["kind"] == ("Pod" if kind == "Pods" else kind)
    assert (body["metadata"]["name"], body["metadata"]["namespace"]) == (name, "shop")
    assert size.items() <= body["spec"].items()
    pod = pod_of(body)
    assert pod["metadata"]["labels"][REHEARSED_LABEL] == "web"
    assert {"key": GUARD_TAINT_KEY, "operator": "Exists"} in pod["spec"]["tolerations"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert one.objects * one.pods_of_each == count
    if "selector" in body["spec"]:
        selected = body["spec"]["selector"]["matchLabels"]
        assert selected.items() <= pod["metadata"]["labels"].items()


def test_objects_of_one_workload_select_their_own_pods() -> None:
    one = workload(kind="Deployment", count=4, each=2)
    first, second = (manifest(one, number) for number in (0, 1))
    selected = first["spec"]["selector"]["matchLabels"]
    assert not selected.items() <= pod_of(second)["metadata"]["labels"].items()


def test_what_a_pod_asks_for() -> None:
    pods = {
        "cpu": 0.5,
        "resources": {"nvidia.com/gpu": 1},
        "labels": {"team": "a"},
        "annotations": {"b": True},
        "nodeSelector": {"zone": "c"},
        "priorityClass": "high",
        "scheduler": "mine",
    }
    body = pod_of(manifest(workload(pods=pods), 0))
    (container,) = body["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "0.5", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert body["metadata"]["labels"].items() >= {"app": "web", "team": "a"}.items()
    assert body["metadata"]["annotations"] == {"b": "true"}
    spec = body["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"zone": "c"}, "high")
    assert spec["schedulerName"] == "mine"


def test_a_template_is_kept() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "mine"}, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "x"}], "tolerations": [{"operator": "Exists"}]},
    }
    one = workload(kind="Job", count=2, pods={"template": template})
    pod = pod_of(manifest(one, 0))
    assert pod["metadata"]["labels"] == {"app": "mine", REHEARSED_LABEL: "web"}
    assert pod["spec"] == template["spec"] | {"restartPolicy": "Never"}
    assert "restartPolicy" not in template["spec"]


def test_a_bare_pod_says_whose_it_is() -> None:
    one = workload(count=2)
    assert manifest(one, 1)["metadata"]["generateName"] == "web-"
    assert object_name(one, 1) == "web-0001"


def test_figures_know_the_objects_of_a_workload() -> None:
    one = workload(kind="Job", count=4)
    told = [f"Job/default/{object_name(one, number)}" for number in range(4)]
    for wanted in ("web", "job/web", "Job/default/web"):
        assert all(is_workload(wanted, each, "web") for each in told)
    for wanted in ("we", "web-0009", "deployment/web"):
        assert not any(is_workload(wanted, each, "web") for each in told)
    assert [is_workload("web-0002", each, "web") for each in told].count(True) == 1
    assert not is_workload("web", "Deployment/default/web-2024"), "only its name looks so"
