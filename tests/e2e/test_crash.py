"""The operator dies, or loses what it wrote down, at the worst moments."""

import random
import time

import pytest

from tests.e2e.crashes import (
    SLOWLY,
    assert_exactly,
    done,
    kill,
    wait_under_way,
    watched_names,
)
from tests.e2e.groups import (
    apply_group,
    names_of,
    nodes_of,
    scale,
    serial_of,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import Harness
from tests.e2e.refusals import refused_nodes

SIZE = 300
STARTUP = 2.0
"""Seconds in which an operator starts, more or less: it is killed there, too."""


@pytest.mark.core
def test_killed_at_any_instant_it_reaches_exactly_its_target(
    kubectl: Kubectl, harness: Harness, group_name: str, chance: random.Random
) -> None:
    apply_group(kubectl, group_name, targetSize=0)
    with watched_names(kubectl, group_name) as seen:
        kill_on_the_way(kubectl, harness, group_name, chance, targets=(SIZE // 2, SIZE))
        harness.start()
        wait_ready(kubectl, group_name)
        grown = assert_exactly(kubectl, group_name, SIZE)

        harness.stop()
        kill_on_the_way(kubectl, harness, group_name, chance, targets=(SIZE // 2, 40))
        harness.start()
        wait_ready(kubectl, group_name)
        left = assert_exactly(kubectl, group_name, 40)
        assert left == grown[:40], "none is made while others are deleted, and the newest go first"

        scale(kubectl, group_name, 90)
        wait_ready(kubectl, group_name)
        again = assert_exactly(kubectl, group_name, 90)
        assert not (set(again) - set(left)) & set(grown), "a name is never used again"

        eventually(lambda: set(again) <= set(seen), describe="all nodes were watched")
    assert {name: uids for name, uids in seen.items() if len(uids) != 1} == {}
    assert len(seen) == SIZE + 50, "no node was made beyond those that were asked for"


def kill_on_the_way(
    kubectl: Kubectl,
    harness: Harness,
    name: str,
    chance: random.Random,
    *,
    targets: tuple[int, int],
) -> None:
    """Starts the operator and kills it: on the way to each target, then twice as it starts.

    Each has a way to go, even where the one before it was killed late.
    """
    for target in targets:
        scale(kubectl, name, target)
        process = harness.start(SLOWLY, ready=False)
        wait_under_way(process, name, least=chance.randrange(1, SIZE // 12))
        kill(process)
    for _ in range(2):
        process = harness.start(ready=False)
        time.sleep(chance.uniform(0, STARTUP))
        kill(process)


def test_terminated_in_the_middle_it_leaves_the_rest_to_the_next_start(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=0)
    for first, then in ((0, SIZE), (SIZE, 10)):
        process = harness.start(SLOWLY)
        scale(kubectl, group_name, then)
        wait_under_way(process, group_name, least=10)
        assert process.terminate() == 0
        assert "Traceback" not in process.log()
        stopped = nodes_of(kubectl, group_name)
        low, high = sorted((first, then))
        assert low < len(stopped) < high, "it was interrupted"
        assert not [n for n in stopped if "deletionTimestamp" in n["metadata"]]
        harness.start()
        wait_ready(kubectl, group_name)
        assert_exactly(kubectl, group_name, then)


def test_killed_before_the_first_of_many_it_makes_those_it_wrote_down(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start()
    apply_group(kubectl, group_name, targetSize=0)
    wait_ready(kubectl, group_name)
    with refused_nodes(kubectl, group_name):
        scale(kubectl, group_name, 50)
        asked = eventually(
            lambda: status_of(kubectl, group_name)["pending"], describe="nodes are asked for"
        )
        process.kill()
        assert names_of(kubectl, group_name) == []
    assert [(batch["first"], batch["last"]) for batch in asked] == [(0, 49)]

    harness.start()
    wait_ready(kubectl, group_name)
    assert list(map(serial_of, assert_exactly(kubectl, group_name, 50))) == list(range(50))
    assert status_of(kubectl, group_name)["nextSerial"] == 50


def wipe_status(kubectl: Kubectl, name: str) -> None:
    patch = as_text({"op": "remove", "path": "/status"})
    options = ("--subresource=status", "--type=json", f"--patch=[{patch}]")
    kubectl("patch", "kng", name, *options)


def wait_status(kubectl: Kubectl, name: str) -> None:
    eventually(lambda: status_of(kubectl, name)["conditions"], describe="the status is back")
    wait_ready(kubectl, name)


def of_no_target(kubectl: Kubectl, name: str) -> list[str]:
    """A group whose size stands in its status, and nowhere else; the names of its nodes."""
    apply_group(kubectl, name, targetSize=7)
    wait_ready(kubectl, name)
    apply_group(kubectl, name, scaleDown={"order": "OldestFirst"})
    wait_ready(kubectl, name)
    return names_of(kubectl, name)


def test_status_wiped_while_the_operator_runs_costs_nothing(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start(SLOWLY)
    other = f"{group_name}-b"
    kept = of_no_target(kubectl, other)
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    first = names_of(kubectl, group_name)
    # The newest are gone, so only the status, or a good memory, knows that their names are used.
    scale(kubectl, group_name, 6)
    wait_ready(kubectl, group_name)

    for name in (group_name, other):
        wipe_status(kubectl, name)
    for name in (group_name, other):
        wait_status(kubectl, name)
    assert assert_exactly(kubectl, group_name, 6) == first[:6]
    assert assert_exactly(kubectl, other, 7) == kept

    before = done(process, group_name)
    scale(kubectl, group_name, 100)
    wait_under_way(process, group_name, least=before + 10)
    wipe_status(kubectl, group_name)
    wait_status(kubectl, group_name)
    names = assert_exactly(kubectl, group_name, 100)
    assert not set(names) & set(first[6:])
    assert min(map(serial_of, set(names) - set(first))) >= 10


@pytest.mark.core
def test_status_wiped_while_the_operator_is_away_costs_nothing(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    other = f"{group_name}-b"
    kept = of_no_target(kubectl, other)
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    kubectl("delete", "nodes", *names_of(kubectl, group_name)[:4])
    eventually(
        lambda: status_of(kubectl, group_name),
        until=lambda s: s["readyReplicas"] == 10 and s["nextSerial"] == 14,
        describe="the deleted are replaced",
    )
    before = names_of(kubectl, group_name)
    harness.stop()
    for name in (group_name, other):
        wipe_status(kubectl, name)

    harness.start()
    for name in (group_name, other):
        wait_status(kubectl, name)
    assert assert_exactly(kubectl, group_name, 10) == before
    assert assert_exactly(kubectl, other, 7) == kept
    scale(kubectl, group_name, 12)
    wait_ready(kubectl, group_name)
    assert [serial_of(n) for n in assert_exactly(kubectl, group_name, 12)] == list(range(4, 16))
