"""Outages that several steps of a timeline begin and end."""

import json
import random
from typing import Any, cast

import pytest

from kwok_operator.constants import (
    GROUPS_PATH,
    NODE_GROUP_LABEL,
    POOLS_PATH,
    TOPOLOGY_ANNOTATION,
    ZONE_LABEL,
)
from kwok_operator.errors import NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.outages import (
    OutageChange,
    OutagePlayer,
    Outages,
    drawn_units,
    zone_of,
)
from kwok_operator.rehearsal.scenario.timeline import OutageStep, UnitsStep

CLOUDS: dict[str, dict[str, Any]] = {
    "g": {},
    "h": {"stock": 3, "outageUnits": ["pool-9"]},
    "gone": {"outage": True},
}
RACKS = {"domain": "pool", "levels": [{"label": "example.com/rack", "of": 2}]}
LABELS = {"metadata": {"labels": {ZONE_LABEL: "a"}}}


def groups(clouds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    status = {"resolvedTemplate": LABELS}
    template = {"topology": RACKS}
    return {
        name: {"spec": {"cloud": cloud, "template": template if name in "gh" else {}}}
        | {"status": status}
        for name, cloud in clouds.items()
    }


@pytest.mark.parametrize("seed", range(30))
def test_a_group_is_out_until_the_last_step_that_took_it_out_ends(seed: int) -> None:
    draws = random.Random(seed)
    units = [["pool-0"], ["pool-1", "pool-9"], ["pool-0", "pool-1"]]
    kinds: list[dict[str, Any]] = [{"group": "g"}, {"group": "h"}, {"zone": "a"}]
    kinds += [{"topology": {"values": values}} for values in units]
    steps = [draws.choice(kinds) for _ in range(6)]
    outages, clouds = Outages(), json.loads(json.dumps(CLOUDS))
    begun: dict[int, list[OutageChange]] = {}

    def patch(changes: list[OutageChange]) -> None:
        for each in changes:
            cloud = clouds[each.path.removeprefix(f"{GROUPS_PATH}/")]
            cloud.update(each.spec["cloud"])
            for field in [field for field, value in cloud.items() if value is None]:
                del cloud[field]

    waiting = list(range(len(steps)))
    while waiting or begun:
        if waiting and (not begun or draws.random() < 0.6):
            number = waiting.pop(0)
            step = OutageStep.model_validate(steps[number])
            own = (step.topology and step.topology.values) or ()
            begun[number] = outages.begin(step, groups(clouds), units=own)
            patch(begun[number])
        else:
            patch(outages.end(begun.pop(draws.choice(list(begun))), groups(clouds)))
        for name in ("g", "h"):
            holds = any(steps[n] in ({"group": name}, {"zone": "a"}) for n in begun)
            assert bool(clouds[name].get("outage")) == holds
            emptied = any("zone" in steps[n] for n in begun)
            assert clouds[name].get("stock") == (0 if emptied else CLOUDS[name].get("stock"))
            before = CLOUDS[name].get("outageUnits", [])
            out = [v for n in begun for v in steps[n].get("topology", {}).get("values", ())]
            assert sorted(clouds[name].get("outageUnits", [])) == sorted({*before, *out})
    assert clouds["gone"].get("outage") is True


def test_the_seed_decides_which_units_go() -> None:
    there, step = [f"pool-{n}" for n in range(9)], UnitsStep(level="example.com/rack", count=2)
    drawn = {drawn_units(there, step, seed=f"{n}", what="timeline/0") for n in range(20)}
    assert len(drawn) > 9
    for units in drawn:
        assert len(units) == 2 and {*units} < {*there}
    again = drawn_units(there[::-1] * 2, step, seed="5", what="timeline/0")
    assert again == drawn_units(there, step, seed="5", what="timeline/0")


def test_a_group_without_a_status_is_in_the_zone_of_its_template() -> None:
    specs: list[dict[str, Any]] = [
        {"template": {"shape": {"zone": "a"}}},
        {"template": {"node": LABELS}},
        {},
    ]
    assert [zone_of({"spec": spec}) for spec in specs] == ["a", "a", ""]


BLOCK, RACK = "example.com/block", "example.com/rack"
BLOCKS = [{"label": BLOCK, "of": 2}, {"label": RACK, "of": 2}]


class Cluster:
    """Groups, and nodes in racks, as an API server has them."""

    def __init__(self, **groups: dict[str, Any]) -> None:
        self.groups, self.nodes = groups, list[dict[str, Any]]()
        self.pools = dict[str, dict[str, Any]]()
        self.deleted_late = ""
        self.player = OutagePlayer(cast(KubeClient, self), seed="1")

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "GET":
            pools = [{"metadata": {"name": n}, "spec": spec} for n, spec in self.pools.items()]
            items = {GROUPS_PATH: list(self.groups.values()), POOLS_PATH: pools}
            answer = json.dumps({"items": items.get(path, self.nodes)}).encode()
            self.groups.pop(self.deleted_late, None)
            return answer
        name = path.rpartition("/")[2]
        if name not in self.groups:
            raise NotFoundError(status=404, reason="NotFound", message=name)
        cloud = self.groups[name]["spec"].get("cloud", {}) | more["body"]["spec"].get("cloud", {})
        self.groups[name]["spec"]["cloud"] = {k: v for k, v in cloud.items() if v is not None}
        return b"{}"

    def add_nodes(self, group: str, *racks: str) -> None:
        for rack in racks:
            labels = {BLOCK: rack.rpartition("-")[0], RACK: rack, NODE_GROUP_LABEL: group}
            self.nodes.append({"metadata": {"labels": labels}})

    def cloud(self, group: str = "g") -> dict[str, Any]:
        cloud: dict[str, Any] = self.groups[group]["spec"]["cloud"]
        return cloud


def racked(name: str, domain: str = "pool", levels: Any = BLOCKS, **cloud: Any) -> dict[str, Any]:
    topology = {"domain": domain, "levels": levels}
    metadata = {"name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"template": {"topology": topology}, "cloud": cloud}}


def units(*values: str) -> OutageStep:
    return OutageStep.model_validate({"topology": {"values": values}})


def drawn(level: str) -> OutageStep:
    return OutageStep.model_validate({"topology": {"level": level, "count": 100}})


async def test_only_racks_in_which_a_node_is_not_out_are_drawn() -> None:
    cluster = Cluster(
        g=racked("g", outageUnits=["pool-0"]), h=racked("h"), out=racked("out", outage=True)
    )
    cluster.add_nodes("g", "pool-0-0", "pool-1-0", "pool-3-0")
    cluster.add_nodes("h", "pool-0-1", "pool-1-1")
    cluster.add_nodes("out", "pool-1-0", "pool-2-0")
    begun = await cluster.player.begin(0, drawn(RACK))
    assert begun.what == "pool-1-0, pool-1-1, pool-3-0"
    with pytest.raises(CommandError, match="that isn't out yet"):
        await cluster.player.begin(1, drawn(BLOCK))


async def test_a_level_leaves_another_domain_with_a_unit_of_that_name() -> None:
    row = [{"label": "example.com/row", "of": 8}]
    cluster = Cluster(g=racked("g", "a"), h=racked("h", "a-0", row))
    cluster.add_nodes("g", "a-0-1")
    await cluster.player.begin(0, drawn(RACK))
    assert cluster.cloud("g") == {"outageUnits": ["a-0-1"]} and cluster.cloud("h") == {}


async def test_units_that_others_name_before_and_during_a_step_stay() -> None:
    cluster = Cluster(g=racked("g", outageUnits=["pool-0"]))
    await cluster.player.end(await cluster.player.begin(0, units("pool-1")))
    cluster.cloud()["outageUnits"] = ["pool-2"]
    begun = await cluster.player.begin(1, units("pool-1", "pool-0"))
    assert cluster.cloud()["outageUnits"] == ["pool-2", "pool-0", "pool-1"]
    cluster.cloud()["outageUnits"] += ["pool-3"]
    assert await cluster.player.end(begun) == "pool-0, pool-1"
    assert cluster.cloud()["outageUnits"] == ["pool-2", "pool-3"]


async def test_an_edit_between_two_outages_of_a_zone_stays() -> None:
    cluster = Cluster(g=racked("g", stock=3))
    cluster.groups["g"]["status"] = {"resolvedTemplate": LABELS}
    for stock in (3, 7):
        cluster.cloud()["stock"] = stock
        await cluster.player.end(await cluster.player.begin(0, OutageStep(zone="a")))
        assert cluster.cloud() == {"stock": stock}


@pytest.mark.parametrize("step", [units("pool-0"), OutageStep(zone="a"), OutageStep(group="g")])
async def test_a_group_that_was_deleted_or_made_anew_is_left_alone(step: OutageStep) -> None:
    cluster = Cluster(g=racked("g", stock=3), h=racked("h", stock=3))
    for body in cluster.groups.values():
        body["status"] = {"resolvedTemplate": LABELS}
    begun = await cluster.player.begin(0, step)
    del cluster.groups["h"]
    anew = racked("g", outage=True, stock=5, outageUnits=["pool-0"])
    anew["metadata"]["uid"] = "another"
    cluster.groups["g"] = json.loads(json.dumps(anew))
    assert "nothing comes back" in await cluster.player.end(begun)
    assert cluster.groups == {"g": anew}


async def test_a_pool_may_be_deleted_during_its_outage() -> None:
    cluster = Cluster(p={"metadata": {"name": "p"}, "spec": {}})
    begun = await cluster.player.begin(0, OutageStep(pool="p"))
    del cluster.groups["p"]
    assert await cluster.player.end(begun) == "p"


async def test_the_end_names_only_what_came_back() -> None:
    cluster = Cluster(g=racked("g"), h=racked("h", outageUnits=["pool-0-1"]))
    wide = await cluster.player.begin(0, units("pool-1"))
    racks = await cluster.player.begin(1, units("pool-0-0", "pool-0-1", "pool-1-0"))
    again = await cluster.player.begin(2, units("pool-0-0"))
    await cluster.player.begin(3, units("pool-1-0"))
    assert "nothing comes back: pool-0-0" in await cluster.player.end(again)
    assert await cluster.player.end(racks) == "pool-0-0"
    assert await cluster.player.end(wide) == "pool-1"


async def test_too_many_units_of_a_group_are_refused_before_it_is_changed() -> None:
    cluster = Cluster(g=racked("g"))
    await cluster.player.begin(0, units(*(f"pool-{n}" for n in range(60))))
    with pytest.raises(CommandError, match="120 units of the group g would be out at once"):
        await cluster.player.begin(1, units(*(f"pool-{n}" for n in range(60, 120))))
    assert len(cluster.cloud()["outageUnits"]) == 60


async def test_racks_are_those_in_use_while_an_edit_of_levels_is_refused() -> None:
    cluster = Cluster(g=racked("g", levels=[{"label": "example.com/row", "of": 9}]))
    annotations = {TOPOLOGY_ANNOTATION: f"pool {BLOCK}=2 {RACK}=2"}
    cluster.groups["g"]["status"] = {"resolvedTemplate": {"metadata": {"annotations": annotations}}}
    cluster.add_nodes("g", "pool-0-1")
    begun = await cluster.player.begin(0, drawn(RACK))
    assert cluster.cloud() == {"outageUnits": ["pool-0-1"]}
    assert await cluster.player.end(begun) == "pool-0-1"


async def test_a_group_that_is_deleted_while_a_step_begins_is_skipped() -> None:
    cluster = Cluster(g=racked("g"), h=racked("h"))
    cluster.deleted_late = "g"
    begun = await cluster.player.begin(0, units("pool-0"))
    assert cluster.cloud("h") == {"outageUnits": ["pool-0"]}
    assert await cluster.player.end(begun) == "pool-0"
    with pytest.raises(NotFoundError):
        await cluster.player.begin(1, OutageStep(group="g"))


async def test_racks_of_a_group_whose_pool_is_out_are_not_drawn() -> None:
    cluster = Cluster(g=racked("g", capacityPools=["a", "b"]), h=racked("h", capacityPools=["a"]))
    cluster.pools = {"a": {}, "b": {"outage": True}}
    cluster.add_nodes("g", "pool-0-0", "pool-1-0")
    cluster.add_nodes("h", "pool-0-1", "pool-1-0")
    begun = await cluster.player.begin(0, drawn(RACK))
    assert begun.what == "pool-0-1, pool-1-0"
