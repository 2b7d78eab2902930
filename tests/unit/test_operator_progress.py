"""How often counts are written while nodes are made: the API server's time is for nodes."""

import pytest

from kwok_operator.nodegroups import reconciler
from kwok_operator.nodegroups.reporting import progress_interval
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.operator import World
from tests.fakes.waiting import until


@pytest.mark.parametrize(
    ("groups", "seconds"), [(1, 1.0), (5, 1.0), (6, 1.2), (20, 4.0), (50, 10.0), (10_000, 10.0)]
)
def test_the_more_groups_the_less_often(groups: int, seconds: float) -> None:
    assert progress_interval(groups) == pytest.approx(seconds)


def ready(server: FakeApiServer) -> list[int]:
    """Nodes that each group says are Ready."""
    return [g.get("status", {}).get("readyReplicas", 0) for g in server.objects(GROUPS).values()]


async def test_groups_at_work_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def noted(groups: int) -> float:
        counted.append(groups)
        return progress_interval(groups)

    monkeypatch.setattr(reconciler, "progress_interval", noted)
    async with World().running() as world:
        server = world.server
        for name in "abc":
            server.create(GROUPS, {"metadata": {"name": name}, "spec": {"targetSize": 100}})
        await until(lambda: ready(server) == [100, 100, 100])
        assert max(counted) > 1, "some were at work together"
        counted.clear()
        server.patch(GROUPS, "a", {"spec": {"targetSize": 101}})
        await until(lambda: len(server.objects(NODES)) == 301)
        assert counted == [1], "and all but one have ended"
