"""The groups of a provider config are kept as it says.

Problems are in test_provider_problems.py, an API server in trouble in test_provider_trouble.py.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.errors import InvalidError
from tests.fakes.provider import CONFIG, NOW, TEMPLATES, ProviderWorld, config, documents, template
from tests.fakes.waiting import until

OWNER = "kwok-operator.io/provider-config"
NOT_DERIVED_SINCE = "kwok-operator.io/not-derived-since"


@pytest.fixture
async def world() -> AsyncIterator[ProviderWorld]:
    async with ProviderWorld().running() as world:
        yield world


class TestGroups:
    async def test_are_derived(self, world: ProviderWorld) -> None:
        world.configure(config(), template("batch", min="1", max="7"), template("web"))
        await world.quiet()
        assert sorted(world.written()) == [("apply", "batch"), ("apply", "web")]
        assert world.groups.uids == [None, None]
        group = world.groups.bodies["batch"]
        assert group["metadata"]["annotations"][OWNER] == f"ops/{CONFIG}"
        assert group["spec"] == {
            "template": {
                "from": {
                    "configMap": {"name": TEMPLATES, "key": "templates", "node": "batch-template"}
                }
            },
            "autoscaling": {"minSize": 1, "maxSize": 7},
        }
        assert world.problems() == {}

    async def test_that_are_as_they_should_be_cost_nothing(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        reads = world.groups.reads
        await world.settled()
        assert (world.written(), world.groups.reads) == ([], reads)

    async def test_follow_the_templates(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        uid = world.groups.bodies["batch"]["metadata"]["uid"]
        nodes = template("batch", max="3"), template("web"), template("new")
        world.configmap(TEMPLATES, templates=documents(*nodes))
        await world.quiet()
        assert sorted(world.written()) == [("apply", "batch"), ("apply", "new")]
        assert world.groups.bodies["batch"]["spec"]["autoscaling"]["maxSize"] == 3
        assert world.groups.uids[-2:] == [uid, None], "that very group, and one that isn't there"

    async def test_are_reconciled_after_their_configmaps_only(self, world: ProviderWorld) -> None:
        await world.derived("batch")
        begun = world.begun
        world.configmap("another", config="x")
        await world.quiet()
        assert world.begun == begun
        world.configmap(TEMPLATES, templates=documents(template("batch", max="3")))
        await world.quiet()
        assert world.written() == [("apply", "batch")]

    async def test_that_somebody_scales_are_let_alone(self, world: ProviderWorld) -> None:
        await world.derived("batch")
        begun = world.begun
        world.groups.put("batch", {"spec": {"targetSize": 5, "paused": True}})
        await world.quiet()
        assert world.begun == begun, "it is not even looked at"
        await world.settled()
        assert world.written() == []

    @pytest.mark.parametrize(
        "patch",
        [
            {"spec": {"autoscaling": {"maxSize": 5}}},
            {"spec": {"template": {"from": {"configMap": {"node": "other"}}}}},
            {"spec": {"template": {"shape": {"cpu": "1"}}}},
            {"spec": {"guardTaint": {"enabled": False}}},
            {"metadata": {"annotations": {"kwok-operator.io/provider-config-value": None}}},
        ],
        ids=["bounds", "source", "shape", "guard taint", "annotation"],
    )
    async def test_that_somebody_changes_are_applied_again(
        self, world: ProviderWorld, patch: dict[str, Any]
    ) -> None:
        await world.derived("batch", "web")
        world.groups.put("batch", patch)
        await world.quiet()
        assert world.written() == [("apply", "batch")]

    @pytest.mark.parametrize("slowly", [False, True], ids=["at once", "slowly"])
    async def test_deleted_are_made_again(self, world: ProviderWorld, slowly: bool) -> None:
        await world.derived("batch")
        if slowly:
            world.groups.put("batch", {"metadata": {"deletionTimestamp": NOW}})
            await world.settled()
            assert world.written() == [], "not while the old one is going"
        world.groups.remove("batch")
        await world.quiet()
        assert world.written() == [("apply", "batch")]
        assert world.groups.uids[-1] is None

    async def test_are_all_applied_again_now_and_then(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        world.provider.recheck()
        await world.quiet()
        assert sorted(world.written()) == [("apply", "batch"), ("apply", "web")]

    async def test_deleting_at_start_are_made_again(self, world: ProviderWorld) -> None:
        owned = {"annotations": {OWNER: f"ops/{CONFIG}"}, "deletionTimestamp": NOW}
        world.groups.put("batch", {"metadata": owned})
        world.configure(config(), template("batch"))
        await world.quiet()
        assert world.written() == []
        world.groups.remove("batch")
        await world.quiet()
        assert world.written() == [("apply", "batch")]


class TestFirstTarget:
    async def test_is_set_once(self, world: ProviderWorld) -> None:
        world.configure(config(), template("batch", desired="3"))
        await world.quiet()
        assert world.groups.bodies["batch"]["spec"]["targetSize"] == 3
        assert [kind for kind, _ in world.written()].count("first target") == 1
        world.groups.put("batch", {"spec": {"targetSize": None}})
        world.provider.recheck()
        await world.quiet()
        assert world.written() == [("apply", "batch")]
        assert "targetSize" not in world.groups.bodies["batch"]["spec"]

    async def test_is_not_set_where_there_is_a_target(self, world: ProviderWorld) -> None:
        owned = {"metadata": {"annotations": {OWNER: f"ops/{CONFIG}"}}, "spec": {"targetSize": 0}}
        world.groups.put("batch", owned)
        world.configure(config(), template("batch", desired="3"))
        await world.quiet()
        assert world.groups.bodies["batch"]["spec"]["targetSize"] == 0


class TestGroupsOfOthers:
    @pytest.mark.parametrize("owner", [None, "ops/another"], ids=["by hand", "another config"])
    async def test_are_left_alone(self, world: ProviderWorld, owner: str | None) -> None:
        world.groups.put("batch", {"metadata": {"annotations": {OWNER: owner}}})
        before = world.groups.bodies["batch"]
        world.configure(config(), template("batch"), template("web"))
        await world.quiet()
        assert world.written() == [("apply", "web")]
        assert world.groups.bodies["batch"] == before
        (event,) = world.said("NameTaken")
        made = f"is of the provider config {owner}" if owner else "was made by somebody else"
        assert made in event.message and "delete or rename it" in event.message
        await world.settled()
        assert len(world.said("NameTaken")) == 1
        assert world.problems() == {"NameTaken": 1}

    async def test_make_room_when_they_go(self, world: ProviderWorld) -> None:
        world.groups.put("batch", {})
        world.configure(config(), template("batch"))
        await world.quiet()
        world.groups.remove("batch")
        await world.quiet()
        assert (world.written(), world.problems()) == ([("apply", "batch")], {})

    async def test_do_not_keep_ours_from_being_marked(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        world.groups.put("new", {})
        world.configure(config(), template("new"), template("web"))
        await world.quiet()
        assert world.written() == [("annotate", "batch")]

    async def test_are_never_marked(self, world: ProviderWorld) -> None:
        source = {"kwok-operator.io/provider-config-source": "configmap"}
        world.groups.put("by-hand", {})
        world.groups.put("copied", {"metadata": {"annotations": source}})
        others = {"metadata": {"annotations": source | {OWNER: "ops/another"}}}
        world.groups.put("of-another", others)
        world.configure(config(prune=True), template("batch"))
        await world.quiet()
        await world.settled()
        assert world.written() == [("apply", "batch")]


class TestNoLongerDerived:
    async def test_is_marked_once(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        world.configure(config(), template("web"))
        await world.quiet()
        await world.settled()
        assert world.written() == [("annotate", "batch")]
        assert world.annotations("batch")[NOT_DERIVED_SINCE] == NOW
        assert world.problems() == {}

    async def test_derived_again_is_unmarked(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        world.configure(config(), template("web"))
        await world.quiet()
        world.configure(config(), template("web"), template("batch"))
        await world.quiet()
        assert NOT_DERIVED_SINCE not in world.annotations("batch")

    async def test_is_removed_where_the_config_says_so(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web")
        world.configure(config(prune=True), template("web"))
        await world.quiet()
        assert world.written() == [("delete", "batch")]
        assert list(world.groups.bodies) == ["web"]

    @pytest.mark.parametrize("prune", [False, True], ids=["marking", "pruning"])
    @pytest.mark.parametrize(
        "wrong",
        [
            "not: [yaml",
            config(prune="yes"),
            config(nodegroups={"fromNodeLabelKey": "misspelt"}),
            config(configmap={"name": "missing"}),
            config(nodeGroups={}),
        ],
        ids=["no YAML", "bad value", "wrong label", "missing templates", "unknown key"],
    )
    async def test_is_nothing_while_the_config_is_wrong(
        self, world: ProviderWorld, wrong: str, prune: bool
    ) -> None:
        await world.derived("batch", "web", prune=prune)
        world.configure(wrong)
        await world.quiet()
        assert world.written() == []
        assert world.problems() != {}

    async def test_is_nothing_while_a_template_is_wrong(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web", prune=True)
        world.configure(config(prune=True), template("web", cpu="eight"))
        await world.quiet()
        assert (world.written(), sorted(world.groups.bodies)) == ([], ["batch", "web"])

    @pytest.mark.parametrize("name", [CONFIG, TEMPLATES])
    async def test_is_nothing_without_a_configmap(self, world: ProviderWorld, name: str) -> None:
        await world.derived("batch", prune=True)
        world.forget(name)
        await world.quiet()
        assert (world.written(), list(world.groups.bodies)) == ([], ["batch"])

    async def test_is_nothing_while_a_group_is_refused(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web", prune=True)
        world.groups.refusals["new"] = InvalidError("no", status=422)
        world.configure(config(prune=True), template("new"))
        await world.quiet()
        assert ("delete", "batch") not in world.written()


def real(name: str, pool: str, *, cpu: str = "4") -> dict[str, Any]:
    node = template(pool, cpu=cpu)
    return {**node, "metadata": {**node["metadata"], "name": name}}


class TestLiveNodes:
    async def test_give_groups(self, world: ProviderWorld) -> None:
        world.live(real("a", "batch"), real("b", "batch"))
        await world.derived("batch", readNodesFrom="cluster", configmap={})
        source = world.groups.bodies["batch"]["spec"]["template"]["from"]
        assert source == {"nodes": {"selector": {"matchLabels": {"pool": "batch"}}}}
        assert "targetSize" not in world.groups.bodies["batch"]["spec"]

    async def test_are_followed_as_soon_as_there_is_a_config(self, world: ProviderWorld) -> None:
        await world.settled()
        assert not world.link.started
        await world.derived("batch")
        assert world.link.started, "for the leftovers of cluster-autoscaler's own provider"

    @pytest.mark.parametrize("prune", [False, True])
    async def test_that_go_leave_their_groups(self, world: ProviderWorld, prune: bool) -> None:
        world.live(real("a", "batch"), real("b", "web"))
        await world.derived("batch", "web", readNodesFrom="cluster", prune=prune)
        world.live(real("b", "web"))
        await world.quiet()
        assert (world.written(), world.problems()) == ([], {})

    async def test_not_known_yet_change_nothing(self, world: ProviderWorld) -> None:
        await world.derived("batch", "web", prune=True)
        world.link.problem = "403: nodes is forbidden"
        world.configure(config(readNodesFrom="both", prune=True), template("web"))
        await world.quiet()
        assert world.written() == []
        assert world.problems() == {"NodesUnreadable": 1}
        assert "403: nodes is forbidden" in world.said("NodesUnreadable")[0].message
        world.live(real("a", "db"))
        await world.quiet()
        assert sorted(world.written()) == [("apply", "db"), ("delete", "batch")]

    async def test_and_a_template_of_one_value_are_one_group(self, world: ProviderWorld) -> None:
        world.live(real("a", "batch"))
        await world.derived("batch", readNodesFrom="both")
        assert set(world.groups.bodies["batch"]["spec"]["template"]["from"]) == {
            "configMap",
            "nodes",
        }


FAR: dict[str, Any] = {
    "readNodesFrom": "cluster",
    "cluster": {"secretName": "prod", "copySizes": True},
}


class TestAnotherCluster:
    async def test_takes_the_place_of_this_one(self, world: ProviderWorld) -> None:
        world.live(real("here", "web"))
        world.live(real("a", "batch"), real("b", "batch"), link=world.far)
        world.configure(config(**FAR))
        await world.quiet()
        assert list(world.groups.bodies) == ["batch"]
        assert world.groups.bodies["batch"]["spec"]["targetSize"] == 2

    async def test_unreadable_changes_nothing(self, world: ProviderWorld) -> None:
        nodes = real("a", "batch"), real("b", "batch")
        world.live(*nodes, link=world.far)
        world.configure(config(**FAR))
        await world.quiet()
        world.written()
        world.far.problem = "Secret ops/prod does not exist"
        world.live(real("c", "new"), link=world.far)
        await world.quiet()
        assert (world.written(), world.problems()) == ([], {"NodesUnreadable": 1})
        message = world.said("NodesUnreadable")[0].message
        for part in ("cluster.secretName", "Secret ops/prod does not exist", "groups stay"):
            assert part in message
        world.far.problem = None
        world.live(real("a", "batch", cpu="32"), link=world.far)
        await world.quiet()
        assert (world.written(), world.problems()) == ([], {}), "sizes are copied once"

    async def test_that_takes_long_to_list_is_no_problem(
        self, world: ProviderWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits: list[None] = []

        async def in_vain() -> bool:
            waits.append(None)
            return False

        monkeypatch.setattr(world.far.nodes, "wait_synced", in_vain)
        world.configure(config(**FAR))
        await until(lambda: waits)
        world.provider.changed()
        await until(lambda: len(waits) == 2)
        assert (world.events.said, world.written()) == ([], [])
        world.live(real("a", "batch"), link=world.far)
        await until(lambda: "batch" in world.groups.bodies)
