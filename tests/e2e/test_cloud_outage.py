"""A cloud whose nodes are not Ready: not yet, never, not now, and now and then.

kwok makes Ready what it sees: so these have a cluster of their own, with the Stage of deploy/.
"""

from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.api import NODES
from tests.e2e.clouds import (
    Version,
    chronicled,
    condition_of,
    life_of,
    rows_of,
    serial,
    staged_cluster,
    states_of,
)
from tests.e2e.groups import (
    apply_group,
    is_ready,
    names_of,
    nodes_of,
    patch_group,
    scale,
    status_of,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.workloads import deployed, pods_of, runs, uids

BLOCK, RACK = "example.com/block", "example.com/rack"


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """The operator runs."""
    directory = tmp_path_factory.mktemp("clouds")
    with staged_cluster("clouds", directory=directory) as own:
        own.harness.start()
        yield own


def wait_out(kubectl: Kubectl, group: str) -> None:
    """Returns once no node of the group is Ready."""
    eventually(
        lambda: nodes_of(kubectl, group),
        lambda nodes: nodes and not any(map(is_ready, nodes)),
        describe=f"no node of {group} is Ready",
    )


def wait_held_up(kubectl: Kubectl, group: str, *serials: int) -> None:
    """Returns once these instances, and no others, wait for the end of the outage."""
    status = eventually(
        lambda: status_of(kubectl, group),
        lambda status: states_of(status) == dict.fromkeys(serials, "Waiting"),
        describe=f"{serials} of {group} wait",
    )
    assert {row["reason"] for row in rows_of(status).values()} == {"Outage"}
    assert condition_of(status, "Provisioned")["reason"] == "Outage"


def test_nodes_are_ready_when_their_time_has_come_or_never(staged: OwnCluster) -> None:
    kubectl, group = staged.kubectl, "boots"
    cloud = {
        "readinessDelay": {"uniform": {"min": "3s", "max": "6s"}},
        "failures": {"neverReady": {"serials": "1"}},
    }
    with chronicled(staged.cluster, group) as seen:
        apply_group(kubectl, group, targetSize=4, cloud=cloud)
        eventually(
            lambda: [seen.nodes[name][-1].ready for name in sorted(seen.born)],
            lambda ready: ready == [True, False, True, True],
            describe="all but one are Ready",
        )
        # One that comes later is Ready when each of the others has had longer than it takes.
        scale(kubectl, group, 5)
        eventually(
            lambda: [name for name in seen.born if seen.nodes[name][-1].ready],
            lambda ready: len(ready) == 4,
            describe="one more is Ready",
        )
    for name, versions in seen.nodes.items():
        life = life_of(versions[0].node)
        states = [version.ready for version in versions]
        if serial(versions[0].node) == 1:
            assert life.ready_after is None
            assert not any(states), f"{name} is never Ready"
            continue
        assert life.ready_after is not None and 3_000 <= life.ready_after <= 6_000
        at = next(version.at for version in versions if version.ready)
        assert at >= life.born + life.ready_after, f"{name} was not Ready before"
        assert states == sorted(states), "and is Ready from then on"
    status = status_of(kubectl, group)
    assert status["replicas"] == 5
    assert condition_of(status, "CloudSimulated")["reason"] == "HeldByStage"


@pytest.mark.core
def test_a_group_is_out_and_is_back(staged: OwnCluster) -> None:
    kubectl, group = staged.kubectl, "out"
    apply_group(kubectl, group, targetSize=3, cloud={})
    wait_ready(kubectl, group)
    names = names_of(kubectl, group)
    with deployed(kubectl, group, group=group, replicas=6):
        before = pods_of(kubectl, group)
        # Long enough for the outage to begin meanwhile, however slow the machine is.
        patch_group(kubectl, group, cloud={"provisioningDelay": {"fixed": "20s"}}, targetSize=4)
        eventually(
            lambda: states_of(status_of(kubectl, group)) == {3: "Creating"},
            describe="one is under way",
        )
        patch_group(kubectl, group, cloud={"outage": True}, targetSize=6)
        wait_condition(kubectl, group, "Outage")
        wait_out(kubectl, group)
        wait_held_up(kubectl, group, 3, 4, 5)
        scale(kubectl, group, 4)
        wait_held_up(kubectl, group, 3)
        assert names_of(kubectl, group) == names, "none comes, neither new nor under way"
        patch_group(kubectl, group, cloud={"outage": False})
        wait_ready(kubectl, group)
        wait_condition(kubectl, group, "Outage", status="False")
        assert names_of(kubectl, group)[:3] == names, "the same nodes are Ready again"
        assert len(names_of(kubectl, group)) == 4
        pods = pods_of(kubectl, group)
        assert uids(pods) == uids(before) and all(map(runs, pods))


def test_a_rack_is_out_and_is_back(staged: OwnCluster) -> None:
    kubectl, group = staged.kubectl, "racked"

    def by_rack() -> dict[str, list[bool]]:
        """Whether the nodes of each rack are Ready."""
        found = dict[str, list[bool]]()
        for node in nodes_of(kubectl, group):
            found.setdefault(node["metadata"]["labels"][RACK], []).append(is_ready(node))
        return dict(sorted(found.items()))

    topology = {"levels": [{"label": BLOCK, "of": 2}, {"label": RACK, "of": 2}]}
    apply_group(kubectl, group, targetSize=6, cloud={}, template={"topology": topology})
    wait_ready(kubectl, group)
    patch_group(kubectl, group, cloud={"outageUnits": [f"{group}-0-1"]})
    eventually(
        by_rack,
        lambda found: [*found.values()] == [[True] * 2, [False] * 2, [True] * 2],
        describe="the nodes of one rack are NotReady",
    )
    wait_condition(kubectl, group, "Outage")
    assert condition_of(status_of(kubectl, group), "Outage")["reason"] == "UnitOutage"
    lost = next(n for n in nodes_of(kubectl, group) if not is_ready(n))["metadata"]["name"]
    kubectl.api.delete(f"{NODES}/{lost}")
    eventually(
        by_rack,
        lambda found: found.get(f"{group}-1-1") == [True] and found[f"{group}-0-1"] == [False],
        describe="another node stands in another rack",
    )
    patch_group(kubectl, group, cloud={"outageUnits": [f"{group}-0"]})
    eventually(
        by_rack,
        lambda found: (
            [found[f"{group}-{n}"] for n in ("0-0", "0-1", "1-0", "1-1")]
            == [[False] * 2, [False], [True] * 2, [True]]
        ),
        describe="the nodes of a block are NotReady",
    )
    patch_group(kubectl, group, cloud={"outageUnits": None})
    wait_ready(kubectl, group)
    wait_condition(kubectl, group, "Outage", status="False")
    assert len(by_rack()[f"{group}-0-1"]) == 1


def test_nodes_flap_also_when_the_operator_dies(staged: OwnCluster) -> None:
    kubectl, group = staged.kubectl, "flaps"
    flapping = {"period": "6s", "notReady": "0.5"}
    with chronicled(staged.cluster, group) as seen:
        apply_group(kubectl, group, targetSize=2, cloud={"flapping": flapping})
        eventually(
            lambda: [turns(seen.nodes[name])[:2] for name in seen.born],
            lambda found: found == [[True, False]] * 2,
            describe="both have flapped",
        )
        process = staged.harness.process
        assert process is not None
        process.kill()
        staged.harness.start()
        eventually(
            lambda: [turns(seen.nodes[name])[:5] for name in seen.born],
            lambda found: found == [[True, False, True, False, True]] * 2,
            describe="both were Ready again, twice",
        )
    for versions in seen.nodes.values():
        spells = life_of(versions[0].node).spells
        assert spells and (spells.period, spells.length) == (6_000, 3_000)
    assert len(seen.born) == 2, "no node was made anew"


def turns(versions: Sequence[Version]) -> list[bool]:
    """Whether the node was Ready, from the first yes on, each time that it changed."""
    found: list[bool] = []
    for version in versions:
        if [version.ready] != found[-1:] and (found or version.ready):
            found.append(version.ready)
    return found
