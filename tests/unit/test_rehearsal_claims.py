"""NodeClaims of Karpenter, from the API server to the record of a run."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.constants import NODE_CLAIMS_PATH, NODE_POOLS_PATH
from kwok_operator.kube import reflector
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.judge import observed, settling
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import NodeClaimState
from kwok_operator.rehearsal.judge.settling import (
    COLLECTION_SECONDS,
    CONSOLIDATION_SECONDS,
    LOOK_SECONDS,
    OUTAGE_SECONDS,
    in_words,
    still_to_come,
)
from kwok_operator.rehearsal.recorder import PODS_PATH, RunRecorder
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.rehearsaltestbed import fake_testbed, play_on, serve_quiet_cluster

Place = tuple[FakeApiServer, Any]
CLOCK = StampClock(1_700_000_000_000)
"""2023-11-14T22:13:20Z."""
LABELS = {"karpenter.sh/nodepool": "web", "eks-node-viewer/instance-price": "0.250000"}
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
UNTIL = {"settledFor": "500ms", "atMost": "20s"}


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[Place]:
    async with FakeApiServer() as server:
        serve_quiet_cluster(server)
        async with KubeClient(connection=server.connection()) as client:
            yield server, fake_testbed(client, tmp_path)


def later(seconds: float, do: Any, *args: Any) -> None:
    asyncio.get_running_loop().call_later(seconds, do, *args)


def installs_karpenter(server: FakeApiServer, *, consolidate_after: str = "Never") -> None:
    server.serve(NODE_POOLS_PATH, kind="NodePool")
    server.serve(NODE_CLAIMS_PATH, kind="NodeClaim", status_on_create=True)
    disruption = {"consolidateAfter": consolidate_after}
    pool = {"metadata": {"name": "web"}, "spec": {"disruption": disruption}}
    server.create(NODE_POOLS_PATH, pool)
    server.create(NODE_CLAIMS_PATH, {"metadata": {"name": "web-1", "labels": LABELS}})


def registers(server: FakeApiServer, *, node: str = "") -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("Launched", "Registered")]
    status = {"conditions": conditions, "nodeName": node}
    server.patch(NODE_CLAIMS_PATH, "web-1", {"status": status}, subresource="status")


async def test_what_comes_with_its_crd_came_in_the_run_and_is_waited_for(
    testbed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "SERVED_WITHIN", 0.1)
    server, place = testbed
    server.fail(410, verb="watch", resource="nodeclaims")  # as of a cache newer than the list
    later(0.3, installs_karpenter, server)
    later(2, registers, server)
    expect = [
        {"figure": "nodeClaims.underWay.max", "of": {"nodePool": "web"}, "equals": 1},
        {"figure": "nodeClaims.registered", "equals": 1},
    ]
    found = await play_on(place, until=UNTIL, expect=expect)
    assert (found.end.reason, found.passed, found.incomplete) == ("settled", True, {})
    assert [claims.what for claims in found.story.claims] == ["launched", "registered"]


@pytest.mark.parametrize(("consolidate_after", "least"), [("1s", 2.0), ("Never", 1.5)])
async def test_a_run_waits_for_what_karpenter_may_do_next(
    testbed: Place,
    monkeypatch: pytest.MonkeyPatch,
    consolidate_after: str,
    least: float,
) -> None:
    monkeypatch.setattr(settling, "CONSOLIDATION_SECONDS", 1.0)
    monkeypatch.setattr(settling, "LOOK_SECONDS", 1.0)
    server, place = testbed
    installs_karpenter(server, consolidate_after=consolidate_after)
    registers(server)
    server.create(NODES, {"metadata": {"name": "n", "labels": LABELS}})
    drifts = {"spec": {"template": {"metadata": {"labels": {"os": "new"}}}}}
    later(0.5, server.patch, NODE_POOLS_PATH, "web", drifts)
    found = await play_on(place, until=UNTIL)
    assert found.end.reason == "settled"
    assert found.t >= least


async def test_a_run_waits_for_the_batch_of_pods_that_karpenter_gathers(
    testbed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "POLL_SECONDS", 0.5)
    server, place = testbed
    server.create(PODS_PATH, {"metadata": {"name": "web", "namespace": "default"}})
    process = {"name": "karpenter", "starts": "byTimeline", "karpenter": {"batchIdle": "1s"}}
    found = await play_on(place, until=UNTIL, processes=[process])
    assert (found.end.reason, found.t >= 1.5) == ("settled", True)


async def test_a_run_waits_for_what_is_collected_with_a_node_that_is_lost(
    testbed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "COLLECTION_SECONDS", 1.5)
    server, place = testbed
    installs_karpenter(server)
    registers(server, node="lost")
    found = await play_on(place, until=UNTIL)
    assert (found.end.reason, found.t >= 1.5) == ("settled", True)


async def test_a_recorder_on_a_borrowed_cluster_needs_no_rights_to_karpenters_kinds(
    testbed: Place,
) -> None:
    server, place = testbed
    installs_karpenter(server)
    recorder = RunRecorder(
        client=place.client, write=lambda line: None, clock=CLOCK, now=lambda: 1.0, marked_only=True
    )
    await recorder.start()
    await recorder.stop()
    assert not {"nodeclaims", "nodepools", "podgroups"} & {resource for _, resource in server.calls}


@pytest.mark.parametrize(
    ("quiet", "waits", "after", "says"),
    [
        (1_000.0, {"under_way": 1}, [], "1 NodeClaim under way"),
        (1_000.0, {"under_way": 2_000}, [], "2,000 NodeClaims under way"),
        (10.0, {}, [], ""),
        (10.0, {}, [math.inf], f"within {LOOK_SECONDS - 10:g} s"),
        (LOOK_SECONDS, {}, [math.inf], ""),
        (10.0, {}, [0.0, math.inf], f"within {CONSOLIDATION_SECONDS - 10:g} s"),
        (30.0, {}, [0.0, 60.0], f"within {CONSOLIDATION_SECONDS + 30:g} s"),
        (60.0 + CONSOLIDATION_SECONDS, {}, [0.0, 60.0], ""),
        (10.0, {"left_over": 2}, [], f"within {COLLECTION_SECONDS - 10:g} s"),
        (COLLECTION_SECONDS, {"left_over": 2}, [], ""),
        (20.0, {"gathers": 15.0}, [], "a batch of pods, which should come within 5 s"),
        (25.0, {"gathers": 15.0}, [], ""),
        (
            10.0,
            {"ready_in_outage": 3},
            [],
            f"within {OUTAGE_SECONDS - 10:g} s",
        ),
        (OUTAGE_SECONDS, {"ready_in_outage": 3}, [], ""),
        (1.0, {"displaced": 3}, [], ""),
        (10.0, {"displaced": 3, "evicts_after": 2.0}, [], f"within {OUTAGE_SECONDS - 8:g} s"),
        (OUTAGE_SECONDS + 2, {"displaced": 3, "evicts_after": 2.0}, [], ""),
        (1.0, {"displaced": 3, "evicts_after": 86_400.0}, [], ""),
    ],
)
def test_what_a_quiet_run_waits_for(
    quiet: float, waits: dict[str, Any], after: list[float], says: str
) -> None:
    waits = dict.fromkeys(("under_way", "left_over", "ready_in_outage", "displaced"), 0) | {
        "gathers": None,
        "evicts_after": None,
        **waits,
    }
    found = still_to_come(quiet=quiet, consolidates_after=after, **waits)
    assert says in found
    assert bool(found) is bool(says)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "quiet, 32 of 40 s"),
        ({"quiet": 61.0}, "quiet, 40 of 40 s"),
        ({"quiet": 61.0, "more": "1 NodeClaim under way"}, "1 NodeClaim under way"),
        ({"more": "1 NodeClaim under way"}, "quiet, 32 of 40 s"),
        ({"to_play": ["the arrival of web"]}, "the arrival of web"),
        ({"to_play": ["timeline[1], scale", "timeline[2], run"]}, "timeline[1], scale and 1 more"),
        ({"settled": None}, ""),
        ({"condition": "pods.running: at least 3", "to_play": ["x"]}, "pods.running: at least 3"),
    ],
)
def test_what_a_run_waits_for_in_words(given: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {"condition": "", "settled": 40.0, "quiet": 32.4, "to_play": []}
    assert in_words(**{**usual, "more": "", **given}) == says


def claim(**body: Any) -> NodeClaimState:
    return observed.node_claim(body, price=None, before=None, seen=10.0, clock=CLOCK)


@pytest.mark.parametrize(
    ("lasts", "deleted", "condition", "reason"),
    [
        ("Never", None, {}, ""),
        ("1m30s", "22:14:50", {}, "Expired"),
        ("30s30s30s", "22:14:50", {}, "Expired"),
        ("1m30s", "22:14:49", {}, ""),
        ("1m30s", None, {}, ""),
        ("Never", "23:00:00", {}, ""),
        ("1m", "23:00:00", {"status": "True", "reason": "Drifted"}, "Drifted"),
        ("Never", None, {"status": "True", "reason": "Empty"}, "Empty"),
        ("Never", None, {"status": "False", "reason": "Empty"}, ""),
        (7, "tomorrow", {"status": "True", "reason": []}, ""),
    ],
)
def test_why_a_node_claim_ends(
    lasts: Any, deleted: str | None, condition: dict[str, Any], reason: str
) -> None:
    metadata = {"creationTimestamp": "2023-11-14T22:13:20Z", "labels": LABELS}
    if deleted is not None:
        metadata["deletionTimestamp"] = f"2023-11-14T{deleted}Z"
    conditions = [{"type": "DisruptionReason", **condition}]
    spec, status = {"expireAfter": lasts}, {"conditions": conditions}
    found = claim(metadata=metadata, spec=spec, status=status)
    assert (found.reason, found.deleting) == (reason, deleted is not None)
    assert (found.pool, found.price) == ("web", 0.25)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s1m", 90), ("1h", 3_600), ("Never", math.inf), ("9" * 400 + "s", math.inf)],
)
def test_after_how_long_karpenter_consolidates(written: str, seconds: float) -> None:
    spec = {"disruption": {"consolidateAfter": written}}
    assert observed.consolidates_after(spec) == seconds


def test_a_node_is_ready_once_it_is_registered() -> None:
    def node(*taints: Any, price: float | None = None) -> Any:
        body = {"metadata": {"labels": LABELS}, "spec": {"taints": list(taints)}, "status": READY}
        return observed.node(body, price=price, before=None, seen=10.0, clock=CLOCK)

    assert not node(UNREGISTERED).ready
    found = node()
    assert (found.ready, found.pool, found.price) == (True, "web", 0.25)
    assert node(price=2.0).price == 2.0
