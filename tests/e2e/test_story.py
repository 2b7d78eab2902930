"""`kubectl describe kng` says what became of a group in the last hour."""

import re
from collections import Counter
from typing import NamedTuple

from tests.e2e.groups import (
    apply_group,
    patch_group,
    scale,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness

_LINE = re.compile(
    r"^  (?P<kind>\w+) +(?P<reason>\w+) +(?:\S+ \(x(?P<count>\d+) over \S+\)|\S+) +"
    r"kwok-operator +(?P<message>.*)$"
)
BROKEN = {"node": {"metadata": {"labels": {"no label": "x"}}}}


class Line(NamedTuple):
    """One Event as `kubectl describe` shows it."""

    kind: str
    reason: str
    times: int
    message: str


def story(kubectl: Kubectl, group: str) -> list[Line]:
    _, _, events = kubectl("describe", "kng", group).partition("\nEvents:")
    found = [_LINE.match(line) for line in events.splitlines()]
    return [
        Line(m["kind"], m["reason"], int(m["count"] or 1), m["message"].strip()) for m in found if m
    ]


def reasons(kubectl: Kubectl, group: str) -> list[tuple[str, int]]:
    return [(line.reason, line.times) for line in story(kubectl, group)]


def wait_events(kubectl: Kubectl, group: str, *expected: tuple[str, int]) -> None:
    """Waits until these are the Events, in any order: kubectl sorts them by seconds."""
    eventually(
        lambda: Counter(reasons(kubectl, group)),
        until=lambda found: found == Counter(expected),
        describe=f"the Events are {expected}",
    )


def pause_and_resume(kubectl: Kubectl, group: str) -> None:
    patch_group(kubectl, group, paused=True)
    wait_condition(kubectl, group, "Paused")
    patch_group(kubectl, group, paused=False)
    wait_condition(kubectl, group, "Paused", status="False")


def test_describe_shows_each_event_with_its_count(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    wait_events(kubectl, group_name, ("ScalingUp", 1), ("Ready", 1))
    scale(kubectl, group_name, 5)
    grown = [("ScalingUp", 1), ("ScalingUp", 1), ("Ready", 1)]
    wait_events(kubectl, group_name, *grown, ("Ready", 1))

    pause_and_resume(kubectl, group_name)
    paused = [("SpecPaused", 1), ("Resumed", 1)]
    wait_events(kubectl, group_name, *grown, ("Ready", 1), *paused)

    patch_group(kubectl, group_name, template=BROKEN)
    wait_events(kubectl, group_name, *grown, ("Ready", 1), *paused, ("TemplateInvalid", 1))
    patch_group(kubectl, group_name, template=None)
    # All nodes are Ready again: that had been said, in the same words.
    mended = [("TemplateInvalid", 1), ("TemplateResolved", 1), ("Ready", 2)]
    wait_events(kubectl, group_name, *grown, *paused, *mended)

    harness.start()
    pause_and_resume(kubectl, group_name)
    wait_events(kubectl, group_name, *grown, *mended, ("SpecPaused", 2), ("Resumed", 2))
    lines = story(kubectl, group_name)
    # Not in which order: kubectl has it by whole seconds.
    assert {line.reason for line in lines if line.kind == "Warning"} == {"TemplateInvalid"}
    sizes = [re.findall(r"\d+", line.message) for line in lines if line.reason == "ScalingUp"]
    assert sorted(sizes) == [["0", "3", "3"], ["3", "5", "2"]]
