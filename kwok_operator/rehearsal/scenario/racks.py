"""The labels by which a scenario measures racks: those that it names, or those of its groups.

topology of the scenario, specs of groups  --recorded-->  RecordedTopology of the recording
                                           --rack_checks-->  problems
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field, model_validator

from kwok_operator.formats.podparts import amounts, dicts
from kwok_operator.formats.untyped import value_at
from kwok_operator.rehearsal.judge.recording import RecordedTopology
from kwok_operator.rehearsal.scenario.parts import Amount, LabelKey, ScenarioPart
from kwok_operator.rehearsal.scenario.problems import problem
from kwok_operator.schema.check import FieldProblem
from kwok_operator.topology.api import long_form


class ScenarioTopology(ScenarioPart):
    """By which labels nodes stand in racks."""

    levels: tuple[LabelKey, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=5,
        description="Labels of nodes, from wide to narrow: the last one is that of a rack, the one"
        " before of a block. Default: those of the groups' template.topology. Example:"
        " [example.com/block, example.com/rack].",
    )
    pod: dict[LabelKey, Amount] = Field(
        default_factory=dict,
        max_length=32,
        description="What each pod of the largest gang that would fit requests. Default: a whole"
        " node. Example: {cpu: 8, nvidia.com/gpu: 4}.",
    )

    @model_validator(mode="after")
    def _is_clear(self) -> "ScenarioTopology":
        levels = self.levels or ()
        if twice := [level for level in levels if levels.count(level) > 1]:
            raise ValueError(f"levels has {twice[0]} twice; keep one of them")
        if nothing := [name for name in self.pod if not amounts(self.pod).get(name)]:
            raise ValueError(f"pod requests 0 of {nothing[0]}; write more, or take it out")
        return self


def recorded(
    topology: ScenarioTopology | None, groups: Iterable[Mapping[str, Any]]
) -> RecordedTopology | None:
    """Returns the labels by which racks are measured: the scenario's, or those of its groups. None
    if there are none, or if the groups have different ones.
    """
    topology = topology or ScenarioTopology()
    levels = topology.levels
    if levels is None:
        of_groups = _levels_of(groups)
        levels = of_groups.pop() if len(of_groups) == 1 else ()
    return RecordedTopology(levels, amounts(topology.pod)) if levels else None


def rack_checks(
    topology: ScenarioTopology | None, groups: Iterable[Mapping[str, Any]], *, complete: bool
) -> Iterator[FieldProblem]:
    """Yields problems with the scenario's topology. `complete`: whether all groups are known."""
    if topology is None or topology.levels is not None:
        return
    found = _levels_of(groups)
    if len(found) > 1:
        some = " and ".join(", ".join(levels) for levels in sorted(found)[:2])
        yield problem(("topology",), f"has no levels, and those of groups differ: {some}; name one")
    elif not found and complete:
        yield problem(("topology",), "has no levels, and no group has a topology; name labels")


def _levels_of(groups: Iterable[Mapping[str, Any]]) -> set[tuple[str, ...]]:
    """Returns the labels of the levels of each group that has any."""
    found = set()
    for spec in groups:
        levels = dicts(value_at(spec, "template", "topology", "levels"))
        labels = tuple(long_form(str(level.get("label", ""))) for level in levels)
        if labels and all(labels):
            found.add(labels)
    return found
