"""Stories of a group that is scaled: the traps of cluster-autoscaler's protocol, as they are met.

Each story is what cluster-autoscaler (CA) does when nodes come, don't come, or come otherwise than
asked for, with the calls it makes then. The test plays the operator: it gives out serials and has
nodes come.
"""

import asyncio

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.fakes.protobuf import put
from tests.fakes.shimstory import Story, story

__all__ = ["story"]

REFUSED = {
    "type": "Stalled",
    "status": "True",
    "reason": "Refused",
    "message": "sold out",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


class TestInstancesThatDoNotCome:
    async def test_a_nothing_comes(self, story: Story) -> None:
        """The operator is away. After --max-node-provision-time CA gives back all it asked for."""
        await story.increase(3)
        creating = dict.fromkeys(range(3), "Creating")
        assert (await story.target(), await story.instances()) == (3, creating)
        await story.decrease(-3)
        assert (await story.target(), story.spec["targetSize"], story.named()) == (0, 0, [])
        assert await story.instances() == {}
        await story.decrease(-3)
        assert await story.target() == 0, "a second time there is nothing to give back"

    async def test_a2_one_comes_and_stays(self, story: Story) -> None:
        """CA gives back its whole request, and then what is still too many: neither is refused."""
        await story.increase(3)
        story.give_out(0, 2)
        story.come(0)
        await story.decrease(-3)
        assert await story.target() == 1
        assert await story.instances() == {0: "Running"}
        assert story.named() == story.names(1, 2)
        await story.decrease(-2)
        assert await story.target() == 1

    async def test_b_what_is_creating_is_given_back_twice(self, story: Story) -> None:
        """First by number, and a loop later by name: it counts once, and does not linger."""
        await story.increase(3)
        story.give_out(0, 2)
        assert await story.instances() == {0: "Creating", 1: "Creating", 2: "Creating"}
        await story.decrease(-3)
        assert (await story.target(), await story.instances()) == (0, {})
        for serial in range(3):
            await story.give_back(serial, reason="unregistered")
        assert await story.target() == 0
        story.come(1)
        assert await story.instances() == {1: "Deleting"}, "one that comes all the same has to go"

    async def test_c_what_cannot_be_created_is_given_back_by_name(self, story: Story) -> None:
        """All in one call and in the next loop; CA turns to another group at once."""
        await story.increase(4)
        story.give_out(0, 3, conditions=[REFUSED])
        story.come(0)
        answer = await story.raw("NodeGroupNodes", put(1, "web"))
        told = pb.NodeGroupNodesResponse.FromString(answer).instances
        assert [i.status.errorInfo.errorCode for i in told] == ["", "Refused", "Refused", "Refused"]
        await story.give_back(1, 2, 3, reason="create-error")
        assert (await story.target(), await story.instances()) == (1, {0: "Running"})
        await story.give_back(1, 2, 3, reason="create-error")
        assert await story.target() == 1, "CA may have looked at the instances before"

    async def test_an_instance_requested_again_is_a_new_one(self, story: Story) -> None:
        await story.increase(2)
        story.give_out(0, 1)
        await story.decrease(-2)
        await story.increase(2)
        story.give_out(2, 3)
        assert await story.target() == 2
        assert await story.instances() == {2: "Creating", 3: "Creating"}


class TestTargetsOfOthers:
    async def test_d_a_target_raised_by_somebody_else(self, story: Story) -> None:
        """As with kubectl scale: CA sees it at once, and counts from there."""
        story.change(targetSize=5)
        creating = dict.fromkeys(range(5), "Creating")
        assert (await story.target(), await story.instances()) == (5, creating)
        await story.increase(2)
        assert await story.target() == 7
        story.give_out(0, 6)
        story.come(0, 1)
        await story.decrease(-2)
        assert await story.target() == 5, "what CA takes for missing"
        assert story.named() == story.names(5, 6)

    async def test_d_a_shim_and_a_ca_that_begin_anew_in_the_midst(self, story: Story) -> None:
        """Neither remembers who asked for what; what is asked for stands in the group."""
        await story.increase(3)
        story.give_out(0, 2)
        story.come(0)
        before = await story.target(), await story.instances()
        story.start_shim()
        assert (await story.target(), await story.instances()) == before
        await story.decrease(-2)
        assert (await story.target(), await story.instances()) == (1, {0: "Running"})

    async def test_e_more_nodes_than_requested(self, story: Story) -> None:
        """Those that the operator is to delete are Deleting; CA has none to name."""
        story.give_out(0, 2)
        story.come(0, 1, 2)
        story.change(targetSize=1)
        assert await story.target() == 1
        assert await story.instances() == {0: "Running", 1: "Deleting", 2: "Deleting"}
        await story.decrease(-1)
        assert (await story.target(), story.named()) == (1, [])


class TestDeleting:
    async def test_again_while_it_goes_and_when_it_is_gone(self, story: Story) -> None:
        story.change(targetSize=3)
        story.give_out(0, 2)
        story.come(0, 1, 2)
        await asyncio.gather(*(story.delete(0) for _ in range(5)))
        assert await story.target() == 2
        story.go(0)
        await story.delete(0)
        await story.give_back(0, reason="unregistered")
        assert await story.target() == 2
        await story.delete(0, 1)
        assert await story.target() == 1, "the one that is there counts"

    async def test_increases_and_deletions_at_once(self, story: Story) -> None:
        story.change(targetSize=4)
        story.give_out(0, 3)
        story.come(*range(4))
        await asyncio.gather(
            story.increase(5), story.delete(0), story.increase(1), story.delete(3), story.delete(0)
        )
        assert (await story.target(), story.named()) == (8, story.names(0, 3))


async def test_no_loop_starts_without_groups_while_the_api_server_is_away(story: Story) -> None:
    """CA takes an error of NodeGroups for an empty list, and forgets the templates of all."""
    story.change(targetSize=1)
    story.give_out(0, 0)
    story.come(0)
    await story.server.stop()
    assert await story.raw("Refresh", b"") == b""
    listed = pb.NodeGroupsResponse.FromString(await story.raw("NodeGroups", b""))
    assert [group.id for group in listed.nodeGroups] == ["web"]
    (name,) = story.names(0)
    owner = await story.raw("NodeGroupForNode", put(1, put(1, f"kwok:{name}") + put(2, name)))
    assert pb.NodeGroupForNodeResponse.FromString(owner).nodeGroup.id == "web"
    assert await story.instances() == {0: "Running"}
