"""Recordings of rehearsals that tests make up: lines, files of them, and what comes of them."""

import gzip
import random
from collections.abc import Iterable, Iterator
from typing import Any

from kwok_operator.rehearsal.judge.figures import FIGURES, FigureReading, Tally
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    BudgetState,
    CallLine,
    EndLine,
    EventLine,
    GroupLine,
    GroupState,
    JobLine,
    JobState,
    MarkLine,
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordedLine,
    RecordingHeader,
    RecordingReader,
    WarningLine,
    encode,
)
from kwok_operator.rehearsal.judge.verdict import Judged, judged

NAME = "recording.jsonl.gz"
ALLOCATABLE = {"cpu": 4_000.0, "memory": 16 * 2.0**30, "pods": 110.0}


def content(lines: Iterable[RecordedLine], *, expect: Iterable[Any] = (), **header: Any) -> bytes:
    """A whole file, not compressed."""
    first = RecordingHeader(**{"scenario": "test", "expect": tuple(expect), **header})
    return "".join(f"{encode(line)}\n" for line in (first, *lines)).encode()


def reader(data: bytes, *, chunk: int = 2**16) -> RecordingReader:
    chunks = (data[at : at + chunk] for at in range(0, len(data), chunk))
    return RecordingReader(iter(chunks), name=NAME)


def judge(
    lines: Iterable[RecordedLine],
    *,
    expect: Iterable[Any] = (),
    zipped: bool = False,
    **header: Any,
) -> Judged:
    data = content(lines, expect=expect, **header)
    return judged(reader(gzip.compress(data) if zipped else data), name=NAME)


def node(t: float, name: str, group: str = "a", **state: Any) -> NodeLine:
    told = {"ready": True, "allocatable": ALLOCATABLE, "shape": "s", **state}
    return NodeLine(t, name, NodeState(group=group, **told))


def gone(t: float, name: str) -> NodeLine:
    return NodeLine(t, name, None)


def pod(t: float, name: str, *, created: float, **state: Any) -> PodLine:
    """`web-1` is in the namespace default, and of Deployment/default/web."""
    workload = f"Deployment/default/{name.rpartition('-')[0]}"
    told = {"workload": workload, "requests": {"cpu": 1_000.0, "memory": 2.0**30}, **state}
    return PodLine(t, f"default/{name}", PodState(created=created, **told))


def job(t: float, name: str, **state: Any) -> JobLine:
    return JobLine(t, name, JobState(**state))


def budget(t: float, name: str, allowed: int, healthy: int = 9) -> BudgetLine:
    state = BudgetState(allowed=allowed, healthy=healthy, desired=9)
    return BudgetLine(t, f"PodDisruptionBudget/default/{name}", state)


def reading(tally: Tally, name: str, t: float) -> FigureReading:
    return FIGURES[name].reading(tally, t)


def run(*lines: RecordedLine, until: float = 100.0, reason: str = "settled") -> list[RecordedLine]:
    """The lines in the order of their times, with an end."""
    return [*sorted(lines, key=lambda line: line.t), EndLine(until, reason)]


def random_run(seed: int, *, nodes: int = 30, pods: int = 120) -> list[RecordedLine]:
    """A run in which anything may happen to anything."""
    draw = random.Random(seed)
    lines: list[RecordedLine] = [
        line for n in range(nodes) for line in _random_node(draw, f"n-{n}")
    ]
    lines += [line for n in range(pods) for line in _random_pod(draw, f"w{n % 3}-{n}", nodes)]
    for group in "abc":
        states = {"Creating": draw.randrange(5), "Failed": draw.randrange(3), "Odd": 1}
        lines.append(GroupLine(draw.uniform(0, 90), group, GroupState(3, 2, 1, states, 0.5)))
        call = ("NodeGroupIncreaseSize", group, "3", "OK", 1.5)
        lines.append(CallLine(draw.uniform(0, 90), *call))
    for kind in ("Normal", "Warning"):
        about = ("Pod/default/w1-1", "scheduler", "no room", draw.randrange(1, 4))
        lines.append(EventLine(draw.uniform(0, 90), kind, "FailedScheduling", *about))
    lines.append(job(2.0, "Job/default/j", wanted=2))
    lines.append(WarningLine(draw.uniform(0, 90), "operator", "it is late", draw.randrange(1, 4)))
    lines.append(MarkLine(draw.uniform(0, 90), "scale", "web to 10"))
    return run(*lines)


def _random_node(draw: random.Random, name: str) -> Iterator[RecordedLine]:
    t = round(draw.uniform(0, 60), 3)
    group, zone = draw.choice("abc"), draw.choice("xy")
    price = draw.choice((None, 0.1, 2.5))
    for ready in (False, True, draw.random() < 0.5):
        yield node(
            t, name, group, zone=zone, price=price, ready=ready, schedulable=draw.random() < 0.8
        )
        t = round(t + draw.uniform(0, 15), 3)
    if draw.random() < 0.5:
        yield gone(t, name)


def _random_pod(draw: random.Random, name: str, nodes: int) -> Iterator[RecordedLine]:
    created = round(draw.uniform(-5, 50), 3)
    t = max(created, 0.0)
    told: dict[str, Any] = {"why": "0/3 nodes are available: 3 Insufficient cpu."}
    yield pod(t, name, created=created, **told)
    for phase in ("Pending", "Running", draw.choice(("Running", "Succeeded", "Failed"))):
        if draw.random() < 0.2:
            break
        t = round(t + draw.uniform(0, 10), 3)
        told.setdefault("bound", t)
        told["node"] = told.get("node", f"n-{draw.randrange(nodes)}")
        if phase == "Running":
            told.setdefault("running", t)
        yield pod(t, name, created=created, phase=phase, restarts=draw.randrange(3), **told)
    if draw.random() < 0.4:
        yield PodLine(round(t + draw.uniform(0, 10), 3), f"default/{name}", None)
