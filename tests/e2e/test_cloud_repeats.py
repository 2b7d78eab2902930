"""What was drawn stays so: in the next run with the same seed, and when the operator dies."""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kwok_operator.cloud.life import Life
from kwok_operator.controlplane import Cluster
from tests.e2e.clouds import (
    MARKED,
    apply_pool,
    arrival,
    born_after,
    chronicled,
    courses,
    life_of,
    pools,
    seeded,
    serial,
    states_before,
    states_of,
)
from tests.e2e.groups import (
    apply_group,
    names_of,
    nodes_of,
    scale,
    serial_of,
    status_of,
    wait_condition,
    wait_ready,
    wait_until_heard,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness

SIZE = 12
COURSE: Mapping[str, Any] = {
    "provisioningDelay": {"samples": ["1s", "2s", "3s"]},
    "failures": {"creation": [{"probability": "0.4", "after": {"fixed": "1s"}, "times": 2}]},
    "retryAfter": "1s",
    "lateResources": [{"name": "nvidia.com/gpu", "after": {"uniform": {"min": "1s", "max": "4s"}}}],
    "interruptions": {"lifetime": {"uniform": {"min": "10h", "max": "20h"}}},
    "seed": "one",
    **MARKED,
}
TEMPLATE = {"shape": {"gpu": {"type": "nvidia.com/gpu", "count": 1}}}


def spans(life: Life) -> Life:
    """As though the Node had been born at 0; how much there is of a resource is the template's."""
    resources = tuple(replace(part, amount="") for part in life.resources)
    return replace(life, born=0, resources=resources)


def is_part(walk: Sequence[str], whole: Iterable[str]) -> bool:
    """Whether the walk leaves out states of the whole, and does nothing else."""
    rest = iter(whole)
    return all(state in rest for state in walk)


def kill_again_and_again(harness: Harness, chance: random.Random, *, times: int) -> None:
    """Starts the operator and kills it, sooner or later; the last one lives."""
    for _ in range(times):
        process = harness.start(ready=False)
        time.sleep(chance.uniform(0.5, 3))
        assert process.running, process.log()
        process.kill()
    harness.start()


@pytest.mark.core
def test_killed_in_the_middle_each_instance_is_as_it_was_to_be(
    cluster: Cluster, kubectl: Kubectl, harness: Harness, group_name: str, chance: random.Random
) -> None:
    cloud = seeded(
        {
            "provisioningDelay": {"samples": ["2s", "10m"]},
            "failures": {"creation": [{"probability": "0.3"}]},
            "retryAfter": "10m",
            "stock": 15,
            **MARKED,
        },
        group=group_name,
        size=15,
        wish=lambda all: all.count(2_000) == 6 and sum(a is not None and a > 6e5 for a in all) == 5,
    )
    drawn = [states_before(course)[:2] for course in courses(cloud, group=group_name, size=15)]
    expected = {
        number: "Failed" if states[0] == "Failed" else "Creating"
        for number, states in enumerate(drawn)
        if arrival(courses(cloud, group=group_name, size=15)[number]) != 2_000
    }
    refused = dict.fromkeys(range(15, 20), "Failed")
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=20, cloud=cloud)
        kill_again_and_again(harness, chance, times=3)
        status = eventually(
            lambda: status_of(kubectl, group_name),
            lambda status: status["readyReplicas"] == 6,
            describe="those have come that were to come soon",
        )
        assert states_of(status) == {**expected, **refused}
        record = status["cloud"]["refused"]
        harness.start()
        wait_until_heard(kubectl, f"{group_name}-heard")
        status = status_of(kubectl, group_name)
    assert states_of(status) == {**expected, **refused}
    assert status["cloud"]["refused"] == record, "nobody is refused a second time before his time"
    assert (status["nextSerial"], status["pendingReplicas"]) == (20, 14)
    assert sorted(map(serial_of, seen.born)) == sorted({*range(15)} - {*expected})
    assert all(len(seen.uids(name)) == 1 for name in seen.born)


def test_the_same_seed_gives_the_same_course_killed_or_not(
    cluster: Cluster, kubectl: Kubectl, harness: Harness, group_name: str, chance: random.Random
) -> None:
    """A group from its first moment to its end, and another of its name."""
    drawn = courses(COURSE, group=group_name, size=SIZE)
    lives = [spans(life) for course in drawn if (life := course.life())]
    for kills in (3, 0):
        with chronicled(cluster, group_name) as seen:
            apply_group(kubectl, group_name, targetSize=SIZE, template=TEMPLATE, cloud=COURSE)
            kill_again_and_again(harness, chance, times=kills)
            wait_ready(kubectl, group_name)
            nodes = nodes_of(kubectl, group_name)
        assert [serial(node) for node in nodes] == list(range(SIZE))
        assert [born_after(node) for node in nodes] == [arrival(course) for course in drawn]
        assert [spans(life_of(node)) for node in nodes] == lives
        assert len(seen.born) == SIZE
        assert all(len(seen.uids(name)) == 1 for name in seen.born)
        for number, course in enumerate(drawn):
            # A state that is over before status is written again is not told of.
            walk = seen.walk(group_name, number)
            assert walk or kills
            assert is_part(walk, states_before(course)), (walk, course)
        kubectl("delete", "kng", group_name)
        eventually(lambda: names_of(kubectl, group_name) == [], describe="its nodes are gone")


def test_killed_in_a_fight_for_a_pool_it_never_gives_more_than_there_is(
    cluster: Cluster, kubectl: Kubectl, harness: Harness, group_name: str, chance: random.Random
) -> None:
    first, second = groups = [f"{group_name}-a", f"{group_name}-b"]
    cloud = {
        "provisioningDelay": {"uniform": {"min": "0s", "max": "2s"}},
        "failures": {
            "creation": [{"probability": "0.2"}],
            "slowDeletion": {"probability": "0.5", "delay": {"fixed": "2s"}},
        },
        "retryAfter": "1s",
        "interruptions": {"lifetime": {"uniform": {"min": "3s", "max": "15s"}}, "notice": "1s"},
        "capacityPools": [group_name],
    }
    with pools(kubectl, group_name), chronicled(cluster, *groups) as seen:
        apply_pool(kubectl, group_name, instances=8)
        harness.start()
        # So the one that waits is the first to be looked at after a start.
        for group in (second, first):
            apply_group(kubectl, group, targetSize=7, cloud=cloud)
            wait_condition(kubectl, group, "Reconciling")
        kill_again_and_again(harness, chance, times=3)
        scale(kubectl, second, 3)
        kill_again_and_again(harness, chance, times=2)
        eventually(lambda: seen.most >= 8, describe="all that there is is used")
        wait_until_heard(kubectl, f"{group_name}-heard")
    assert seen.most == 8
    assert all(len(seen.uids(name)) == 1 for name in seen.born)
