"""Why pods waited, by a recording."""

import asyncio
import gzip
import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kwok_operator.causes import model
from kwok_operator.causes.model import StepKind
from kwok_operator.causes.podfilter import PodFilter
from kwok_operator.causes.recorded import Explainer
from kwok_operator.cli.main import main
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    BudgetState,
    CallLine,
    EventLine,
    PodLine,
    RecordedLine,
    RecordingHeader,
)
from kwok_operator.rehearsal.judge.verdict import junit_xml, summary
from kwok_operator.rehearsal.recorder import EVENTS_PATH, PODS_PATH, RunRecorder
from kwok_operator.rehearsal.scenario.expectation import Expectation
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.explained import (
    ANTI,
    FULL,
    SOLD_OUT,
    chains,
    evicted,
    failed,
    group,
    kept,
    refused,
    runs,
    says,
    scaled,
    waits,
)
from tests.fakes.rehearsaltestbed import serve_quiet_cluster
from tests.fakes.rehearsed import NAME, content, gone, node, pod, run
from tests.randomrecording import random_recording

CREATED, BOUND, RUNNING = (1, "created"), (39, "bound"), (40, "running")
UNSCHEDULABLE = (1.5, "unschedulable")
COVERED = [node(0, "n"), *runs(covered=("p",))]
GONE = PodLine(60, "default/web-1", None)
STEPS: dict[str, tuple[list[RecordedLine], list[tuple[float, str]]]] = {
    "a node that was requested before the pod": (
        [*waits(), node(9, "n", created=9.0, requested=0.9), scaled(1.2), *runs()],
        [
            *(CREATED, (1, "requested"), (1.2, "decided"), UNSCHEDULABLE),
            *((9, "node"), (9, "usable"), BOUND, RUNNING),
        ],
    ),
    "a node that was there before the pod": (
        [node(0, "n"), *waits(), *runs()],
        [CREATED, UNSCHEDULABLE, BOUND, RUNNING],
    ),
    "failures of its group before, meanwhile and after": (
        [
            node(0, "n"),
            *waits(),
            failed(2, "1"),
            scaled(5),
            failed(8, "2"),
            *runs(),
            failed(50, "3"),
        ],
        [CREATED, UNSCHEDULABLE, (5, "decided"), (8, "failed"), BOUND, RUNNING],
    ),
    "a budget that allowed nothing before the pod ran": (
        [*COVERED, BudgetLine(10, "PodDisruptionBudget/default/p", BudgetState(0, 2, 2))],
        [CREATED, BOUND, RUNNING, (40, "held")],
    ),
    "a budget of a pod that is gone": (
        [*COVERED, BudgetLine(50, "PodDisruptionBudget/default/p", BudgetState(0, 2, 2)), GONE],
        [CREATED, BOUND, RUNNING, (60, "ended")],
    ),
    "a budget that still allows nothing": (
        [
            *COVERED,
            BudgetLine(50, "PodDisruptionBudget/default/p", BudgetState(0, 2, 2)),
            BudgetLine(55, "PodDisruptionBudget/default/p", BudgetState(0, 1, 2)),
        ],
        [CREATED, BOUND, RUNNING, (50, "held")],
    ),
    "an eviction that is seen again": (
        [
            node(0, "n"),
            *runs(),
            evicted("EvictionByEvictionAPI"),
            replace(evicted("EvictionByEvictionAPI"), t=65),
        ],
        [CREATED, BOUND, RUNNING, (60, "disrupted")],
    ),
    "a call that failed": (
        [
            *waits(),
            CallLine(5, "NodeGroupIncreaseSize", "a", "1", "ResourceExhausted"),
            node(9, "n", created=9.0, requested=5.0),
            *runs(),
        ],
        [CREATED, UNSCHEDULABLE, (5, "requested"), (9, "node"), (9, "usable"), BOUND, RUNNING],
    ),
    "a failure after the first of two decisions": (
        [node(0, "n"), *waits(), scaled(5), failed(8, "1"), scaled(20), *runs()],
        [CREATED, UNSCHEDULABLE, (5, "decided"), (8, "failed"), BOUND, RUNNING],
    ),
    "events that repeat the scheduler, and that come late": (
        [
            *(node(0, "n"), *waits(), says(3, "FailedScheduling", ANTI), *runs()),
            refused(45, "1 max node group size reached"),
        ],
        [CREATED, UNSCHEDULABLE, BOUND, RUNNING],
    ),
    "a refusal at the moment of the scheduler's message": (
        [pod(1, "web-1", created=1), refused(1.5, "1 Too many pods"), waits()[1]],
        [CREATED, UNSCHEDULABLE, (1.5, "refused")],
    ),
    "its node was kept before, meanwhile and after": (
        [node(0, "n"), *runs(), kept(20), kept(50, "q"), GONE, kept(62)],
        [CREATED, BOUND, RUNNING, (50, "held"), (60, "ended")],
    ),
}


@pytest.mark.parametrize("planted", STEPS)
def test_the_steps_are_those_of_the_pod(planted: str) -> None:
    lines, steps = STEPS[planted]
    (chain,) = chains(run(*lines))
    assert [(step.at, step.kind) for step in chain.steps] == steps


@pytest.mark.parametrize(
    ("last", "waited"),
    [
        (pod(5, "web-1", created=1, phase="Failed"), 4),
        (PodLine(9, "default/web-1", None), 8),
        (gone(9, "n"), 99),
    ],
    ids=["failed", "deleted", "waits"],
)
def test_a_wait_ends_with_the_pod(last: RecordedLine, waited: float) -> None:
    (chain,) = chains(run(*waits(), last))
    assert chain.waited == waited


def test_only_what_nothing_shows_is_reported_as_unknown() -> None:
    by = says(59, "ScaleDown", "deleting pod for node scale down")
    evictions = [node(0, "n"), *runs(), evicted("EvictionByEvictionAPI")]
    karpenters = says(3, "FailedScheduling", "Failed to schedule pod, no instance type has enough")
    unknown = [
        "".join(chain.unknown)
        for lines in (evictions, [*evictions, by], [*waits(), karpenters])
        for chain in chains(run(*lines))
    ]
    assert "audit log" in unknown[0]
    assert unknown[1:] == ["", ""]


def test_what_is_said_of_groups_is_as_they_are_when_a_chain_is_made() -> None:
    other = pod(2, "web-2", created=2, why=FULL)
    deleted = PodLine(50, "default/web-1", None)
    lines = [*waits(), other, CallLine(0, "NodeGroups"), deleted, pod(60, "web-3", created=60)]
    before, after, _ = chains(run(*lines, group(70, says=SOLD_OUT)))
    assert "1 instance has" not in before.cause.sentence
    assert "1 instance has" in after.cause.sentence


def test_the_group_of_a_refusal_is_the_one_that_has_failed_by_then() -> None:
    other = pod(2, "web-2", created=2, why=FULL)
    text = "1 in backoff after failed scale-up"
    later = replace(refused(11, text), about="Pod/default/web-2")
    lines = [group(0), *waits(), other, refused(9, text), failed(10, "quota"), later]
    before, after = chains(run(*lines))
    assert [each.names for each in before.cause.refusals] == [()]
    assert [each.names for each in after.cause.refusals] == [("a",)]


def test_late_events_are_about_the_pod_that_was_there_before() -> None:
    lines = [
        node(0, "n"),
        *runs(),
        evicted("PreemptionByScheduler"),
        PodLine(61, "default/web-1", None),
        pod(61.1, "web-1", created=61),
        says(61.2, "Preempted", "by u-1", by="shop/vip-1"),
        refused(61.3, "1 max node group size reached"),
        pod(61.4, "web-1", created=61, why=FULL),
        refused(61.5, "1 Insufficient cpu"),
    ]
    before, later = chains(run(*lines))
    assert "in favour of shop/vip-1" in before.cause.sentence
    assert [each.reason for each in later.cause.refusals] == ["Insufficient cpu"]
    assert [step.text for step in later.steps if "max node" in step.text] == []


def test_preemptions_are_those_of_pods_of_one_name_in_turn() -> None:
    first = evicted("PreemptionByScheduler")
    new, second = pod(61.1, "web-1", created=61), PodLine(63, first.name, first.state)
    over, over_too = (PodLine(t, first.name, None) for t in (61, 65))
    before: list[RecordedLine] = [node(0, "n"), *runs(), first, over, new]

    def by(t: float) -> EventLine:
        return says(t, "Preempted", "by u", by=f"shop/vip-{t}")

    turns: list[tuple[list[RecordedLine], tuple[str, str]]] = [
        ([by(62), by(62.5), second], ("vip-62", "vip-62.5")),
        ([second, by(64)], ("scheduler", "vip-64")),
        (
            [by(62), second, over_too, pod(66.1, "api-1", created=66), by(66.5)],
            ("vip-62", "vip-66.5"),
        ),
    ]
    for lines, names in turns:
        found = chains(run(*before, *lines))
        assert [each.cause.sentence.rpartition("/")[2].split()[-1] for each in found[:2]] == [
            *names
        ]


def test_an_autoscaler_that_has_decided_no_longer_refuses() -> None:
    lines = [
        *waits(),
        refused(5, "1 max node group size reached"),
        scaled(6),
        says(7, "Nominated", "Pod should schedule on: nodeclaim/c-1"),
        says(8, "FailedScheduling", "Failed to schedule pod, incompatible requirements"),
    ]
    (chain,) = chains(run(*lines))
    assert [each.reason for each in chain.cause.refusals] == ["incompatible requirements"]


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("existing pods anti-affinity rules", {"existing pods anti-affinity"}),
        ("untolerated taint", {"untolerated taint"}),
        ("Insufficient cpu, untolerated taint", {"Insufficient"}),
        ("Insufficient cpu, in backoff", {"in backoff"}),
    ],
)
def test_the_reasons_of_a_text_are_those_that_explain_most(text: str, reasons: set[str]) -> None:
    assert model.known_reasons(text) == reasons


def test_a_reason_that_may_end_does_not_last() -> None:
    lasting = "incompatible requirements"
    assert [model.lasts(each) for each in (lasting, f"{lasting}; in backoff")] == [True, False]


def test_a_decision_comes_before_what_came_of_it() -> None:
    boot = [node(9, "n", created=9.0, requested=4.9), *runs()]
    for lines in ([scaled(5.2)], [CallLine(5.2, "NodeGroupIncreaseSize", "a", "1", "OK")]):
        (chain,) = chains(run(*waits(), *lines, *boot))
        steps = [(step.at, step.kind) for step in chain.steps[2:4]]
        assert steps == [(4.9, StepKind.DECIDED), (4.9, StepKind.REQUESTED)]


def test_a_budget_that_allows_nothing_is_a_step() -> None:
    name = "PodDisruptionBudget/default/p"
    lines = [node(0, "n"), *runs(covered=("p",)), BudgetLine(50, name, BudgetState(0, 2, 2))]
    (chain,) = chains(run(*lines))
    assert "default/p allows no eviction" in chain.cause.sentence
    held = [step for step in chain.steps if step.kind is StepKind.HELD]
    assert [(step.at, "default/p allows no eviction" in step.text) for step in held] == [(50, True)]


@pytest.mark.parametrize("batch", range(4))
def test_phases_add_up_to_start_seconds(batch: int) -> None:
    for seed in range(batch, 200, 4):
        lines, ledger = random_recording(seed), ClusterLedger()
        for line in lines:
            ledger.apply(line)
        for chain in chains(lines):
            times = [step.at for step in chain.steps]
            assert times == sorted(times)
            record = ledger.pods.live.get(chain.pod)
            # A pod of the name of one that is gone is another pod.
            if record is None or any(step.text == "deleted" for step in chain.steps):
                continue
            if record.starting is None:
                assert not chain.phases, seed
            elif record.starting.seconds is not None:
                assert chain.waited == pytest.approx(record.starting.seconds), seed
                assert sum(chain.phases.values()) == pytest.approx(chain.waited), seed


def autoscaled(seed: int) -> Iterator[RecordedLine]:
    """A random recording, with what scheduler and autoscalers say about its pods."""
    draw = random.Random(seed)
    for line in random_recording(seed):
        state = line.state if isinstance(line, PodLine) else None
        if isinstance(line, PodLine) and state is not None and not state.node:
            why = draw.choice(("", FULL, ANTI, 'claim "data" not found, with C:\\'))
            line = replace(line, state=replace(state, why=why))
        yield line
        if isinstance(line, PodLine) and draw.random() < 0.5:
            no = says(0, "FailedScheduling", "Failed to schedule pod, no instance type", by="a/b")
            event = draw.choice((scaled(0), refused(0, "1 Insufficient cpu"), no))
            component = draw.choice((event.component, "default-scheduler"))
            yield replace(event, t=line.t, about=f"Pod/{line.name}", component=component)


@pytest.mark.parametrize("batch", range(4))
def test_without_the_lines_of_other_pods_the_answer_is_the_same(batch: int, tmp_path: Path) -> None:
    skipped = 0
    for seed in range(batch, 80, 4):
        data = content(autoscaled(seed))
        (tmp_path / NAME).write_bytes(data[: len(data) - seed % 3 * 40])
        for asked in ("web-1", "shop/web-", "job/shop/batch", "batch", "default/web-3", "nobody"):
            pods = PodFilter(asked)
            whole = [*outputs.chains(tmp_path, wanted=PodFilter(asked).wanted)]
            assert [*outputs.chains(tmp_path, wanted=pods.wanted, skips=pods.skips)] == whole
            skipped += sum(pods.skips(line) is not None for line in data.splitlines())
    assert skipped > 500


@pytest.mark.parametrize("asked", ["batch", "default/batch", "job/default/batch", 'a"b', "web-1"])
def test_a_line_that_matters_without_the_name_is_not_skipped(asked: str, tmp_path: Path) -> None:
    lines = [
        pod(1, "x-1", created=1, workload="Job/default/batch", why=FULL),
        PodLine(40, "default/x-1", None),
        pod(1, "y-1", created=1, workload='Job/default/a"b', why=FULL),
        *waits(),
        says(9, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff", "Pod/default/z"),
    ]
    (tmp_path / NAME).write_bytes(content(run(*lines)))
    pods = PodFilter(asked)
    whole = [*outputs.chains(tmp_path, wanted=PodFilter(asked).wanted)]
    assert [*outputs.chains(tmp_path, wanted=pods.wanted, skips=pods.skips)] == whole
    assert len(whole) == 1


def test_what_is_in_no_event_comes_from_the_calls() -> None:
    """cluster-autoscaler writes one Event of a kind about a pod in 5 minutes."""
    lines = [*waits(), scaled(3, "sold-out"), refused(4, "1 in backoff")]
    lines += [says(3.5, "OutOfStock", "none left. Do.", "KwokNodeGroup//sold-out")]
    lines += [CallLine(5.2, "NodeGroupIncreaseSize", "a", "1", "OK")]
    lines += [node(9, "n", created=9.0, requested=5.0), *runs()]
    (chain,) = chains(run(*lines))
    steps = [step.text for step in chain.steps]
    assert "sold-out: none left" in steps
    assert "cluster-autoscaler asks a for 1 more" in steps
    (chain,) = chains(run(*lines[:4]))
    assert "--record-duplicated-events" in "".join(chain.unknown)


def test_a_message_is_one_step_until_its_reasons_change() -> None:
    whole = f"0/9 nodes are available: {', '.join(f'1 reason {n}' for n in range(99))}."
    texts = [FULL, FULL.replace("1", "2"), whole, whole]
    lines = [pod(1 + n, "web-1", created=1, why=why) for n, why in enumerate(texts)]
    (chain,) = chains(run(*lines))
    steps = [(s.at, s.text) for s in chain.steps if s.kind is StepKind.UNSCHEDULABLE]
    assert steps == [(1, FULL), (3, whole)]


def test_of_many_messages_the_first_and_the_last_are_steps() -> None:
    lines = [pod(1 + n, "web-1", created=1, why=f"reason {n}") for n in range(30)]
    (chain,) = chains(run(*lines))
    texts = [s.text for s in chain.steps if s.kind is StepKind.UNSCHEDULABLE]
    assert texts == [*(f"reason {n}" for n in range(11)), "reason 29"]


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    explainer = Explainer(RecordingHeader())
    for n in range(2_000):
        lines: list[RecordedLine] = [pod(n, f"web-{n}", created=n, why=FULL)]
        lines += [PodLine(n + 0.5, f"default/web-{n}", None)]
        found = [chain for line in lines for chain in explainer.apply(line)]
        assert len(found) == (n > 5)
    assert len(list(explainer.finish(2_000))) < 10


async def test_a_recording_has_the_name_of_the_pod_that_preempted_another() -> None:
    lines = asyncio.Queue[RecordedLine]()

    async def next_one(kind: type[RecordedLine]) -> RecordedLine:
        while not isinstance(line := await lines.get(), kind):
            pass
        return line

    async with FakeApiServer() as server:
        serve_quiet_cluster(server)
        async with KubeClient(connection=server.connection()) as client:
            recorder = RunRecorder(
                client=client, write=lines.put_nowait, clock=StampClock(0), now=lambda: 1.0
            )
            await recorder.start()
            vip = server.create(PODS_PATH, {"metadata": {"name": "vip", "namespace": "shop"}})
            await next_one(PodLine)
            message = f"Preempted by pod {vip['metadata']['uid']} on node n"
            event = {"metadata": {"name": "e", "namespace": "shop"}, "reason": "Preempted"}
            server.create(EVENTS_PATH, {**event, "message": message})
            found = await next_one(EventLine)
            await recorder.stop()
    assert isinstance(found, EventLine)
    assert found.by == "shop/vip"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    expect = Expectation.model_validate(
        {"figure": "pods.pending", "equals": 0, "of": {"workload": "web"}}
    )
    lines = run(node(0, "n"), *waits(ANTI), refused(9, "1 anti-affinity"))
    lines[1:1] = [pod(1, f"api-{n}", created=1, why=FULL) for n in range(30)]
    data = content(sorted(lines, key=lambda line: line.t), expect=[expect])
    (tmp_path / NAME).write_bytes(gzip.compress(data))
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "code", "texts"),
    [
        ([], 0, ["Deployment/default/api: 30 pods", "1 of 1: refused by the autoscaler"]),
        (["web-1"], 0, ["default/web-1 of Deployment", "unschedulable: 0/2 nodes", "9.0 s  clus"]),
        (["default/web-1"], 0, ["default/web-1 of Deployment"]),
        (["api"], 0, ["api: 30 pods", "default/api-0 of Deployment"]),
        (["deployment/web"], 0, ["default/web-1 of Deployment"]),
        (["statefulset/web"], 1, []),
        (["api-1"], 0, ["default/api-1 of Deployment"]),
        (["nobody\x1b[31m"], 1, []),
    ],
)
def test_why_answers(
    asked: list[str], code: int, texts: list[str], recorded: Path, capsys: Any
) -> None:
    assert main(["why", str(recorded), *asked]) == code
    out, err = capsys.readouterr()
    assert all(text in out for text in texts)
    assert bool(out) is (code == 0) and bool(err) is (code != 0)
    assert f"{out}{err}".replace("\n", "").isprintable()
    assert "default/api-11" not in out


def test_a_reader_that_has_seen_enough_is_no_error(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread, end = os.pipe()
    os.close(unread)
    with os.fdopen(end, "w") as shown:
        monkeypatch.setattr("sys.stdout", shown)
        assert main(["why", str(recorded)]) == 0


def test_a_recording_that_is_not_there_is_an_error(tmp_path: Path, capsys: Any) -> None:
    assert main(["why", str(tmp_path / "no\x1b[31mthing")]) == 2
    (tmp_path / NAME).write_bytes(b"{}")
    assert main(["why", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert not out and err.replace("\n", "").isprintable()


def test_a_recording_that_ends_before_its_run_is_answered_as_of_then(
    recorded: Path, capsys: Any
) -> None:
    data = gzip.decompress((recorded / NAME).read_bytes())
    for cut in (data[: data.rindex(b"{", 0, -2)], data[:-9]):
        (recorded / NAME).write_bytes(cut)
        assert main(["why", str(recorded), "web-1"]) == 0
        assert "ends at 9.0 s, before its run did" in capsys.readouterr().err


def test_a_failed_verdict_names_causes_of_what_it_is_about(recorded: Path) -> None:
    found = outputs.judge(recorded)
    (why,) = found.why
    assert re.search("default/web: 1 of 1: refused by the autoscaler.*to do: loosen", why)
    assert f"why    {why}" in summary(found)


def test_each_failed_expectation_has_its_own_causes_in_junit_xml(tmp_path: Path) -> None:
    lines = run(node(0, "n"), *waits(ANTI), pod(1, "api-1", created=1, why=FULL))
    none = {"figure": "pods.pending", "equals": 0}
    expect = [{**none, "of": {"workload": each}} for each in ("web", "api", "nobody")]
    expect += [none, {"figure": "nodes.final", "equals": 0}]
    parsed = [Expectation.model_validate(each) for each in expect]
    (tmp_path / NAME).write_bytes(content(lines, expect=parsed))
    found = outputs.judge(tmp_path)
    cases = ElementTree.fromstring(junit_xml(found)).iter("testcase")
    shown = {each.get("name"): each.findtext("failure", "").splitlines()[1:] for each in cases}
    workloads = [[line.partition(": ")[0] for line in each] for each in shown.values()]
    web, api = "Deployment/default/web", "Deployment/default/api"
    assert workloads == [[], [web], [api], [], [api, web], []]
    assert sorted(found.why) == sorted(shown["pods.pending: exactly 0, at the end"])
