"""Every figure, on a run in which its value is planned: an expectation of what is true holds, those
of a little less and a little more fail.

The scenario, every_figure.yaml, says how it comes to these values. Of each figure `PLANNED` has the
least and the most that it may be: one number where the scenario fixes it, a span where it depends
on how fast the machine is.
"""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kwok_operator.rehearsal.judge.figures import FIGURES
from tests.e2e.rehearsals import autoscaler_in, play, verdict

SCENARIO: Final = Path(__file__).parent / "every_figure.yaml"
OF_STATES: Final = (
    "Waiting",
    "Creating",
    "Failed",
    "Unregistered",
    "Starting",
    "Initializing",
    "Ready",
    "NotReady",
    "Interrupted",
    "Deleting",
)
WARNING: Final = "W0102 03:04:05.678901       1 main.go:1] planned"

Planned = tuple[str, dict[str, str], float, float]
"""A figure, what it is narrowed to, and the least and the most that it is."""


def _levels(name: str, of: dict[str, str], most: float, final: float) -> list[Planned]:
    values = {name: final, f"{name}.max": most, f"{name}.final": final}
    return [(figure, of, value, value) for figure, value in values.items()]


def _waits(name: str, after: float) -> list[Planned]:
    """`after` what the 10th, 19th and 20th of 20 have waited for, and all on average. They may be
    created some seconds late, and what they wait for may come later.
    """
    waited = {"p50": 6, "p95": 26, "p99": 46, "max": 46, "mean": (12 * 6 + 7 * 26 + 46) / 20}
    of = {"namespace": "waits"}
    return [(f"{name}.{key}", of, t + after - 3, t + after + 16) for key, t in waited.items()]


def _phases(name: str, seconds: float, *, least: float) -> list[Planned]:
    """A phase that takes all Jobs as long, or a little longer."""
    of = {"namespace": "waits"}
    parts = ("p50", "p95", "p99", "max", "mean")
    return [(f"{name}.{key}", of, least, seconds + 16) for key in parts]


def _exactly(name: str, value: float, **of: str) -> Planned:
    return name, of, value, value


AT: Final = 45.0
"""Seconds: when that is judged which grows with the run."""
PLANNED: Final[list[Planned]] = [
    *_levels("pods.pending", {"workload": "stuck"}, 5, 2),
    *_levels("pods.running", {"workload": "low"}, 4, 1),
    *_levels("pods.succeeded", {"workload": "succeeds"}, 3, 2),
    *_levels("pods.failed", {"workload": "fails"}, 4, 3),
    *_levels("pods.orphaned", {}, 5, 2),
    *_levels("pods.gone", {}, 24, 24),
    _exactly("pods.unserved", 5),
    *_waits("pendingSeconds", 6),
    *_waits("startSeconds", 10),
    *_waits("wait.decision", 0),
    *_phases("wait.boot", 3, least=2.7),
    *_phases("wait.scheduling", 3, least=2.7),
    # Kubernetes says in whole seconds when a pod began to run.
    *_phases("wait.start", 4, least=3),
    *_waits("gangs.completionSeconds", 13),
    _exactly("gangs.unfinished", 3),
    *_waits("gangs.waitingSeconds", 10),
    _exactly("gangs.broken", 1, workload="lost"),
    ("gangs.crossRack", {"workload": "racked"}, 0.45, 0.5),
    _exactly("gangs.crossRack.max", 0.5, workload="racked"),
    _exactly("gangs.crossRack.final", 0.5, workload="racked"),
    *_levels("racks.total", {}, 3, 3),
    *_levels("racks.free", {}, 3, 1),
    *_levels("largestGang.rack", {}, 4, 4),
    *_levels("largestGang.block", {}, 8, 4),
    *_levels("largestGang.cluster", {}, 12, 4),
    ("utilisation.gpu", {"group": "racks"}, 0.4, 0.5),
    _exactly("utilisation.gpu.max", 0.5, group="racks"),
    _exactly("utilisation.gpu.final", 0.5, group="racks"),
    *_levels("nodes.total", {"group": "churned"}, 5, 4),
    _exactly("nodes.max", 5, group="churned"),
    _exactly("nodes.final", 4, group="churned"),
    *_levels("nodes.ready", {"group": "churned"}, 5, 4),
    *_levels("nodes.notReady", {"group": "in-notready"}, 3, 2),
    *_levels("nodes.cordoned", {}, 2, 1),
    *_levels("nodes.deleting", {"zone": "held"}, 2, 1),
    *(
        planned
        for state in OF_STATES
        for planned in _levels(f"instances.{state}", {"group": f"in-{state.lower()}"}, 3, 2)
    ),
    ("nodeHours", {"group": "calm"}, 2 * AT / 3600 * 0.999, 2 * AT / 3600 * 1.001),
    ("cost", {"group": "calm"}, 0.36 * 2 * AT / 3600 * 0.999, 0.36 * 2 * AT / 3600 * 1.001),
    ("utilisation.cpu", {"group": "used"}, 0.4, 0.6),
    _exactly("utilisation.cpu.max", 0.75, group="used"),
    _exactly("utilisation.cpu.final", 0.25, group="used"),
    ("utilisation.memory", {"group": "used"}, 0.32, 0.48),
    _exactly("utilisation.memory.max", 0.6, group="used"),
    _exactly("utilisation.memory.final", 0.2, group="used"),
    _exactly("churn.created", 4, group="churned"),
    _exactly("churn.deleted", 3, group="churned"),
    _exactly("churn.replacedSameShape", 2, group="churned"),
    _exactly("evictions", 7),
    _exactly("preemptions", 3),
    _exactly("losses", 5),
    _exactly("restarts", 2),
    _exactly("disruptions.beyondBudget", 3),
    *_levels("nodeClaims.underWay", {"nodePool": "planned"}, 18, 2),
    *_levels("nodeClaims.launched", {"nodePool": "planned"}, 13, 2),
    *_levels("nodeClaims.registered", {"nodePool": "planned"}, 12, 2),
    _exactly("nodeClaims.neverRegistered", 4),
    _exactly("disruptions.Underutilized", 4, nodePool="planned"),
    _exactly("disruptions.Empty", 3),
    _exactly("disruptions.Drifted", 2),
    _exactly("disruptions.Expired", 5),
    _exactly("events", 7, namespace="seen"),
    _exactly("warnings", 1, program="ca"),
    _exactly("warnings", 1, program="shim"),
    _exactly("warnings", 3, program="operator"),
]
GROWING: Final = {"nodeHours", "cost", "utilisation.cpu", "utilisation.memory", "restarts"}


def expectations(planned: Planned) -> list[dict[str, Any]]:
    """One that holds, one that is too little, and one that is too much."""
    figure, of, least, most = planned
    told: dict[str, Any] = {"figure": figure, "of": of} if of else {"figure": figure}
    if figure in GROWING:
        told["when"] = {"at": AT}
    off = 1 if least == most and float(least).is_integer() else least / 100
    return [
        {**told, "atLeast": least, "atMost": most},
        {**told, "atMost": least - off},
        {**told, "atLeast": most + off},
    ]


def scenario(directory: Path) -> Path:
    """With its autoscaler, which logs a warning."""
    told = yaml.safe_load(SCENARIO.read_text())
    told["expect"] = [each for planned in PLANNED for each in expectations(planned)]
    told["apply"] = [
        str(SCENARIO.parent / each) if isinstance(each, str) else each for each in told["apply"]
    ]
    autoscaler_in(directory)
    program = directory / "autoscaler"
    program.write_text(program.read_text().replace("exec ", f'echo "{WARNING}"; exec '))
    path = directory / "scenario.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


@pytest.mark.serial
def test_each_holds_as_planned_and_fails_beside_it(tmp_path: Path) -> None:
    assert {figure for figure, *_ in PLANNED} == FIGURES.keys()
    done = play(scenario(tmp_path), tmp_path / "out")
    assert done.returncode == 1, done.stdout + done.stderr
    judged = verdict(tmp_path / "out")
    assert not judged["brokenOff"], judged["brokenOff"]
    wrong = [
        f"{each['name']}: {each['reason']}"
        for number, each in enumerate(judged["expectations"])
        if each["held"] is not (number % 3 == 0) or (", wanted " in each["reason"]) is each["held"]
    ]
    assert not wrong, "\n".join(wrong)
