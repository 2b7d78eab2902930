"""What becomes of Events on their way to the API server."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import BURST, COMBINED, NAMESPACE, SIMILAR, Recorder, event_name
from kwok_operator.nodegroups.naming import is_object_name
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.store import Json

EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True)
class About:
    """What Events are about."""

    name: str = "web"
    uid: str = "u-1"
    namespace: str = ""
    kind: str = "KwokNodeGroup"

    @property
    def reference(self) -> dict[str, str]:
        found = {"kind": self.kind, "name": self.name, "uid": self.uid}
        return found | ({"namespace": self.namespace} if self.namespace else {})


WEB = About()


class World:
    """An API server, and a time that passes when a test says so."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.now = START
        self.seconds = 1_000.0
        self.recorder = self.another_operator()

    def another_operator(self) -> Recorder:
        self.recorder = Recorder(
            client=self.client, clock=lambda: self.seconds, wall=lambda: self.now
        )
        return self.recorder

    def later(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.seconds += timedelta(**time).total_seconds()

    def set_clock(self, **by: float) -> None:
        """The time of day is put right, and no time passes."""
        self.now += timedelta(**by)

    async def say(self, message: str, *, reason: str = "Stalled", about: About = WEB) -> None:
        self.recorder.emit(about, "Warning", reason, message)
        await self.recorder.flush()

    @property
    def events(self) -> list[Json]:
        return list(self.server.store.collections[EVENTS].objects.values())

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.events]


@pytest.fixture
def world(server: FakeApiServer, client: KubeClient) -> World:
    server.serve(EVENTS, kind="Event")
    return World(server, client)


async def test_an_event_says_what_when_and_of_what(world: World) -> None:
    await world.say("broken")
    (event,) = world.events
    assert event["involvedObject"] == WEB.reference
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Stalled", "broken")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["source"] == {"component": "kwok-operator"}
    assert event["metadata"]["name"] == event_name(WEB.reference, "Warning", "Stalled", "broken")


@pytest.mark.parametrize("name", ["web", "a" * 253, f"{'a' * 199}.b", f"{'a' * 198}--b"])
def test_an_event_has_a_name_that_the_api_server_takes(name: str) -> None:
    assert is_object_name(event_name(About(name).reference, "Warning", "Stalled", "broken"))


async def test_the_log_names_the_kind(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for kind, called in (("KwokNodeGroup", "group"), ("KwokPodProfile", "kwokpodprofile")):
        await world.say("broken", about=About(kind=kind))
        assert f"Stalled: {called}=web broken" in caplog.messages


async def test_what_is_said_again_is_counted(world: World) -> None:
    await world.say("broken")
    world.later(minutes=5)
    await world.say("broken")
    await world.say("mended", reason="Recovered")
    assert world.told == [("broken", 2), ("mended", 1)]
    assert world.events[0]["firstTimestamp"] == "2026-01-02T03:04:05Z"
    assert world.events[0]["lastTimestamp"] == "2026-01-02T03:09:05Z"


async def test_what_is_said_in_one_second_keeps_its_order(world: World) -> None:
    for message in ("first", "second", "third", "fourth"):
        await world.say(message)
    times = {event["message"]: event["lastTimestamp"][-3:-1] for event in world.events}
    # Never so far ahead that kubectl would call it invalid.
    assert times == {"first": "05", "second": "06", "third": "07", "fourth": "07"}
    world.later(seconds=5)
    await world.say("fifth")
    assert world.events[-1]["lastTimestamp"][-3:-1] == "10"


async def test_a_restarted_operator_goes_on_counting_and_reads_nothing(world: World) -> None:
    for _ in range(3):
        await world.say("broken")
    for expected in (4, 5):
        world.another_operator()
        world.later(seconds=1)
        await world.say("broken")
        assert world.told == [("broken", expected)]
    assert world.events[0]["lastTimestamp"] == "2026-01-02T03:04:07Z"
    assert {verb for verb, _ in world.server.calls} == {"create", "patch"}


async def test_what_the_api_server_has_dropped_is_said_anew(world: World) -> None:
    await world.say("broken")
    await world.say("broken")
    world.server.store.collections[EVENTS].objects.clear()
    world.later(minutes=1)
    await world.say("broken")
    assert world.told == [("broken", 1)]
    assert world.events[0]["firstTimestamp"] == "2026-01-02T03:05:05Z"


async def test_after_an_hour_it_is_a_new_story(world: World) -> None:
    await world.say("broken")
    world.server.store.collections[EVENTS].objects.clear()
    world.later(hours=1)
    await world.say("broken")
    assert world.told == [("broken", 1)]
    assert world.server.calls["patch", "events"] == 0


async def test_two_groups_of_one_name_have_a_story_each(world: World) -> None:
    await world.say("broken")
    await world.say("broken", about=About(uid="u-2"))
    assert world.told == [("broken", 1), ("broken", 1)]


async def test_what_repeats_while_it_waits_is_one_write(world: World) -> None:
    for _ in range(5):
        world.recorder.emit(WEB, "Normal", "Ready", "all is well")
    await world.recorder.flush()
    assert world.told == [("all is well", 5)]
    assert sum(world.server.calls.values()) == 1


async def test_many_similar_ones_share_an_event(world: World) -> None:
    for number in range(SIMILAR + 5):
        await world.say(f"scaling to {number}", reason="ScalingUp")
    messages = [message for message, _ in world.told]
    assert messages[:SIMILAR] == [f"scaling to {number}" for number in range(SIMILAR)]
    assert world.told[SIMILAR:] == [(f"{COMBINED}scaling to {SIMILAR + 4}", 5)]
    await world.say("something else", reason="Ready")
    assert world.told[-1] == ("something else", 1)


async def test_a_group_that_flaps_has_a_budget_and_the_count_is_right(world: World) -> None:
    for _ in range(500):
        await world.say("up", reason="Up")
        await world.say("down", reason="Down")
    assert sum(world.server.calls.values()) == BURST
    await world.say("others have their own", about=About("api", "u-2"))
    world.later(minutes=2)
    await world.say("up", reason="Up")
    assert ("up", 501) in world.told
    assert sum(world.server.calls.values()) == BURST + 2


async def test_a_clock_that_is_set_back_silences_nobody(world: World) -> None:
    for number in range(BURST):
        await world.say("flaps", reason=f"Reason{number}")
    world.set_clock(hours=-1)
    world.later(minutes=5)
    await world.say("heard")
    assert ("heard", 1) in world.told
    assert world.events[-1]["lastTimestamp"].startswith("2026-01-02T02:09"), "the time as it is"


async def test_a_clock_that_is_set_ahead_gives_nobody_more(world: World) -> None:
    for _ in range(BURST):
        await world.say("flaps")
    world.set_clock(hours=2)
    await world.say("flaps")
    await world.say("more of it")
    assert world.told == [("flaps", BURST)]


async def test_events_of_objects_in_a_namespace_go_there(world: World) -> None:
    place = "/api/v1/namespaces/kwok-operator/events"
    world.server.store.serve(place, kind="Event")
    await world.say("broken", about=About(namespace="kwok-operator"))
    assert world.events == []
    assert len(world.server.store.collections[place].objects) == 1


async def test_what_goes_wrong_is_not_fatal(world: World) -> None:
    world.server.fail(403, times=1)
    await world.say("broken")
    assert world.told == []
    await world.say("broken")
    assert world.told == [("broken", 2)]
    await world.say("elsewhere", about=About(namespace="no-such-place"))


async def test_little_is_remembered_of_many(world: World) -> None:
    for number in range(3_000):
        world.recorder.emit(About(f"g-{number}", f"u-{number}"), "Normal", "Ready", "well")
    await world.recorder.flush()
    assert len(world.events) == 500


async def test_a_node_is_told_where_kubectl_looks_for_it(world: World) -> None:
    assert world.recorder.emit_for_node("web-1", "Warning", "Interrupted", "goes in 2m")
    await world.recorder.flush()
    (event,) = world.events
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "web-1",
        "uid": "web-1",
    }
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "Interrupted",
        "goes in 2m",
    )
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["count"] == 1


async def test_a_restart_makes_no_second_event_of_a_node(
    world: World,
) -> None:
    for _ in range(2):
        world.another_operator()
        world.recorder.emit_for_node("web-1", "Warning", "Interrupted", "goes in 2m")
        await world.recorder.flush()
    assert world.told == [("goes in 2m", 2)]


async def test_nodes_leave_room_for_groups(world: World) -> None:
    told = [
        world.recorder.emit_for_node(f"web-{n}", "Warning", "Interrupted", "goes in 2m")
        for n in range(1_000)
    ]
    assert 0 < sum(told) < 500
    world.recorder.emit(WEB, "Normal", "Interrupted", "1000 nodes go in 2m")
    await world.recorder.flush()
    assert ("1000 nodes go in 2m", 1) in world.told
    assert len(world.events) == sum(told) + 1


async def test_what_was_said_last(world: World) -> None:
    both = ("Failed", "Arrived")
    assert world.recorder.last_said(WEB, both) is None
    for reason in ("Failed", "Arrived", "Failed", "Ready"):
        await world.say(f"{reason}.", reason=reason)
    assert world.recorder.last_said(WEB, both) == "Failed"
    await world.say("Arrived.", reason="Arrived")
    assert world.recorder.last_said(WEB, both) == "Arrived"
    assert world.recorder.last_said(About(uid="u-2"), both) is None
