"""Reads a scenario's file and checks it completely before anything starts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from kwok_operator.rehearsal.scenario.checks import check
from kwok_operator.rehearsal.scenario.process import DEFAULT_BINARY
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile, read_scenario
from kwok_operator.rehearsal.scenario.surroundings import UnusableReferenceError
from kwok_operator.rehearsal.surroundings import LocalSurroundings, read_text

_GUIDE: Final = "docs/rehearse-autoscaling.md"


def load_scenario(path: Path, around: LocalSurroundings, *, arm: str | None = None) -> ScenarioFile:
    """Reads a scenario's file, or one arm (variant) of it, and checks it. Returns the scenario with
    all its mistakes. Raises SettingsError if the file can't be read.
    """
    return check(read_scenario(str(path), read_text(path), arm=arm), around)


def load_demo(
    tour: Path, around: LocalSurroundings, *, report: Callable[[str], None]
) -> ScenarioFile:
    """Returns the scenario of the demo, extended by autoscaler.yaml if there is a
    cluster-autoscaler.
    """
    read = load_scenario(tour, around)
    try:
        around.check_program(DEFAULT_BINARY)
    except UnusableReferenceError as error:
        report(f"no cluster-autoscaler is shown: it {error} ({_GUIDE} says how to get one)")
        return read
    more = load_scenario(tour.with_name("autoscaler.yaml"), around)
    if read.scenario is None or more.scenario is None:
        return (read.scenario and more) or read
    lists = {
        name: (*getattr(read.scenario, name), *getattr(more.scenario, name))
        for name in ("processes", "timeline", "expect")
    }
    return replace(read, scenario=read.scenario.model_copy(update=lists))
