"""KwokPodProfiles, kept as Stages in a cluster."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.constants import PROFILE_KIND, PROFILE_LABEL, PROFILES_PATH
from kwok_operator.kube.client import KubeClient
from kwok_operator.podprofiles import profiles as module
from kwok_operator.podprofiles.compile import Compiled, compile_profile
from kwok_operator.podprofiles.profiles import Profiles
from tests.fakes.applying import NAMESPACES, ApplyingApiServer
from tests.fakes.feed import feeding
from tests.fakes.recording import RecordedEvents
from tests.fakes.store import Json
from tests.fakes.waiting import until

STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"
USAGES = "/apis/kwok.x-k8s.io/v1alpha1/clusterresourceusages"
WRITES = (("patch", "stages"), ("delete", "stages"), ("patch", "kwokpodprofiles/status"))
FOR_PODS: Json = {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}}
SLOW: dict[str, Any] = {"start": {"delay": {"fixed": "5s"}}}


class World:
    """An API server with kwok's Stage for pods, and an operator."""

    def __init__(self, server: ApplyingApiServer) -> None:
        self.server = server
        self.events = RecordedEvents()
        self._client = KubeClient(connection=server.connection())
        self.profiles = Profiles(
            client=self._client,
            recorder=self.events.as_recorder(),
            now=lambda: "2026-01-02T03:04:05Z",
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        reflector = feeding(self.profiles.objects, client=self._client, path=PROFILES_PATH)
        running = (reflector.run(), self.profiles.run())
        self._tasks = [asyncio.create_task(each) for each in running]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    def apply(self, name: str = "slow", **spec: Any) -> None:
        self.server.create(PROFILES_PATH, {"metadata": {"name": name}, "spec": spec})

    def stages(self) -> dict[str, Json]:
        found = self.server.objects(STAGES)
        return {
            name: stage
            for name, stage in found.items()
            if PROFILE_LABEL in stage["metadata"].get("labels", {})
        }

    def condition(self, kind: str, name: str = "slow") -> tuple[str, str]:
        status = self.server.objects(PROFILES_PATH)[name].get("status", {})
        for each in status.get("conditions", ()):
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    async def settled(self, name: str = "slow", *, present: str = "True") -> None:
        await until(lambda: self.condition("StagesPresent", name)[0] == present)

    async def look_again(self) -> None:
        """Another pass, as there is one each minute, or after news of anything."""
        lists = self.server.calls["list", "stages"]
        self.server.create(PROFILES_PATH, {"metadata": {"name": f"zz-{lists}"}, "spec": {}})
        await self.settled(f"zz-{lists}")

    @property
    def writes(self) -> int:
        return sum(self.server.calls[write] for write in WRITES)


def serve(server: ApplyingApiServer) -> None:
    server.serve(STAGES, kind="Stage")
    server.serve(USAGES, kind="ClusterResourceUsage")
    server.create(STAGES, {"metadata": {"name": "pod-ready"}, "spec": FOR_PODS})


@pytest.fixture
async def bare(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Without kwok's kinds."""
    monkeypatch.setattr(module, "GATHER_FOR", 0.0)
    async with ApplyingApiServer() as server:
        server.serve(PROFILES_PATH, kind=PROFILE_KIND)
        world = World(server)
        world.start()
        yield world
        await world.stop()


@pytest.fixture
def world(bare: World) -> World:
    serve(bare.server)
    return bare


async def test_stages_come_change_and_go_with_their_profile(world: World) -> None:
    world.apply(**SLOW, usage={"cpu": {"constant": "1"}})
    await world.settled()
    first = world.stages()
    uid = world.server.objects(PROFILES_PATH)["slow"]["metadata"]["uid"]
    assert first
    for stage in first.values():
        assert [owner["uid"] for owner in stage["metadata"]["ownerReferences"]] == [uid]
    assert len(world.server.objects(USAGES)) == 1
    world.server.patch(
        PROFILES_PATH, "slow", {"spec": {"start": {"delay": {"fixed": "9s"}}, "usage": None}}
    )
    await until(lambda: world.stages() != first and not world.server.objects(USAGES))
    world.server.delete(PROFILES_PATH, "slow")
    await until(lambda: not world.stages())
    assert set(world.server.objects(STAGES)) == {"pod-ready"}


async def test_nothing_is_written_where_nothing_changed(world: World) -> None:
    world.apply(**SLOW)
    await world.settled()
    await world.look_again()
    before = world.server.calls["patch", "stages"], world.server.calls["delete", "stages"]
    await world.look_again()
    after = world.server.calls["patch", "stages"], world.server.calls["delete", "stages"]
    assert after == before


async def test_what_was_edited_or_deleted_by_hand_is_repaired(world: World) -> None:
    world.apply(**SLOW)
    await world.settled()
    before = world.stages()
    name = min(before)
    # A field that is added, which to apply again would leave, and the label that says whose it is.
    edited = {"weight": 1, "next": {"delete": True}}
    world.server.patch(
        STAGES, name, {"spec": edited, "metadata": {"labels": {PROFILE_LABEL: None}}}
    )
    await world.look_again()
    assert world.stages()[name]["spec"] == before[name]["spec"]
    world.server.delete(STAGES, name)
    await world.look_again()
    assert world.stages().keys() == before.keys()


async def test_edits_from_before_the_start_are_repaired(world: World) -> None:
    world.apply(**SLOW)
    await world.settled()
    before = world.stages()
    await world.stop()
    world.server.patch(STAGES, min(before), {"spec": {"weight": 1}})
    again = World(world.server)
    again.start()
    try:
        await until(lambda: world.stages()[min(before)]["spec"] == before[min(before)]["spec"])
    finally:
        await again.stop()


async def test_a_copy_of_a_stage_of_ours_is_somebodys_own(world: World) -> None:
    world.apply(**SLOW)
    await world.settled()
    ours = world.stages()[min(world.stages())]
    kept = {key: ours["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    world.server.create(STAGES, {"metadata": {"name": "mine", **kept}, "spec": {"mine": True}})
    await world.look_again()
    assert world.server.objects(STAGES)["mine"]["spec"] == {"mine": True}


async def test_a_stage_that_is_refused_costs_the_others_nothing(world: World) -> None:
    world.server.fail(400, verb="patch", resource="stages")
    world.apply("bad", **SLOW)
    await world.settled("bad", present="False")
    assert world.condition("StagesPresent", "bad") == ("False", "Refused")
    world.apply("slow", **SLOW)
    await world.settled()
    await world.settled("bad")


async def test_a_foreign_stage_of_that_name_is_left_alone(world: World) -> None:
    world.apply(**SLOW)
    await world.settled()
    name = min(world.stages())
    world.server.delete(PROFILES_PATH, "slow")
    await until(lambda: not world.stages())
    # Neither the label alone nor an owner of another kind makes it ours.
    labels = {PROFILE_LABEL: "true"}
    foreign = {"metadata": {"name": name, "labels": labels}, "spec": {"mine": True}}
    world.server.create(STAGES, foreign)
    world.apply(**SLOW)
    await world.settled(present="False")
    assert world.condition("StagesPresent") == ("False", "NameTaken")
    assert world.server.objects(STAGES)[name]["spec"] == {"mine": True}
    world.server.delete(PROFILES_PATH, "slow")
    await until(lambda: set(world.server.objects(STAGES)) == {"pod-ready", name})


async def test_a_stage_that_somebody_makes_at_the_same_moment_is_theirs(world: World) -> None:
    world.server.others = {"kwok-operator.slow.start": "kubectl"}
    world.apply(**SLOW)
    await world.settled(present="False")
    assert world.condition("StagesPresent") == ("False", "Refused")
    assert "kwok-operator.slow.start" not in world.stages()


async def test_namespaces_are_watched_only_while_a_profile_selects_by_them(world: World) -> None:
    world.apply(**SLOW)
    await world.settled()
    assert world.server.calls["list", "namespaces"] == 0
    world.server.create(NAMESPACES, {"metadata": {"name": "one", "labels": {"team": "a"}}})
    world.apply("team", priority=1, namespaceSelector={"matchLabels": {"team": "a"}}, **SLOW)
    await until(lambda: world.condition("Compiled", "team")[0] == "True")
    assert world.server.objects(PROFILES_PATH)["team"]["status"]["namespaces"] == 1
    world.server.create(NAMESPACES, {"metadata": {"name": "two", "labels": {"team": "a"}}})
    await until(lambda: world.server.objects(PROFILES_PATH)["team"]["status"]["namespaces"] == 2)
    assert watches_namespaces()
    world.server.delete(PROFILES_PATH, "team")
    await until(lambda: not watches_namespaces())


def watches_namespaces() -> bool:
    return any(task.get_name() == "watch namespaces" for task in asyncio.all_tasks())


async def test_without_the_kind_the_status_says_so(bare: World) -> None:
    bare.apply(**SLOW)
    await bare.settled(present="False")
    assert bare.condition("StagesPresent") == ("False", "NoStageKind")
    assert bare.events.reasons == ["NoStageKind"]


async def test_without_kwoks_own_stages_the_status_says_so(world: World) -> None:
    world.server.delete(STAGES, "pod-ready")
    # Of the component hold-stage: it starts no pod.
    again = {"metadata": {"name": "kwok-operator-pod-ready-again"}, "spec": FOR_PODS}
    world.server.create(STAGES, again)
    world.apply(**SLOW)
    await world.settled(present="False")
    assert world.condition("StagesPresent") == ("False", "NoDefaultStages")
    assert world.stages()


async def test_a_missing_right_is_reported_once(world: World) -> None:
    world.server.fail(403, reason="Forbidden", times=9, resource="stages")
    world.apply(**SLOW)
    await world.settled(present="False")
    world.apply("zz", **SLOW)
    await world.settled("zz", present="False")
    assert world.condition("StagesPresent") == ("False", "NotAllowed")
    about_slow = [said.reason for said in world.events.said if said.about == "slow"]
    assert about_slow == ["NotAllowed"]


async def test_rights_that_were_granted_are_noticed_without_other_news(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.LOOK_FOR_RIGHTS_AFTER == 5
    soon, pauses, timeout = 0.05, list[float | None](), asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        pauses.extend({seconds} & {soon, module.LOOK_AGAIN_AFTER})
        return timeout(seconds)

    monkeypatch.setattr(module, "LOOK_FOR_RIGHTS_AFTER", soon)
    monkeypatch.setattr(asyncio, "timeout", noted)
    no_right = 'stages is forbidden: User "u" cannot patch resource "stages"'
    world.server.fail(403, verb="patch", resource="stages", message=no_right, times=3)
    world.apply(**SLOW, failures=[{"type": "CrashLoopBackOff", "after": {"fixed": "1s"}}])
    await world.settled(present="False")
    assert world.condition("StagesPresent") == ("False", "NotAllowed")
    await world.settled()
    # However many Stages there are, each of three passes tried one.
    assert len(world.stages()) > 1
    assert world.server.calls["list", "stages"] > 3
    await until(lambda: pauses[-1] == module.LOOK_AGAIN_AFTER)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('stages "s" is forbidden: User "u" cannot patch resource "stages"', "NotAllowed"),
        ('admission webhook "policy.example.com" denied the request: no team', "Refused"),
    ],
)
async def test_a_refusal_is_reported_once(world: World, message: str, reason: str) -> None:
    world.server.fail(403, verb="patch", resource="stages", message=message, times=9)
    world.apply(**SLOW)
    await world.settled(present="False")
    assert world.condition("StagesPresent") == ("False", reason)
    (said,) = (
        each["message"]
        for each in world.server.objects(PROFILES_PATH)["slow"]["status"]["conditions"]
        if each["type"] == "StagesPresent"
    )
    if reason == "NotAllowed":
        assert said.count("add the component pod-profiles") == 1
        assert [each.reason for each in world.events.said] == ["NotAllowed"]
    else:
        assert "no team" in said and "component" not in said


@pytest.mark.parametrize(
    "spec", [[], {"start": 5}, {"seed": {}}, {"usage": {"cpu": {"constant": "x" * 9_999}}}]
)
async def test_an_unreadable_spec_costs_the_others_nothing(world: World, spec: Any) -> None:
    world.server.create(PROFILES_PATH, {"metadata": {"name": "odd"}, "spec": spec or {"run": []}})
    world.apply(**SLOW)
    await world.settled()
    await until(lambda: world.condition("Compiled", "odd") == ("False", "Unreadable"))
    assert world.stages()


async def test_others_run_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    turn, compiled_in = 0, list[int]()

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def compile_one(*args: Any, **more: Any) -> Compiled:
        compiled_in.append(turn)
        return compile_profile(*args, **more)

    monkeypatch.setattr(module, "compile_profile", compile_one)
    running = asyncio.create_task(others())
    for number in range(9):
        world.apply(f"p{number}", **SLOW)
    await until(lambda: len(compiled_in) > 8)
    running.cancel()
    assert len(set(compiled_in)) == len(compiled_in) > 8


async def test_of_two_that_match_the_lower_one_says_so(world: World) -> None:
    world.apply(**SLOW)
    world.apply("higher", podSelector={"matchLabels": {"app": "a"}}, priority=5, **SLOW)
    await until(lambda: world.condition("Overlapping")[0] == "True")
    await until(lambda: world.condition("Overlapping", "higher")[0] == "False")
