"""A cloud where kwok has no Stages: nodes that boot are kept from kwok by Leases of ours.

- a Node is not Ready before its time, and kwok's from then on; one that is never Ready stays ours;
  no Lease outlives its Node
- an outage can't be shown, and says so: what was booting when it began is Ready in the end
"""

from collections.abc import Iterator

import pytest

from kwok_operator.constants import LEASE_HOLDER
from tests.e2e.clouds import chronicled, condition_of, life_of, serial
from tests.e2e.groups import (
    apply_group,
    names_of,
    nodes_of,
    patch_group,
    scale,
    status_of,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import SHORT_LEASES, OwnCluster, own_cluster


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """The operator runs; kwok takes over what it is given within seconds."""
    directory = tmp_path_factory.mktemp("lease")
    with own_cluster("lease", directory=directory, extra_args=SHORT_LEASES) as own:
        own.harness.start()
        yield own


def holders(kubectl: Kubectl) -> dict[str, str]:
    """Who has the Lease of each node."""
    leases = kubectl.json("get", "leases", "--namespace=kube-node-lease")["items"]
    return {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in leases}


def test_nodes_are_kept_from_kwok_until_their_time_has_come(own: OwnCluster) -> None:
    kubectl, group = own.kubectl, "boots"
    cloud = {
        "readinessDelay": {"uniform": {"min": "3s", "max": "5s"}},
        "failures": {"neverReady": {"serials": "1"}},
    }
    with chronicled(own.cluster, group) as seen:
        apply_group(kubectl, group, targetSize=3, cloud=cloud)
        eventually(
            lambda: [seen.nodes[name][-1].ready for name in sorted(seen.born)],
            lambda ready: ready == [True, False, True],
            describe="all but one are Ready",
            timeout=120,
        )
    assert condition_of(status_of(kubectl, group), "CloudSimulated")["reason"] == "HeldByLease"
    for name, versions in seen.nodes.items():
        life = life_of(versions[0].node)
        ours = holders(kubectl)[name] == LEASE_HOLDER
        if serial(versions[0].node) == 1:
            assert ours and not any(version.ready for version in versions)
            continue
        assert life.ready_after is not None and not ours
        at = next(version.at for version in versions if version.ready)
        assert at >= life.born + life.ready_after, f"{name} was not Ready before"
    scale(kubectl, group, 0)
    eventually(lambda: holders(kubectl) == {}, describe="no Lease is left", timeout=120)


def test_what_was_booting_when_an_outage_began_is_ready_in_the_end(own: OwnCluster) -> None:
    kubectl, group = own.kubectl, "out"
    apply_group(kubectl, group, targetSize=2, cloud={"readinessDelay": {"fixed": "6s"}})
    eventually(lambda: len(nodes_of(kubectl, group)) == 2, describe="they are booting")
    patch_group(kubectl, group, cloud={"outage": True}, targetSize=3)
    wait_condition(kubectl, group, "Outage")
    wait_condition(kubectl, group, "CloudSimulated", status="False")
    # Their time comes while the group is out.
    eventually(
        lambda: set(holders(kubectl)) and LEASE_HOLDER not in holders(kubectl).values(),
        describe="they are given to kwok",
        timeout=120,
    )
    assert len(names_of(kubectl, group)) == 2, "no instance comes"
    patch_group(kubectl, group, cloud={"outage": False})
    wait_ready(kubectl, group)
    assert len(names_of(kubectl, group)) == 3
