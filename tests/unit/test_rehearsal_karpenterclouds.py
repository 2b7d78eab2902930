"""The simulated clouds of groups, and the nodes that Karpenter makes of them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.draws import SECOND, instance_seed
from kwok_operator.cloud.life import draw_life
from kwok_operator.constants import NODE_CLAIMS_PATH, NODE_GROUP_LABEL, NODE_POOL_LABEL
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.rehearsal.interrupting import Interrupter
from kwok_operator.rehearsal.karpenterclouds import CLASSES_PATH, KarpenterClouds
from kwok_operator.rehearsal.machinelives import NodeLives
from kwok_operator.rehearsal.machines import Machine
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.waiting import until

T0 = parse_time("2026-01-02T03:04:05Z")


def machine(number: int, *, born: int) -> Machine:
    return Machine(
        name=f"kwok-{hash(number) % 97}-{number}",
        uid=str(number),
        group="a",
        pool="p",
        zone="",
        created=format_time(born),
        claim=f"claim-{number}",
        simulated=False,
        life=None,
    )


def spot(**fields: Any) -> Cloud:
    lifetime = {"uniform": {"min": "10s", "max": "60s"}}
    return Cloud.model_validate({"seed": "s", "interruptions": {"lifetime": lifetime, **fields}})


def played(cloud: Cloud, machines: list[Machine], *, notice: int) -> dict[str, int]:
    """When each machine got notice, in seconds; each is there for `notice` more."""
    lives, noticed = NodeLives(), dict[str, int]()
    for second in range(400):
        now = T0 + second * SECOND
        left = [m for m in machines if m.uid not in noticed and parse_time(m.created) <= now]
        going = {"a": sum(second < at + notice for at in noticed.values())}
        for each, length in lives.due(left, {"a": cloud}, under_notice=going, now=now):
            assert length == notice * SECOND
            noticed[each.uid] = second
            going["a"] += 1
    return noticed


@given(st.lists(st.integers(0, 90), min_size=1, max_size=12))
def test_notice_comes_when_the_operator_s_node_of_that_number_would_go(births: list[int]) -> None:
    cloud = spot(notice="5s")
    machines = [machine(n, born=T0 + at * SECOND) for n, at in enumerate(sorted(births))]
    numbered = sorted(machines, key=lambda each: (each.created, each.name))
    expected = {}
    for serial, each in enumerate(numbered):
        born = parse_time(each.created)
        life = draw_life(cloud, instance_seed(cloud, group="a", serial=serial), born=born)
        assert life.end is not None
        expected[each.uid] = -(-(born + life.end.gone_after - T0) // SECOND)
    assert played(cloud, machines, notice=5) == expected


def test_no_more_have_notice_at_a_time_than_may() -> None:
    machines = [machine(n, born=T0) for n in range(12)]
    times = sorted(played(spot(notice="20s", atATime=2), machines, notice=20).values())
    assert len(times) == 12
    assert all(later - first >= 20 for first, later in zip(times, times[2:], strict=False))


def group(name: str, **cloud: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"autoscaling": {}, "cloud": cloud}}


@pytest.fixture
def marks() -> list[str]:
    return []


@pytest.fixture
def caveats() -> list[str]:
    return []


@pytest.fixture
def made_of() -> dict[str, KwokNodeGroupSpec]:
    """The specs of the groups that Karpenter was prepared with."""
    return {}


@pytest.fixture
def clouds(
    server: FakeApiServer,
    client: KubeClient,
    marks: list[str],
    caveats: list[str],
    made_of: dict[str, KwokNodeGroupSpec],
) -> Iterator[KarpenterClouds]:
    server.serve(NODE_CLAIMS_PATH, kind="NodeClaim")
    server.serve(CLASSES_PATH, kind="KWOKNodeClass")
    server.create(CLASSES_PATH, {"metadata": {"name": "default"}})
    yield KarpenterClouds(
        client,
        Interrupter(client, seed="s", of_groups=False),
        groups=lambda: server.objects(GROUPS),
        seed="",
        mark=lambda what, detail: marks.append(f"{what}: {detail}"),
        made_of=lambda: made_of or None,
        caveat=caveats.append,
    )


async def test_nodes_of_karpenter_are_interrupted(
    server: FakeApiServer, clouds: KarpenterClouds, marks: list[str]
) -> None:
    server.create(GROUPS, group("a", interruptions={"lifetime": {"fixed": "1s"}, "notice": "1s"}))
    server.create(GROUPS, group("b"))
    for name in "ab":
        labels = {NODE_GROUP_LABEL: name, NODE_POOL_LABEL: "p"}
        owner = {"kind": "NodeClaim", "name": f"claim-{name}"}
        metadata = {"name": f"n-{name}", "labels": labels, "ownerReferences": [owner]}
        server.create(NODES, {"metadata": metadata})
        server.create(NODE_CLAIMS_PATH, {"metadata": {"name": f"claim-{name}"}})
    await clouds.look()
    await clouds.look()
    assert set(server.objects(NODE_CLAIMS_PATH)) == {"claim-b"}
    assert marks == ["interrupt: 1 machine of a"]


async def test_what_becomes_of_a_group_after_the_start_is_said_once(
    server: FakeApiServer,
    clouds: KarpenterClouds,
    caveats: list[str],
    made_of: dict[str, KwokNodeGroupSpec],
) -> None:
    await clouds.look()
    for name in "abc":
        server.create(GROUPS, group(name))
    await clouds.look()
    assert caveats == [], "Karpenter isn't prepared yet, or has its instance types from a file"
    made_of |= {n: KwokNodeGroupSpec.model_validate(group(n)["spec"]) for n in "abx"}
    heeded = {"outage": True, "interruptions": {"lifetime": {"fixed": "1h"}}}
    server.patch(GROUPS, "a", {"spec": {"cloud": heeded, "targetSize": 1}})
    server.patch(GROUPS, "b", {"spec": {"cloud": {"stock": 3}, "price": {"hourly": "1"}}})
    for _ in range(2):
        await clouds.look()
    assert caveats == [
        "heeds no change of KwokNodeGroup b: spec.price, spec.cloud.stock",
        "makes no nodes of KwokNodeGroup c, which came after its start",
        "still makes nodes of KwokNodeGroup x, which is deleted",
    ]


def is_ready(server: FakeApiServer, name: str = "default") -> str:
    conditions = server.objects(CLASSES_PATH)[name].get("status", {}).get("conditions", [])
    return "".join(each["status"] for each in conditions)


def set_outage(server: FakeApiServer, name: str, status: str, reason: str = "SpecOutage") -> None:
    conditions = [{"type": "Outage", "status": status, "reason": reason}]
    server.patch(GROUPS, name, {"status": {"conditions": conditions}}, subresource="status")


async def test_only_an_outage_of_all_groups_is_one_of_the_class(
    server: FakeApiServer, clouds: KarpenterClouds, marks: list[str]
) -> None:
    for name in "ab":
        server.create(GROUPS, group(name))
    server.create(GROUPS, {"metadata": {"name": "fixed"}, "spec": {}})
    seen = []
    for name, status in (("a", "True"), ("b", "True"), ("a", "False"), ("b", "False")):
        set_outage(server, name, status)
        await clouds.look()
        seen.append(is_ready(server))
    assert seen == ["", "False", "True", "True"]
    assert marks == ["outage without effect on Karpenter: a; other groups are not out"]


async def test_an_outage_of_racks_is_none_of_the_class(
    server: FakeApiServer, clouds: KarpenterClouds, marks: list[str]
) -> None:
    server.create(GROUPS, group("a"))
    set_outage(server, "a", "True", "UnitOutage")
    await clouds.look()
    assert (is_ready(server), marks) == ("", [])


async def test_an_outage_reaches_each_class_however_late_it_comes(
    server: FakeApiServer, clouds: KarpenterClouds
) -> None:
    server.create(GROUPS, group("a"))
    set_outage(server, "a", "True")
    server.delete(CLASSES_PATH, "default")
    await clouds.look()
    for name in ("default", "own"):
        server.create(CLASSES_PATH, {"metadata": {"name": name}})
        await clouds.look()
    assert [is_ready(server, name) for name in ("default", "own")] == ["False", "False"]
    set_outage(server, "a", "False")
    await clouds.look()
    assert [is_ready(server, name) for name in ("default", "own")] == ["True", "True"]


async def test_an_error_of_the_api_server_does_not_end_it(
    server: FakeApiServer, clouds: KarpenterClouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwok_operator.rehearsal.karpenterclouds._LOOK_SECONDS", 0.01)
    server.fail(403, verb="list")
    server.create(GROUPS, group("a"))
    set_outage(server, "a", "True")
    following = asyncio.create_task(clouds.follow())
    await until(lambda: following.done() or is_ready(server))
    assert not following.done()
    following.cancel()


async def test_what_does_not_change_is_neither_asked_for_nor_read_again(
    server: FakeApiServer, clouds: KarpenterClouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        server.create(GROUPS, group(name))
    await clouds.look()
    read: list[Any] = []
    validate = KwokNodeGroupSpec.model_validate

    def noted(spec: Any) -> KwokNodeGroupSpec:
        read.append(spec)
        return validate(spec)

    monkeypatch.setattr(KwokNodeGroupSpec, "model_validate", noted)
    server.calls.clear()
    await clouds.look()
    assert (read, dict(server.calls)) == ([], {})
    server.patch(GROUPS, "b", {"spec": {"cloud": {"stock": 1}}})
    await clouds.look()
    assert read == [server.objects(GROUPS)["b"]["spec"]]
