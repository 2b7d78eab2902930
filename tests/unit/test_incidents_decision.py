"""What cluster-autoscaler decided, from its log: whatever is around the lines, and by time.

The texts are those that cluster-autoscaler 1.36 has written at -v=4.
"""

import asyncio
import gzip
import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kwok_operator.errors import SettingsError
from kwok_operator.formats.autoscalertexts import GroupRefusal, ScaleUp
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.importer import run_import
from kwok_operator.importing.incidents.decision import Decision, WindowEnd, decide
from kwok_operator.importing.incidents.logfiles import read_logs
from kwok_operator.importing.incidents.replaycopy import copy_of
from kwok_operator.importing.incidents.replaying import ReplayCopy, replay_of
from kwok_operator.importing.notes import Ref
from kwok_operator.importing.pods.podlocations import PodLocations
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.rehearsal.scenario.expectation import Expectation
from kwok_operator.reporter import Reporter

AT = datetime(2026, 11, 26, 12, 0, 30, tzinfo=UTC).timestamp()
POD = '{Kind:"Pod", Namespace:"shop", Name:"%s", UID:"u", APIVersion:"v1", FieldPath:""}'


def klog(second: float, text: str, level: str = "I") -> str:
    return f"{level}1126 12:00:{second:09.6f}       1 file.go:67] {text}"


def event(second: float, pod: str, reason: str, message: str) -> str:
    about = f"Event(v1.ObjectReference{POD % pod}): type: 'Normal' reason: '{reason}' "
    return klog(second, about + message)


BEGIN = [
    klog(1, 'FLAG: --expander="least-waste"'),
    klog(1, 'FLAG: --max-nodes-total="40"'),
    klog(1, "Cluster Autoscaler 1.36.1"),
]
EARLIER = [
    klog(20, "Starting main loop"),
    klog(20.1, "Pod shop/old-1 is unschedulable"),
    klog(20.2, "Final scale-up plan: [{c 0->1 (max: 3)}]"),
]
DECIDED = [
    klog(30, "Starting main loop"),
    klog(30.1, "Pod shop/web-1 is unschedulable"),
    klog(30.1, "Pod shop/huge-1 is unschedulable"),
    klog(30.2, "Skipping node group full - max size reached"),
    klog(30.3, "Expanding Node Group a would waste 12.50% CPU, 5.00% Memory, 8.75% Blended"),
    klog(30.3, "Expanding Node Group c would waste 50.00% CPU, 5.00% Memory, 27.50% Blended"),
    klog(30.4, "Best option to resize: a"),
    klog(30.4, "Final scale-up plan: [{a 2->5 (max: 10)}]"),
    event(30.5, "web-1", "TriggeredScaleUp", "pod triggered scale-up: [{a 2->5 (max: 10)}]"),
    klog(40, "Starting main loop"),
    klog(40.1, "Pod shop/huge-1 is unschedulable"),
    klog(40.2, "No expansion options"),
    event(
        *(40.3, "huge-1", "NotTriggerScaleUp"),
        "pod didn't trigger scale-up: 2 Insufficient cpu, 1 max node group size reached",
    ),
    klog(50, "Starting main loop"),
    klog(50.1, "Pod shop/new-1 is unschedulable"),
    klog(50.2, "Final scale-up plan: [{c 1->2 (max: 3)}]"),
]
LOG = [*BEGIN, *EARLIER, *DECIDED]
COPY = ReplayCopy(
    groups={"a": ["a"], "c": ["c"], "full": ["full"]},
    sizes={"a": 2, "c": 1, "full": 1},
    pod=lambda pod: f"{pod[:-1]}*",
)


def decided(tmp_path: Path, lines: list[str], *, at: float | None = AT) -> Decision:
    path = tmp_path / "ca.log"
    path.write_text("\n".join(lines) + "\n")
    return decide(read_logs([path], at=at, near=AT + 86_400)[0], at=at)


def as_json(line: str) -> str:
    at = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp() + float(line[12:21])
    text = line.split("] ", 1)[1]
    return json.dumps({"ts": at * 1000, "caller": "file.go:67", "msg": text + "\n", "v": 0})


def stamp(line: str) -> str:
    return f"2026-11-26T12:00:{line[12:21]}123Z"


def in_pieces(line: str) -> list[str]:
    return [line[at : at + 16_384] for at in range(0, len(line), 16_384)]


def by_cri(line: str, own: str) -> str:
    *more, last = in_pieces(own)
    pieces = [*((part, "P") for part in more), (last, "F")]
    return "\n".join(f"{stamp(line)} stderr {flag} {part}" for part, flag in pieces)


def by_docker(line: str, own: str) -> str:
    parts = ({"log": part, "stream": "stderr", "time": "x"} for part in in_pieces(own + "\n"))
    return "\n".join(json.dumps(part, separators=(",", ":")) for part in parts)


def structured(line: str) -> str:
    at = line.index("] ") + 2
    return line[:at] + json.dumps(line[at:])


PROGRAMS: dict[str, Callable[[str], str]] = {
    "text": lambda line: line,
    "--add-dir-header": lambda line: line.replace("file.go", "core/file.go"),
    "structured text": structured,
    "--logging-format=json": as_json,
}
TOOLS: dict[str, Callable[[str, str], str]] = {
    "nothing": lambda _, own: own,
    "kubectl logs --timestamps": lambda line, own: f"{stamp(line)} {own}",
    "kubectl logs --prefix": lambda _, own: f"[pod/ca-7d9f/ca] {own}",
    "stern, coloured": lambda _, own: f"\x1b[32mca-7d9f\x1b[0m ca {own}",
    "a container runtime (CRI)": by_cri,
    "docker": by_docker,
    "fluent-bit": lambda _, own: json.dumps({"log": own, "kubernetes": {"pod_name": "ca"}}),
    "a store": lambda _, own: json.dumps({"textPayload": own, "severity": "INFO"}),
    "a store, printed over lines": lambda line, own: json.dumps(
        [{"message": own, "time": stamp(line)}], indent=2
    ),
    "beside other programs": lambda _, own: f"{own}\n{klog(30, 'Wrote a lease')}\n  at x.go:1",
}
FILES: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "gzip": lambda text: gzip.compress(text.encode()),
    "Windows": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "PowerShell": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "rotated within a line": lambda text: b"lity 1.36.1\n" + text.encode(),
}
MANY = " ".join(f"{{many-{n}-{'x' * 180} 0->1 (max: 3)}}" for n in range(90))
LONG = [
    *LOG[:-4],
    klog(40.2, f"Final scale-up plan: [{MANY}]"),
    klog(
        40.2, f"Pod shop/huge-1 can't be scheduled on vast, predicate checking error: {'x' * 10**6}"
    ),
    *LOG[-4:],
]


@pytest.mark.parametrize(
    ("tool", "file"),
    [*((tool, "plain") for tool in TOOLS), *(("a container runtime (CRI)", f) for f in FILES)],
)
def test_a_decision_is_the_same_whatever_is_around_the_lines(
    tmp_path: Path, tool: str, file: str
) -> None:
    path, plain = tmp_path / "log", decided(tmp_path, LONG)
    for program, written in PROGRAMS.items():
        lines = (TOOLS[tool](line, written(line)) for line in LONG)
        path.write_bytes(FILES[file]("\n".join(lines) + "\n"))
        reader, problems = read_logs([path], at=AT, near=AT)
        assert decide(reader, at=AT) == plain, program
        assert problems == []
    assert (plain.version, plain.flags["max-nodes-total"]) == ("1.36.1", "40")
    assert {f"many-89-{'x' * 180}", "vast"} <= plain.named


def test_the_line_after_a_piece_whose_rest_is_lost_is_read(tmp_path: Path) -> None:
    lost = f"{stamp(LOG[0])} stderr P {klog(30.3, 'Wrote a lea')}"
    by_runtime = [by_cri(line, line) for line in LOG]
    lines = [part for line in by_runtime for part in (lost, line)]
    assert decided(tmp_path, lines) == decided(tmp_path, LOG)


@pytest.mark.parametrize("form", [str, as_json])
def test_decisions_in_fields_are_a_problem_and_not_silence(
    tmp_path: Path, form: Callable[[str], str]
) -> None:
    begin = form(klog(30, "Starting main loop"))
    if form is as_json:
        lost = as_json(klog(30.4, "Final plan")).replace("}", ', "plan": "a 2->5"}')
        lost = lost.replace("Final plan", "Scale-up: final plan")
    else:
        lost = klog(30.4, '"Scale-up: final plan" plan="a 2->5"')
    decision = decided(tmp_path, [*BEGIN, begin, lost])
    assert decision.known
    assert "1 lines about decisions have fields" in decision.problems[0]


@pytest.mark.parametrize("full", ["", ": 40. Current number of ready nodes: 40"])
def test_a_full_cluster_explains_all_pods(tmp_path: Path, full: str) -> None:
    lines = [*DECIDED[:2], klog(30.2, f"Max total nodes in cluster reached{full}")]
    assert decided(tmp_path, lines).accounted


def test_objects_of_json_in_one_line_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([{"textPayload": line} for line in LOG]))
    with pytest.raises(SettingsError, match=r"export\.json: has no line of cluster-autoscaler"):
        read_logs([path], at=AT, near=AT)


def test_the_decision_is_what_happened_from_the_moment_on_until_other_pods_came(
    tmp_path: Path,
) -> None:
    decision = decided(tmp_path, LOG)

    assert decision.at == AT
    assert [plan.groups for plan in decision.scale_ups] == [(ScaleUp("a", 2, 5, 10),)]
    assert decision.scale_ups[0].alternatives == frozenset()
    assert decision.refusals == {
        "shop/huge-1": (
            GroupRefusal("Insufficient cpu", 2),
            GroupRefusal("max node group size reached", 1),
        )
    }
    assert decision.ended is WindowEnd.OTHER_PODS
    assert not decision.problems


@pytest.mark.parametrize(("ago", "first"), [(0.0, "a"), (0.01, "a"), (0.2, "c")])
def test_loops_that_follow_at_once_are_separate(tmp_path: Path, ago: float, first: str) -> None:
    at_once = [klog(29.8, line.split("] ", 1)[1]) for line in EARLIER]
    decision = decided(tmp_path, [*BEGIN, *at_once, *DECIDED], at=AT - ago)

    assert decision.scale_ups[0].groups[0].group == first


def test_a_snapshot_finds_its_loop_in_a_log_of_another_time_zone(tmp_path: Path) -> None:
    begun = klog(30.05, "Trigger Enabled for Debugging Snapshot, starting data collection")
    lines = [*BEGIN, *EARLIER, DECIDED[0], begun, *DECIDED[1:]]
    up = "pod triggered scale-up: [{full 0->1 (max: 1)}]"
    lines[6:6] = [event(25, "web-1", "TriggeredScaleUp", up)]
    at = AT + 0.05 - 5.5 * 3600
    found = decided(tmp_path, lines, at=at)

    assert found.scale_ups == decided(tmp_path, lines).scale_ups
    assert len(found.scale_ups) == 2  # one is from before the moment


def test_rotated_files_of_which_one_is_cut_off_are_read_in_the_order_of_time(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.log").write_text("\n".join(DECIDED))
    noise = [klog(2, f"lease {Random(n).random()}") for n in range(1_000)]
    packed = gzip.compress("\n".join(BEGIN + noise + EARLIER).encode())
    (tmp_path / "ca.log.1.gz").write_bytes(packed[:-2_000])

    (tmp_path / "notes.txt").write_text("nothing\n")

    names = ("ca.log", "ca.log.1.gz", "notes.txt")
    reader, problems = read_logs([tmp_path / name for name in names], at=AT, near=AT)

    assert decide(reader, at=AT).scale_ups[0].groups == (ScaleUp("a", 2, 5, 10),)
    assert reader.version == "1.36.1"
    assert len(problems) == 2
    assert "ca.log.1.gz: its compressed end is missing" in problems[0]
    assert "notes.txt: has no line of cluster-autoscaler" in problems[1]


def test_a_log_that_powershell_has_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ca.log"
    path.write_text("\r\n".join(LOG), encoding="utf-16")
    found = decide(read_logs([path], at=AT, near=AT)[0], at=AT)
    assert found == decided(tmp_path, LOG)


def test_a_later_process_does_not_say_with_which_flags_it_was_decided(tmp_path: Path) -> None:
    later = [
        klog(55, 'FLAG: --max-nodes-total="90"'),
        klog(55, "Cluster Autoscaler 1.37.0"),
    ]
    decision = decided(tmp_path, [*LOG, *later])
    assert (decision.flags["max-nodes-total"], decision.version) == ("40", "1.36.1")


def test_a_hostile_line_takes_no_time_and_gives_a_scenario_that_can_be_played(
    tmp_path: Path,
) -> None:
    long = "Failed adding 1 nodes to group a due to " * 5_000
    refusal = "pod didn't trigger scale-up: 2 \x1b[31m" + "x" * 9_000
    lines = [
        klog(1, 'FLAG: --expander="random,acme"'),
        klog(1, 'FLAG: --cores-total="$(curl x)"'),
        *LOG[1:-3],
        klog(41, long),
        klog(41, '{"msg":' * 2_000),
        klog(41, "Disabling scale-up for node group a until x; errorClass=Y; errorCode=a b\t${c}"),
        event(41, "huge-1", "NotTriggerScaleUp", refusal),
        event(41, "huge-2", "NotTriggerScaleUp", f"pod didn't trigger scale-up: 1 {'y' * 9_000}"),
    ]
    parts = replay_of(decided(tmp_path, lines), COPY)

    for each in parts.expect:
        Expectation.model_validate(each)
    assert parts.autoscaler is not None
    assert not parts.autoscaler.keys() & {"expander", "cores-total"}
    creation = {"probability": "1", "class": "Other"}
    patch = {"spec": {"cloud": {"failures": {"creation": [creation]}}}}
    assert parts.steps == [{"patch": {"what": "kng/a", "patch": patch}}]


def test_a_log_whose_newest_lines_come_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ca\.log: its newest lines come first"):
        decided(tmp_path, LOG[::-1])


def test_lines_may_be_swapped_and_an_older_file_may_come_after(tmp_path: Path) -> None:
    whole, other = decided(tmp_path, LOG), tmp_path / "other.log"
    other.write_text(f"{LOG[1]}\n{LOG[0]}\n")
    reader, problems = read_logs([tmp_path / "ca.log", other], at=AT, near=AT + 86_400)
    assert (decide(reader, at=AT), problems) == (whole, [])


def test_what_is_cut_off_a_long_line_is_a_problem(tmp_path: Path) -> None:
    plan = " ".join(f"{{a-group-with-a-long-name-{n} 1->2 (max: 3)}}" for n in range(900))
    decision = decided(tmp_path, [*LOG[:-1], klog(50.2, f"Final scale-up plan: [{plan}]")])
    assert any(each.startswith("1 lines about decisions are longer") for each in decision.problems)


def test_a_line_that_may_begin_at_many_places_takes_no_time(tmp_path: Path) -> None:
    began = time.process_time()
    decided(tmp_path, [*LOG, 'msg":"' * 40_000])
    assert time.process_time() - began < 5


def test_a_file_that_is_no_log_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("kind: List\n")
    with pytest.raises(SettingsError, match=r"nodes\.yaml: has no line of cluster-autoscaler"):
        read_logs([path], at=AT, near=AT)


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (AT + 7_200, "the log ends 7,180 s before the snapshot was taken"),
        (AT - 7_200, "the log begins 7,171 s after the snapshot was taken"),
    ],
)
def test_a_log_of_another_time_says_nothing(tmp_path: Path, at: float, problem: str) -> None:
    path = tmp_path / "ca.log"
    path.write_text("\n".join(LOG))
    decision = decide(read_logs([path], at=at, near=AT)[0], at=at, pending=[])

    assert not decision.known
    assert problem in decision.problems
    assert replay_of(decision, COPY).expect == []


def test_expectations_name_what_was_decided_and_what_was_not(tmp_path: Path) -> None:
    parts = replay_of(decided(tmp_path, LOG), COPY)
    expected = [Expectation.model_validate(each) for each in parts.expect]

    assert [str(each) for each in expected] == [
        "scale-up of a from 2 to 5, as then",
        "no scale-up of c, full, as then",
        "no node for shop/huge-*, as then: 2 Insufficient cpu",
        "no node for shop/huge-*, as then: 1 max node group size reached",
    ]
    assert parts.autoscaler is not None
    assert parts.autoscaler["max-nodes-total"] == "40"


BACKED_OFF = [
    *BEGIN,
    klog(20, "Starting main loop"),
    klog(20.1, "Pod shop/web-1 is unschedulable"),
    klog(20.2, "Expanding Node Group a would waste 12.50% CPU, 5.00% Memory, 8.75% Blended"),
    klog(20.2, "Final scale-up plan: [{a 2->5 (max: 10)}]"),
    event(20.3, "web-1", "TriggeredScaleUp", "pod triggered scale-up: [{a 2->5 (max: 10)}]"),
    klog(21, "Failed adding 3 nodes (3 unseen) to group a due to X.Y; errorMessages=[sold out]"),
    klog(21, "Disabling scale-up for node group a until x; errorClass=OutOfResource; errorCode=Y"),
    klog(30, "Starting main loop"),
    klog(30.1, "Pod shop/web-1 is unschedulable"),
    klog(30.2, "Node group a is not ready for scaleup - backoff with status: {true {}}"),
    klog(30.3, "No expansion options"),
    event(
        *(30.4, "web-1", "NotTriggerScaleUp"),
        "pod didn't trigger scale-up: 2 Insufficient cpu, 1 in backoff after failed scale-up",
    ),
]


def test_what_the_cloud_refused_is_refused_again(tmp_path: Path) -> None:
    parts = replay_of(decided(tmp_path, BACKED_OFF), COPY)

    creation = [{"probability": "1", "class": "OutOfResources", "code": "Y"}]
    patch = {"spec": {"cloud": {"failures": {"creation": creation}}}}
    assert parts.steps == [{"patch": {"what": "kng/a", "patch": patch}}]
    assert [each["name"] for each in parts.expect] == [
        "scale-up of a from 2 to 5, as then",
        "no scale-up of c, full, as then",
        "no node for shop/web-*, as then: 2 Insufficient cpu",
        "no node for shop/web-*, as then: in backoff after failed scale-up",
    ]


def test_what_a_back_off_changes_is_not_expected_exactly(tmp_path: Path) -> None:
    reasons = "1 Too many pods, 3 Insufficient cpu, 1 in backoff after failed scale-up"
    refusal = f"pod didn't trigger scale-up: {reasons}"
    lines = [
        *(*BACKED_OFF, klog(30.5, "Pod shop/huge-1 is unschedulable")),
        klog(30.5, "Expanding Node Group c would waste 12.50% CPU, 5.00% Memory, 8.75% Blended"),
        klog(30.5, "Final scale-up plan: [{c 1->2 (max: 3)}]"),
        event(30.6, "tiny-1", "TriggeredScaleUp", "pod triggered scale-up: [{c 1->2 (max: 3)}]"),
        event(30.6, "huge-1", "NotTriggerScaleUp", refusal),
    ]
    copy = replace(COPY, groups={name: [name] for name in ("a", "c", "full", "x", "y")})
    expect = replay_of(decided(tmp_path, lines), copy).expect
    events = {each["name"]: each["event"] for each in expect if "event" in each}

    # The first choice of this pod may be the group that the cloud refuses.
    up = events["scale-up of c from 1 to 2 or, by chance, of a, as then"]
    assert (up["message"], up["about"]) == (["{c 1->2 ", "{a 2->"], ["Pod/shop/tiny-*"])
    assert {"figure": "nodes.max", "of": {"group": "c"}, "atLeast": 2} in expect
    # CA may have said this before it backed off, or after that.
    cpu = events["no node for shop/huge-*, as then: 3 Insufficient cpu"]["message"]
    assert cpu == [f"{mark} {n} Insufficient cpu" for n in (2, 3, 4) for mark in ":,"]
    assert not [name for name in events if "huge" in name and ("Too" in name or "backoff" in name)]


def test_of_groups_that_were_left_to_chance_any_will_do(tmp_path: Path) -> None:
    tie = klog(30.35, "Expanding Node Group c would waste 12.50% CPU, 5.00% Memory, 8.75% Blended")
    lines = [*LOG[:9], tie, *(line for line in LOG[9:] if "50.00%" not in line)]
    up = replay_of(decided(tmp_path, lines), COPY).expect[0]

    assert up["name"] == "scale-up of a from 2 to 5 or, by chance, of c, as then"
    assert up["event"]["message"] == ["{a 2->5 ", "{c 1->"]


def test_sizes_of_several_scale_ups_of_a_group_follow_from_the_first(tmp_path: Path) -> None:
    plan = "[{a 5->6 (max: 10)} {c 1->3 (max: 3)}]"
    again = [
        klog(40.25, "Expanding Node Group a would waste 12.50% CPU, 5.00% Memory, 8.75% Blended"),
        klog(40.3, f"Final scale-up plan: {plan}"),
        event(40.4, "huge-1", "TriggeredScaleUp", f"pod triggered scale-up: {plan}"),
    ]
    expect = replay_of(decided(tmp_path, [*LOG[:17], *again]), COPY).expect

    assert [each["event"]["message"] for each in expect[:3]] == [
        ["{a 2->5 "],
        ["{a 5->6 ", "{a 5->7 "],
        ["{c 1->2 ", "{c 1->3 "],
    ]


def test_scale_ups_of_a_group_from_before_the_moment_may_be_one_in_the_copy(
    tmp_path: Path,
) -> None:
    up = "pod triggered scale-up: [{a %d->%d (max: 10)}]"
    lines = [
        *BEGIN,
        *(klog(10, "Starting main loop"), event(10.4, "web-1", "TriggeredScaleUp", up % (2, 3))),
        *(klog(20, "Starting main loop"), event(20.4, "web-2", "TriggeredScaleUp", up % (3, 5))),
        klog(30, "Starting main loop"),
    ]
    path = tmp_path / "ca.log"
    path.write_text("\n".join(lines))
    reader = read_logs([path], at=AT, near=AT)[0]
    decision = decide(reader, at=AT, pending=["shop/web-1", "shop/web-2"])
    copy = replace(COPY, groups={"a": ["a"]})

    assert replay_of(decision, copy).expect == [
        {
            "name": "scale-up of a from 2 to 5, as then",
            "event": {
                "reason": "TriggeredScaleUp",
                "message": ["{a 2->"],
                "about": ["Pod/shop/web-*"],
            },
            "atLeast": 1,
        },
        {"figure": "nodes.max", "of": {"group": "a"}, "atMost": 5},
    ]


def test_reasons_are_counted_only_if_the_copy_has_all_groups(tmp_path: Path) -> None:
    copy = replace(COPY, groups={"a": ["a"], "full": ["full"]})
    parts = replay_of(decided(tmp_path, LOG), copy)

    assert parts.expect[-2]["event"]["message"] == ["Insufficient cpu"]
    # An Event counts five groups, though the log names three.
    many = [line.replace("2 Insufficient cpu", "4 Insufficient cpu") for line in LOG]
    fewer = replay_of(decided(tmp_path, many), COPY)
    assert fewer.expect[-2]["event"]["message"] == ["Insufficient cpu"]
    # Of the groups that the copy lacks, one may be all that a reason was about.
    assert parts.expect[-1]["event"]["message"] == ["max node group size reached"]
    none = replay_of(decided(tmp_path, LOG), replace(COPY, groups={}))
    assert not [each for each in none.expect if "no node for" in each["name"]]
    lacking = replay_of(decided(tmp_path, LOG), replace(COPY, groups={"full": ["full"]}))
    assert not [each for each in lacking.expect if each["name"].startswith("scale-up")]
    assert "the copy lacks c, or their bounds" in str(parts.remarks)


def only_web(pod: str) -> str:
    return "shop/web-*" if "web" in pod else ""


def test_what_is_about_pods_that_the_copy_lacks_is_not_expected(tmp_path: Path) -> None:
    decision = decided(tmp_path, LOG)
    web, none = replace(COPY, pod=only_web), replace(COPY, pod=lambda _: "")
    names = [each["name"] for each in replay_of(decision, web).expect]
    parts = replay_of(decision, none)

    assert names == ["scale-up of a from 2 to 5, as then"]
    assert (parts.expect, parts.teaches.startswith("What cluster-autoscaler does")) == ([], True)
    assert "What was decided of pods that the copy lacks isn't expected." in parts.remarks


def test_errors_are_counted_as_their_texts_may_have_names_in_them(tmp_path: Path) -> None:
    lines = [
        *BACKED_OFF[:-1],
        klog(30.6, "Failed to scale up: boom token=canary-1 account 123"),
        klog(
            30.6, "Disabling scale-up for node group c until x; errorClass=Other; errorCode=acct-9"
        ),
    ]
    parts = replay_of(decided(tmp_path, lines), COPY)

    assert "May differ: it met 1 error, which the copy doesn't repeat." in parts.remarks
    assert "canary" not in str(parts)
    assert "acct-9" not in str(parts)


def test_a_size_that_the_copy_does_not_begin_with_is_not_expected(tmp_path: Path) -> None:
    less, more = (replace(COPY, sizes={**COPY.sizes, "a": size}) for size in (1, 4))
    up = replay_of(decided(tmp_path, LOG), less).expect[0]
    parts = replay_of(decided(tmp_path, LOG), more)

    assert up["event"]["message"] == ["{a 1->"]
    assert "scale-up of a" not in str(parts.expect)
    assert "the copy begins with more nodes of a than CA scaled up" in str(parts.remarks)


def test_a_cluster_that_is_full_gets_no_node(tmp_path: Path) -> None:
    lines = [
        klog(30, "Starting main loop"),
        klog(30.1, "Pod shop/web-1 is unschedulable"),
        klog(30.2, "Max total nodes in cluster reached"),
    ]
    assert replay_of(decided(tmp_path, lines[:2]), COPY).expect == []
    (expected,) = replay_of(decided(tmp_path, lines), COPY).expect
    assert expected["name"] == "no scale-up, as then"


NODES = [
    klog(30, "Starting main loop"),
    klog(30, "Found 9 pods in the cluster: 9 scheduled"),
    klog(30.1, "No unschedulable pods"),
    klog(30.2, "Node a-1 cannot be removed: not enough pod disruption budget to move shop/web-1"),
    klog(30.2, "Node c-1 may be removed"),
    klog(40, "Starting main loop"),
    klog(40, "Found 9 pods in the cluster: 9 scheduled"),
    klog(40.2, 'Scale-down: removing empty node "c-1"'),
]


@pytest.mark.parametrize(("pods", "removed"), [(9, {"c-1": ()}), (8, {})])
def test_nodes_are_removed_or_kept_until_pods_come_or_go_by_others(
    tmp_path: Path, pods: int, removed: dict[str, tuple[str, ...]]
) -> None:
    later = klog(40, f"Found {pods} pods in the cluster: {pods} scheduled")
    decision = decided(tmp_path, [*NODES[:6], later, *NODES[7:]])

    assert decision.removed == removed
    assert list(decision.kept) == ["a-1"]


@pytest.mark.parametrize("word", ["Node", "node"])  # 1.36, and before
def test_a_node_is_kept_until_it_is_unneeded(tmp_path: Path, word: str) -> None:
    disabled = "scale-down of unready nodes is disabled"
    lines = [
        *NODES[:3],
        klog(30.2, f"{word} a-1 cannot be removed: daemonset pods"),
        klog(30.2, f"Skipping unready node c-1 from delete consideration - {disabled}"),
    ]
    later = [*NODES[5:7], klog(40.2, f"{word} a-1 may be removed")]

    assert decided(tmp_path, lines).kept == {"a-1": "daemonset pods", "c-1": disabled}
    assert list(decided(tmp_path, [*lines, *later]).kept) == ["c-1"]


def test_a_node_that_is_being_deleted_is_not_kept(tmp_path: Path) -> None:
    text = "Skipping a-1 from delete consideration - the node is currently being deleted"
    decision = decided(tmp_path, [*NODES[:3], klog(30.2, text)])
    assert not decision.kept and decision.removable == {"a-1"}


def test_no_event_is_expected_of_a_scale_up_to_the_minimum(tmp_path: Path) -> None:
    lines = [*NODES[:3], klog(30.2, "Scale-up: setting group a size to 5")]
    assert replay_of(decided(tmp_path, lines), COPY).expect[0] == {
        "figure": "nodes.max",
        "of": {"group": "a"},
        "equals": 5,
    }


def test_nodes_have_patterns_of_their_names_in_the_copy(tmp_path: Path) -> None:
    nodes = {"a-1": "a-????-000000", "a-2": "a-????-000001", "c-1": "c-????-000000"}
    expect = replay_of(decided(tmp_path, NODES), replace(COPY, nodes=nodes)).expect
    found = {each["name"]: each["event"].get("about") for each in expect}

    assert found == {
        "no scale-up, as then": None,
        "scale-down of c-????-000000, as then": "Node/c-????-000000",
        "no scale-down of a-????-000000, as then: not enough pod disruption budget": [
            "Node/a-????-000000"
        ],
    }


def node(name: str, pool: str) -> dict[str, Any]:
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    labels = {"eks.amazonaws.com/nodegroup": pool, "topology.kubernetes.io/zone": "eu-1a"}
    status = {"capacity": capacity, "allocatable": capacity}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": "2026-11-26T12:00:30Z"}
    spec = {"containers": containers}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("anonymize", "flags"),
    [
        (False, {"max-nodes-total": "40", "expander": "least-waste"}),
        (True, {"max-nodes-total": "40", "expander": "least-waste"}),
        (False, {}),
    ],
)
def test_an_import_writes_a_scenario_that_expects_the_decision(
    tmp_path: Path, anonymize: bool, flags: dict[str, str]
) -> None:
    nodes = [node(f"{pool}-{n}", pool) for pool, size in COPY.sizes.items() for n in range(size)]
    autoscaler = pod("cluster-autoscaler-1")
    args = ["./cluster-autoscaler", "--balance-similar-node-groups", "--expander=price"]
    args += ["--expendable-pods-priority-cutoff=-5"]
    autoscaler["spec"]["containers"][0]["command"] = args
    autoscaler["spec"]["nodeName"] = "a-0"
    items = [*nodes, pod("web-1"), pod("huge-1"), autoscaler]
    dump, log = tmp_path / "all.json", tmp_path / "ca.log"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    log.write_text("\n".join(LOG if flags else LOG[2:]))
    settings = ImportSettings(tmp_path / "out", dumps=(dump,), logs=(log,), anonymize=anonymize)

    asyncio.run(run_import(settings, reporter=Reporter(io.StringIO())))

    text = (tmp_path / "out" / "scenario.yaml").read_text()
    scenario = load_documents(text, where="scenario")[0]
    process = scenario["processes"][0]
    # Without flags in the log, those of the pod count.
    wanted = flags or {"balance-similar-node-groups": "true", "expander": "price"}
    wanted |= {} if flags else {"expendable-pods-priority-cutoff": "-5"}
    assert process["clusterAutoscaler"]["flags"].items() >= wanted.items()
    assert scenario["timeline"] == [{"start": "autoscaler"}]
    expected = [Expectation.model_validate(each) for each in scenario["expect"]]
    assert len(expected) == 4
    assert ("shop" in text or "huge" in text) is not anonymize
    first = expected[0].event
    assert first is not None and first.message is not None
    assert ("{a 2->5 " in first.message) is not anonymize
    assert first.message[0].endswith(" 2->5 ")
    # The log has the maximum of the groups that nothing else says.
    groups = load_documents((tmp_path / "out" / "nodegroups.yaml").read_text(), where="groups")
    bounds = [group["spec"].get("autoscaling", {}).get("maxSize") for group in groups]
    assert sorted(map(str, bounds)) == ["1", "10", "3"]


def test_pods_are_called_after_what_makes_them_in_the_copy() -> None:
    gathered = Ref("ReplicaSet", "data", "replicaset-capped-1")
    workloads = {
        gathered: PodLocations(waiting=["capped-1-x"]),
        Ref("Deployment", "imported-kube-system", "dns"): PodLocations(),
        Ref("Pod", "shop", "alone"): PodLocations(waiting=["alone"]),
    }
    copy = copy_of([], ca_names=[], nth={}, workloads=workloads)

    assert copy.pod("data/capped-1-x") == "data/replicaset-capped-1-*"
    assert copy.pod("kube-system/dns-7d9f-new") == "imported-kube-system/dns-*"
    assert copy.pod("shop/alone") == "shop/alone"
    assert copy.pod("shop/unknown-1") == ""


def test_reasons_with_names_in_them_are_not_kept_in_an_anonymous_copy() -> None:
    anonymizer = Anonymizer(key=b"k" * 32)
    copy = copy_of([], ca_names=[], nth={}, workloads={}, anonymizer=anonymizer)

    assert copy.text("node(s) had untolerated taint {acme: gpu}") == ""
    assert copy.text("Insufficient cpu") == "Insufficient cpu"
    assert copy.text("Insufficient acme.com/gpu").startswith("Insufficient n-")
    assert copy.text("Too many pods") == "Too many pods"
