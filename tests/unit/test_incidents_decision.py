"""What cluster-autoscaler decided, from its log: whatever is around the lines, and by time.

The texts are those that cluster-autoscaler 1.36 has written at -v=4.
"""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from kwok_operator.errors import SettingsError
from kwok_operator.formats.autoscalertexts import GroupRefusal, ScaleUp
from kwok_operator.importing.incidents.decision import CourseEnd, Decision, decide
from kwok_operator.importing.incidents.logfiles import read_logs
from kwok_operator.importing.incidents.replaying import ReplayCopy, replay_of
from kwok_operator.rehearsal.scenario.expectation import Expectation

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


WRAPPED: dict[str, Callable[[str], str]] = {
    "kubectl logs --timestamps": lambda line: f"2026-11-26T12:00:{line[12:21]}123Z {line}",
    "kubectl logs --prefix": lambda line: f"[pod/ca-7d9f/ca] {line}",
    "stern, coloured": lambda line: f"\x1b[32mca-7d9f\x1b[0m ca {line}",
    "containerd": lambda line: f"2026-11-26T12:00:{line[12:21]}123Z stderr F {line}",
    "docker": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "x"}),
    "--logging-format=json": as_json,
    "a store": lambda line: json.dumps({"textPayload": line, "severity": "INFO"}),
    "beside other programs": lambda line: f"{line}\n{klog(30, 'Wrote a lease')}\n  at x.go:1",
}


@pytest.mark.parametrize("form", WRAPPED)
def test_a_decision_is_the_same_whatever_tools_put_around_the_lines(
    tmp_path: Path, form: str
) -> None:
    wrapped = decided(tmp_path, [WRAPPED[form](line) for line in LOG])

    assert wrapped == decided(tmp_path, LOG)
    assert wrapped.version == "1.36.1"
    assert wrapped.flags["max-nodes-total"] == "40"


def test_the_decision_is_what_happened_from_the_moment_on_until_other_pods_came(
    tmp_path: Path,
) -> None:
    decision = decided(tmp_path, LOG)

    assert decision.at == AT
    assert [plan.groups for plan in decision.scale_ups] == [(ScaleUp("a", 2, 5, 10),)]
    assert decision.scale_ups[0].others == frozenset()
    assert decision.refusals == {
        "shop/huge-1": (
            GroupRefusal("Insufficient cpu", 2),
            GroupRefusal("max node group size reached", 1),
        )
    }
    assert decision.ended is CourseEnd.OTHER_PODS
    assert not decision.problems


def test_a_snapshot_finds_its_loop_in_a_log_of_another_time_zone(tmp_path: Path) -> None:
    begun = klog(30.05, "Trigger Enabled for Debugging Snapshot, starting data collection")
    lines = [*BEGIN, *EARLIER, DECIDED[0], begun, *DECIDED[1:]]
    at = AT + 0.05 - 5.5 * 3600

    assert decided(tmp_path, lines, at=at).scale_ups == decided(tmp_path, lines).scale_ups


def test_rotated_files_of_which_one_is_cut_off_are_read_in_the_order_of_time(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.log").write_text("\n".join(DECIDED))
    noise = [klog(2, f"lease {Random(n).random()}") for n in range(1_000)]
    packed = gzip.compress("\n".join(BEGIN + noise + EARLIER).encode())
    (tmp_path / "ca.log.1.gz").write_bytes(packed[:-2_000])

    reader, problems = read_logs([tmp_path / "ca.log", tmp_path / "ca.log.1.gz"], at=AT, near=AT)

    assert decide(reader, at=AT).scale_ups[0].groups == (ScaleUp("a", 2, 5, 10),)
    assert reader.version == "1.36.1"
    assert len(problems) == 1
    assert "ca.log.1.gz: its compressed end is missing" in problems[0]


def test_a_file_that_is_no_log_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("kind: List\n")
    with pytest.raises(SettingsError, match=r"nodes\.yaml: has no line of cluster-autoscaler"):
        read_logs([path], at=AT, near=AT)


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
