"""A scenario's file, read and checked whole before anything starts."""

from pathlib import Path

from kwok_operator.rehearsal.scenario.checks import check
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile, read_scenario
from kwok_operator.rehearsal.surroundings import LocalSurroundings, read_text


def load_scenario(path: Path, around: LocalSurroundings, *, arm: str | None = None) -> ScenarioFile:
    """What stands in a file, with all that is wrong with it. Raises SettingsError if it can't be
    read."""
    return check(read_scenario(str(path), read_text(path), arm=arm), around)
