"""Steps that interrupt or lose machines."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.annotations import mark_of
from kwok_operator.cloud.draws import SECOND
from kwok_operator.cloud.life import Life, PassingTaint
from kwok_operator.constants import (
    LIFE_ANNOTATION,
    NODE_CLAIMS_PATH,
    NODE_GROUP_LABEL,
    NODE_GROUP_UID_ANNOTATION,
    NODE_POOL_LABEL,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.interrupting import Interrupter
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.machines import (
    Machine,
    drawn,
    noticed_now,
    read_machine,
)
from kwok_operator.rehearsal.scenario.timeline import InterruptStep, MachinesStep
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.waiting import until

FINALIZER = "karpenter.sh/termination"
T0 = 1_700_000_000_000


def machine(name: str, *, group: str = "a", zone: str = "z", created: str = "") -> Machine:
    return Machine(
        name=name,
        uid=name,
        group=group,
        pool="",
        zone=zone,
        created=created,
        claim="",
        simulated=True,
        life=None,
    )


PLACES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=40)


@given(PLACES, st.integers(1, 45), st.randoms())
def test_what_is_drawn_depends_on_places_and_not_on_names(
    places: list[tuple[str, str]], count: int, chance: Any
) -> None:
    arms = []
    for arm in "pq":
        there = [
            machine(f"{arm}{chance.random()}", group=group, zone=zone, created=f"{age:03}")
            for age, (group, zone) in enumerate(places)
        ]
        chance.shuffle(there)
        some = drawn(there, MachinesStep(group="a", count=count), seed="s", what="w")
        arms.append([replace(each, name="", uid="") for each in some])
    assert arms[0] == arms[1]
    assert len(arms[0]) == min(count, len(places))


def test_another_seed_draws_others_and_a_share_is_rounded_up() -> None:
    there = [machine(str(n), created=f"{n:02}") for n in range(10)]
    step = MachinesStep(group="a", share=0.31)
    found = {seed: tuple(m.name for m in drawn(there, step, seed=seed, what="w")) for seed in "xyz"}
    assert [len(names) for names in found.values()] == [4, 4, 4]
    assert len(set(found.values())) == 3
    assert len(drawn(there, MachinesStep(group="a", share=0.3), seed="x", what="w")) == 3


@pytest.mark.parametrize("capped", [False, True])
def test_a_notice_is_that_of_the_simulated_cloud(capped: bool) -> None:
    life = Life(T0, taints=(PassingTaint("agent", "", "NoSchedule", 90 * SECOND),))
    now = T0 + 60 * SECOND
    for given_life in (life, None):
        one = replace(machine("n"), life=given_life)
        mark = mark_of(labels={}, annotations=noticed_now(one, notice=10 * SECOND, now=now))
        assert mark is not None
        lived = mark.lived(capped=capped)
        assert given_life is None or not lived.desired(now - 1).noticed
        assert lived.desired(now).noticed and not lived.desired(now + 9_999).gone
        assert lived.desired(now + 10 * SECOND).gone
        assert lived.taints == (given_life.taints if given_life else ())


def node(name: str, *, ours: bool, **metadata: Any) -> dict[str, Any]:
    labels = {NODE_GROUP_LABEL: "a"} | ({} if ours else {NODE_POOL_LABEL: "p"})
    owner = {"kind": "NodeClaim", "name": f"claim-{name}"}
    own = {"annotations": {NODE_GROUP_UID_ANNOTATION: "u"}}
    theirs = {"ownerReferences": [owner], "finalizers": [FINALIZER]}
    return {"metadata": {"name": name, "labels": labels, **(own if ours else theirs), **metadata}}


def serve(server: FakeApiServer) -> None:
    """Three nodes of the group a, three of Karpenter in it, and one of somebody else."""
    server.serve(NODE_CLAIMS_PATH, kind="NodeClaim")
    for n in range(3):
        server.create(NODES, node(f"ours-{n}", ours=True))
        server.create(NODES, node(f"theirs-{n}", ours=False))
        server.create(NODE_CLAIMS_PATH, {"metadata": {"name": f"claim-theirs-{n}"}})
    server.create(NODES, {"metadata": {"name": "real", "labels": {"zone": "z"}}})


def under_notice(server: FakeApiServer) -> set[str]:
    found = server.objects(NODES).values()
    return {
        each["metadata"]["name"]
        for each in found
        if LIFE_ANNOTATION in (each["metadata"].get("annotations") or {})
    }


async def test_machines_are_interrupted_each_in_the_way_of_its_kind(
    server: FakeApiServer, client: KubeClient
) -> None:
    serve(server)
    server.create(
        GROUPS,
        {"metadata": {"name": "a"}, "spec": {"cloud": {"interruptions": {"notice": "0s"}}}},
    )
    plays = Interrupter(client, seed="s", of_groups=False)
    assert await plays.play(0, InterruptStep(group="a", count=4)) == "4 of 6 machines"
    claims = set(server.objects(NODE_CLAIMS_PATH))
    assert len(under_notice(server)) + 3 - len(claims) == 4
    assert await plays.play(1, InterruptStep(group="a")) == "2 of 2 machines"
    assert len(under_notice(server)) == 3 and not server.objects(NODE_CLAIMS_PATH)
    assert plays.going_on
    keeping = asyncio.create_task(plays.keep())
    try:
        # The operator ends those of the group; nothing else would end Karpenter's here.
        await until(lambda: set(server.objects(NODES)) == {"ours-0", "ours-1", "ours-2", "real"})
        await until(lambda: not plays.going_on)
    finally:
        keeping.cancel()


async def test_machines_are_lost_without_a_drain(server: FakeApiServer, client: KubeClient) -> None:
    serve(server)
    plays = Interrupter(client, seed="s", of_groups=True)
    assert await plays.play(0, MachinesStep(node_pool="p", share=0.5)) == "2 of 3 machines"
    assert await plays.play(0, MachinesStep(selector="zone=z")) == "0 of 0 machines"
    found = await plays.play(0, MachinesStep(group="a", count=9))
    assert found == "4 of 4 machines; 9 were to go"
    assert set(server.objects(NODES)) == {"real"}
    assert set(server.objects(NODE_CLAIMS_PATH)), "Karpenter sees for itself that it is gone"
    with pytest.raises(CommandError, match="no machine"):
        await plays.play(0, MachinesStep(group="a", count=1))


async def test_a_notice_has_a_default_and_a_machine_that_is_gone_meanwhile_is_no_error(
    server: FakeApiServer, client: KubeClient
) -> None:
    serve(server)
    server.fail(404, verb="patch", name="ours-1")
    server.fail(404, verb="delete", name="claim-theirs-2")
    plays = Interrupter(client, seed="s", of_groups=False)
    assert await plays.play(0, InterruptStep(group="a")) == "6 of 6 machines"
    assert under_notice(server) == {"ours-0", "ours-2"}
    life = mark_of(
        labels={}, annotations=server.objects(NODES)["ours-0"]["metadata"]["annotations"]
    )
    assert life is not None and life.life is not None and life.life.end is not None
    assert life.life.end.notice == 120 * SECOND


@pytest.mark.parametrize(
    "metadata",
    [
        {"deletionTimestamp": "2026-01-02T03:04:05Z"},
        {"annotations": noticed_now(machine("n"), notice=SECOND, now=T0)},
        {"annotations": {"kwok-operator.io/delete-at": "2026-01-02T03:04:05Z"}},
    ],
    ids=["deleted", "noticed", "stuck"],
)
def test_a_machine_that_goes_anyway_is_not_drawn(metadata: dict[str, Any]) -> None:
    assert read_machine({"name": "n", **metadata}, now=T0) is None
