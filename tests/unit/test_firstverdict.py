"""The first verdict on a copy of a cluster: its questions, and what is said of their runs.

- a question for each zone that isn't all there is, those of large zones first
- an autoscaler starts after the pods without it have been counted
- what a recording says: pods that had to move, had no place, have one again, stay or are gone
- the time bounds how many zones are lost, and those that weren't are named
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwok_operator import controlplane
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.rehearsal.firstverdict import playing
from kwok_operator.rehearsal.firstverdict.answers import (
    ZoneObserver,
    all_held,
    answer,
    lines_of,
    verdict_md,
)
from kwok_operator.rehearsal.firstverdict.playing import FirstVerdictPlayer, check_folder
from kwok_operator.rehearsal.firstverdict.questions import (
    AS_IT_STANDS,
    CopyFacts,
    CopyQuestion,
    facts_of,
    questions,
)
from kwok_operator.rehearsal.judge.recording import EndLine, MarkLine, RecordedLine
from kwok_operator.rehearsal.keptcluster import KeptClusters
from tests.fakes.rehearsed import content, judge, node, pod
from tests.fakes.scenarios import Told, checked

PLACEMENT = {
    "pods": [
        {"what": "deployment/web", "namespace": "shop", "on": {"a/0": 2, "b/0": 3}, "ordinals": {}},
        {"what": "statefulset/db", "namespace": "shop", "ordinals": {"0": "a/0"}, "pending": [""]},
        {"what": "pod/alone", "namespace": "shop", "pending": ["2026-11-26T10:00:00Z"]},
    ]
}
BASE = {
    "apply": ["nodegroups.yaml"],
    "placement": "placement.json",
    "until": {"atMost": "1h"},
    "expect": [{"figure": "pods.pending", "equals": 0}],
}


def group(name: str, size: int, zone: str = "", **spec: Any) -> dict[str, Any]:
    shape = {"cpu": 4, **({"zone": zone} if zone else {})}
    spec = {"targetSize": size, "template": {"shape": shape}, **spec}
    api_version = "kwok-operator.io/v1alpha1"
    metadata = {"name": name}
    return {"apiVersion": api_version, "kind": "KwokNodeGroup", "metadata": metadata, "spec": spec}


def facts(**zones: int) -> CopyFacts:
    return CopyFacts(zones, bound=6, pending={"StatefulSet/shop/db": 1, "": 1})


def test_what_an_import_says_of_the_cluster() -> None:
    growing = {"autoscaling": {"minSize": 0, "maxSize": 9}}
    groups = [group("a", 2, "x", **growing), group("b", 1, "x"), group("c", 4), None, {"spec": 5}]
    found = facts_of(groups, PLACEMENT)
    assert found == replace(facts(x=3), zones={"": 4, "x": 3}, scalable=1)


@pytest.mark.parametrize(
    ("zones", "asked"),
    [
        ({"x": 3}, []),
        ({"": 3}, []),
        ({"x": 3, "": 1}, ["zone-x"]),
        ({"x": 1, "w": 3, "z": 0}, ["zone-w", "zone-x"]),
        ({"x": 2, "Y_y": 1}, ["zone-x", "lost-2"]),
    ],
)
@pytest.mark.parametrize("autoscaler", [False, True])
def test_questions_are_scenarios(zones: dict[str, int], asked: list[str], autoscaler: bool) -> None:
    found = questions(facts(**zones), BASE, folder="../copy", autoscaler=autoscaler)
    assert [each.name for each in found] == [AS_IT_STANDS, *asked]
    groups = [group(f"g{n}", size, zone) for n, (zone, size) in enumerate(zones.items())]
    pods = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}}
    text = "\n---\n".join(map(json.dumps, [*groups, pods | {"spec": {"replicas": 9}}]))
    placed = json.dumps({"format": 1, "pods": []})
    files = {"../copy/nodegroups.yaml": text, "../copy/placement.json": placed}
    for each in found:
        around = Told(files=files, programs=frozenset({"cluster-autoscaler"}))
        read = checked({"name": each.name, **each.scenario}, around)
        assert [str(f) for f in read.findings if "workload" not in f.message] == []
        assert read.scenario is not None
        starts = [step.start for step in read.scenario.timeline if step.start]
        assert bool(starts) == (autoscaler and bool(each.zone))


def course(*, autoscaler: bool, placed: int) -> Iterable[RecordedLine]:
    """Three nodes with a pod each lose the first; `placed` of its pods get another place."""
    yield from (node(0, f"n{n}", zone="x" if n == 0 else "y") for n in range(3))
    for n in range(3):
        for at in (0, 1):
            yield pod(0, f"web-{n}{at}", created=0, phase="Running", node=f"n{n}", bound=0)
    yield pod(0, "huge-0", created=0, why="0/3 nodes are available")
    yield MarkLine(1, "outage begins", "zone x")
    yield node(2, "n0", zone="x", ready=False)
    for at in (0, 1):
        yield replace(pod(3, f"web-0{at}", created=0), state=None)
        yield pod(3, f"web-9{at}", created=3, why="0/3 nodes are available")
    if autoscaler:
        yield pod(9, "late-0", created=9)
        yield MarkLine(10, "start", "autoscaler")
        yield node(12, "n3", zone="y")
        yield pod(12, "late-0", created=9, phase="Running", node="n1", bound=12)
    for at in range(placed):
        where = "n3" if autoscaler else "n1"
        yield pod(15, f"web-9{at}", created=3, phase="Running", node=where, bound=15)
    yield EndLine(20, "settled", "")


def test_a_recording_may_have_pods_before_their_nodes() -> None:
    lines = [*course(autoscaler=False, placed=1)]
    begin, rest = [each for each in lines if each.t == 0], [each for each in lines if each.t]
    ends = []
    for order in (begin, begin[::-1]):
        observer = ZoneObserver("x")
        for each in (*order, *rest):
            observer.apply(each)
        ends.append(observer.now())
    assert ends[0] == ends[1]
    assert ends[0].missing.total() == 1


def test_pods_of_a_node_that_is_gone_do_not_run() -> None:
    observer = ZoneObserver("x")
    for each in (*course(autoscaler=False, placed=2), replace(node(20, "n1"), state=None)):
        observer.apply(each)
    assert observer.now().missing.total() == 4


@pytest.mark.parametrize(
    ("autoscaler", "placed", "held", "lack", "said"),
    [
        (False, 2, True, 0, "pods that had to move: 2; all found another place"),
        (False, 1, False, 1, "pods that had to move: 2; without a place: 1"),
        (True, 1, False, 2, "without a place: 2; new nodes: 1; that don't run again: 1"),
        (True, 2, True, 2, "all ran again 5 s after cluster-autoscaler had started; new nodes: 1"),
    ],
)
def test_what_a_lost_zone_means(
    autoscaler: bool, placed: int, held: bool, lack: int, said: str
) -> None:
    lines = [*course(autoscaler=autoscaler, placed=placed)]
    known = CopyFacts({"x": 1, "y": 2}, bound=6, pending={"Deployment/default/huge": 1})
    question = CopyQuestion("zone-x", {}, "x", 1)
    expect = [{"figure": "pods.pending", "atMost": 1}]
    judged = judge(lines, expect=expect)
    found = answer(question, judged, lines, facts=known, seconds=7)
    assert found.held is held
    assert said in found.sentence
    assert found.facts["workloadsWithoutPlace"] == (
        {"Deployment/default/web": lack} if lack else {}
    )
    text = "\n".join(lines_of(known, [found]))
    assert f"{'held' if held else 'FAILED'}: without zone x (1 of 3 nodes)" in text
    assert "(zone-x/report.html)" in verdict_md(known, [found])


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (replace(pod(16, "web-90", created=3), state=None), "don't run again: "),
        (pod(16, "web-90", created=3, phase="Pending", node="n2", bound=16), "don't run again: "),
        (pod(16, "web-90", created=3, phase="Running", node="n0", bound=16), "stay on nodes of"),
        (pod(16, "web-90", created=3, phase="Running", node="n2", deleting=True), "being deleted"),
    ],
    ids=["gone", "never starts", "stays", "is being deleted"],
)
def test_only_pods_that_run_elsewhere_have_survived(last: RecordedLine, said: str) -> None:
    *lines, end = course(autoscaler=False, placed=2)
    lines += [last, end]
    question = CopyQuestion("zone-x", {}, "x", 1)
    found = answer(question, judge(lines), lines, facts=facts(x=1, y=2), seconds=7)
    assert found.held is False and "that don't run again: 1" in found.sentence
    assert [each for each in found.details if said in each]


def test_a_zone_that_no_pod_has_left_is_no_proof() -> None:
    lines = [line for line in course(autoscaler=False, placed=0) if line.t < 3 or line.t > 15]
    question = CopyQuestion("zone-x", {}, "x", 1)
    found = answer(question, judge(lines), lines, facts=facts(x=1, y=2), seconds=7)
    assert found.held is None and found.sentence == "no pod left the zone"


def test_a_run_that_broke_off_says_nothing_of_the_cluster() -> None:
    lines = [*course(autoscaler=False, placed=2)]
    lines[-1] = EndLine(20, "died", "of etcd")
    question = CopyQuestion("zone-x", {}, "x", 1)
    found = answer(question, judge(lines), lines, facts=facts(x=1, y=2), seconds=7)
    assert found.held is None and "of etcd" in found.sentence


def imported(folder: Path, *groups: Any) -> Path:
    folder.mkdir()
    (folder / "nodegroups.yaml").write_text("\n---\n".join(map(json.dumps, groups)))
    (folder / "scenario.yaml").write_text(json.dumps(BASE))
    (folder / "placement.json").write_text(json.dumps(PLACEMENT))
    return folder


async def test_zones_for_which_the_time_is_over_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = imported(tmp_path / "copy", group("a", 1, "x"), group("b", 2, "y"))
    played = []

    async def rehearsed(self: FirstVerdictPlayer, question: CopyQuestion) -> Any:
        played.append(question.name)
        begun = json.loads((self.output / "verdict.json").read_text())
        assert [each["held"] for each in begun["questions"]] == [None, None, None]
        assert not begun["passed"]
        (self.output / question.name).mkdir(parents=True)
        lines = [*course(autoscaler=False, placed=2)]
        (self.output / question.name / "recording.jsonl.gz").write_bytes(content(lines))
        await asyncio.sleep(0)
        return judge(lines)

    monkeypatch.setattr(FirstVerdictPlayer, "_rehearse", rehearsed)
    said: list[str] = []
    unused: Any = None
    player = FirstVerdictPlayer(copy, tmp_path / "out", unused, said.append, until=0)
    found = await player.play()
    check_folder(tmp_path / "out")  # it may be replaced by another one
    assert played == [AS_IT_STANDS]
    assert [each.held for each in found.answers] == [True, None, None]
    assert not all_held(found.answers)
    told = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert [each.get("zone") for each in told["questions"]] == [None, "y", "x"]
    assert "the time is over" in (tmp_path / "out" / playing.VERDICT).read_text()


@pytest.mark.parametrize("can_rewind", [True, False])
async def test_runs_share_a_cluster_if_it_can_be_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_rewind: bool
) -> None:
    async def get(*_: object) -> str:
        return "the shared one"

    def around(_: object) -> Any:
        return SimpleNamespace(program="it")

    async def rehearsed(*_: object, kept: object, **__: object) -> None:
        raise KwokOperatorError(f"played on {kept}")

    monkeypatch.setattr(controlplane, "CAN_REWIND", can_rewind)
    monkeypatch.setattr(KeptClusters, "get", get)
    monkeypatch.setattr(playing, "rehearse", rehearsed)
    read = SimpleNamespace(scenario="it", findings=())
    monkeypatch.setattr(playing, "load_scenario", lambda *_: read)
    copy = imported(tmp_path / "copy", group("a", 1, "x"))
    player = FirstVerdictPlayer(copy, tmp_path / "out", around, print, until=0)
    with pytest.raises(KwokOperatorError, match="the shared one" if can_rewind else "None"):
        await player.play()


async def test_a_copy_without_nodes_is_refused(tmp_path: Path) -> None:
    unused: Any = None
    copy = imported(tmp_path / "copy")
    with pytest.raises(SettingsError, match="no node"):
        await FirstVerdictPlayer(copy, tmp_path / "out", unused, print, until=0).play()


def test_files_of_others_stay(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SettingsError, match=r"thesis\.tex"):
        check_folder(tmp_path)
