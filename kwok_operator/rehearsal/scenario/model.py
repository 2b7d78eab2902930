"""A scenario: what a rehearsal sets up, does, and expects. One file, which people write.

    cluster, apply, processes   what exists at the beginning
    begin                       when the clock starts
    workloads, timeline         what happens
    until, expect               when it ends, and what must hold

This module has the fields and their limits. `checks.py` checks whether they fit together.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from kwok_operator.api.base import number_as_text
from kwok_operator.rehearsal.scenario.expectation import Compared, Expectation, ScenarioCondition
from kwok_operator.rehearsal.scenario.karpenter import Karpenter
from kwok_operator.rehearsal.scenario.kueue import Kueue
from kwok_operator.rehearsal.scenario.parts import (
    PositiveSpan,
    ScenarioName,
    ScenarioPart,
    TextOrNumber,
)
from kwok_operator.rehearsal.scenario.placement import PlacementField
from kwok_operator.rehearsal.scenario.process import ScenarioProcess
from kwok_operator.rehearsal.scenario.racks import ScenarioTopology
from kwok_operator.rehearsal.scenario.timeline import Applying, Step
from kwok_operator.rehearsal.scenario.workload import ScenarioWorkload

DEFAULT_LONGEST = 600.0
DEFAULT_SETTLED = 10.0
DEFAULT_STEADY = 300.0


KubernetesVersion = Annotated[
    str,
    StringConstraints(pattern=r"^1\.[0-9]{1,3}$"),
]

Seed = Annotated[
    str,
    BeforeValidator(number_as_text),
    StringConstraints(min_length=1, max_length=64),
    WithJsonSchema({"type": ["string", "integer"]}),
]


class Component(StrEnum):
    """A program of the cluster, to which a scenario may give flags."""

    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    ETCD = "etcd"
    KWOK = "kwok-controller"
    OPERATOR = "kwok-operator"


class ScenarioCluster(ScenarioPart):
    """The cluster that is made for the rehearsal, unless --kubeconfig names an existing one."""

    kubernetes: KubernetesVersion | None = Field(
        default=None, description='Its minor version. Default: the newest known. Example: "1.36".'
    )
    flags: dict[Component, dict[str, TextOrNumber]] = Field(
        default_factory=dict,
        description="Flags of components, without dashes. Example: {kube-scheduler: {v: 2}}.",
    )


class Begin(StrEnum):
    """When processes and the clock start."""

    STEADY = "steady"
    AT_ONCE = "atOnce"


class Until(ScenarioPart):
    """When the rehearsal is over."""

    settled_for: PositiveSpan | None = Field(
        default=None,
        description="Once all has been done, and nothing has changed for so long. Default: 10s, if"
        " nothing at all is said of the end.",
    )
    condition: ScenarioCondition | None = Field(
        default=None, description="Once this holds. Example: {figure: pods.running, atLeast: 50}."
    )
    at_most: PositiveSpan = Field(
        default=DEFAULT_LONGEST,
        description="In any case after this time; alone, at this time. Default: 10m.",
    )

    @model_validator(mode="after")
    def _one(self) -> "Until":
        if self.settled_for is not None and self.condition is not None:
            raise ValueError("has settledFor and condition; keep one of them")
        return self

    @property
    def settled(self) -> float | None:
        """The seconds without a change that end the rehearsal; None if something else ends it."""
        return self.settled_for or (None if self.model_fields_set else DEFAULT_SETTLED)


class Scenario(ScenarioPart):
    """What a rehearsal sets up, does, and expects."""

    name: ScenarioName = Field(description="Default: the file's name. Example: sold-out-zone.")
    teaches: str = Field(
        default="", max_length=2_000, description="What it shows; the report has it."
    )
    seed: Seed | None = Field(
        default=None, description="What all draws are made from. Default: the name. Example: run-1."
    )
    currency: str = Field(
        default="",
        max_length=16,
        description="That of all prices; the report has it. Default: none. Example: USD.",
    )
    cluster: ScenarioCluster = Field(
        default_factory=ScenarioCluster, description="The cluster, unless --kubeconfig names one."
    )
    apply: Applying = Field(
        default=(),
        description="Files, folders, kustomizations, objects that are there at the beginning."
        " Example: [groups.yaml, ../rehearsal/].",
    )
    placement: PlacementField | None = Field(
        default=None,
        description="Where pods of `apply` stand at the beginning, also where the scheduler would"
        " put none: a file of an import, or what it has in it. Default: the scheduler decides."
        " Example: placement.json.",
    )
    topology: ScenarioTopology | None = Field(
        default=None,
        description="By which labels racks are measured. Default: those of template.topology of"
        " groups. Example: {levels: [example.com/block, example.com/rack]}.",
    )
    begin: Begin = Field(
        default=Begin.STEADY,
        description="steady: processes and the clock start once all groups of `apply` are Ready,"
        " and the scheduler has bound the pods of `apply` or has no place for them. atOnce: as"
        " soon as all is applied. Default: steady.",
    )
    steady_within: PositiveSpan = Field(
        default=DEFAULT_STEADY,
        description="With begin: steady. A cluster that isn't steady after this time ends the"
        " rehearsal before its clock starts. Default: 5m.",
    )
    processes: tuple[ScenarioProcess, ...] = Field(
        default=(), max_length=50, description="Programs beside the cluster. Default: none."
    )
    workloads: tuple[ScenarioWorkload, ...] = Field(
        default=(), max_length=500, description="Pods that arrive. Default: none."
    )
    timeline: tuple[Step, ...] = Field(
        default=(), max_length=1_000, description="What is done meanwhile. Default: nothing."
    )
    until: Until = Field(
        default_factory=Until, description="When it is over. Example: {settledFor: 10s}."
    )
    expect: tuple[Expectation, ...] = Field(
        min_length=1,
        max_length=500,
        description="What must hold. Example: [{figure: pods.pending, equals: 0}].",
    )

    arms: dict[ScenarioName, dict[str, Any] | None] | None = Field(
        default=None,
        description="Two ways to play it, for compare: of each what differs, merged over the rest."
        " Example: {waste: {}, random: {until: {atMost: 20m}}}.",
    )

    @model_validator(mode="after")
    def _waits_for_steady(self) -> "Scenario":
        if self.begin is Begin.AT_ONCE and self.placement is not None:
            raise ValueError("placement goes with begin: steady, as nodes come first; keep one")
        if self.begin is Begin.AT_ONCE and "steady_within" in self.model_fields_set:
            raise ValueError("steadyWithin goes with begin: steady; remove it, or change begin")
        return self

    def compared(self) -> Iterator[tuple[tuple[str | int, ...], Compared]]:
        """Yields all conditions and expectations, each with its path in the scenario."""
        for number, step in enumerate(self.timeline):
            if step.after is not None:
                yield ("timeline", number, "after"), step.after
        if self.until.condition is not None:
            yield ("until", "condition"), self.until.condition
        for number, each in enumerate(self.expect):
            yield ("expect", number), each

    @property
    def programs(self) -> frozenset[str]:
        """The programs that the scenario starts, by the names that it gives them."""
        run = (step.run.command[0] for step in self.timeline if step.run is not None)
        return frozenset({process.program for process in self.processes}.union(run))

    @property
    def has_outages(self) -> bool:
        """Whether a step begins an outage."""
        return any(step.outage is not None for step in self.timeline)

    @property
    def evicts_after(self) -> float | None:
        """After how many seconds Kubernetes evicts the pods of a NotReady node, by flags of the
        scenario; None if the scenario has no such flag.
        """
        flags = self.cluster.flags.get(Component.API_SERVER, {})
        try:
            return float(flags["default-not-ready-toleration-seconds"])
        except (KeyError, ValueError):
            return None

    @property
    def karpenters(self) -> dict[str, Karpenter]:
        """The processes that are Karpenter, by name."""
        return {each.name: each.karpenter for each in self.processes if each.karpenter is not None}

    @property
    def kueues(self) -> dict[int, Kueue]:
        """The processes that are Kueue, by index."""
        numbered = ((number, each.kueue) for number, each in enumerate(self.processes))
        return {number: kueue for number, kueue in numbered if kueue is not None}

    @property
    def gathers_pods(self) -> float | None:
        """For how many seconds no new pod must come until the slowest Karpenter acts on the pending
        pods that it has collected; None if there is no Karpenter.
        """
        return max((each.gathers_pods for each in self.karpenters.values()), default=None)

    @property
    def draws_from(self) -> str:
        """The seed of all random draws: `seed`, or else the scenario's name."""
        return self.seed or self.name

    @property
    def operators_seed(self) -> str:
        """The seed that the operator uses for groups without one; empty if it uses their names."""
        given = self.cluster.flags.get(Component.OPERATOR, {}).get("cloud-seed")
        return given or self.seed or ""
