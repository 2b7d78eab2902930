"""The workloads of a scenario: which pods arrive, in which objects, and when.

This module has the fields, their limits, and which of them exclude each other. `arrivals.py`
computes when each object is created, `manifests.py` makes its manifest.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from kwok_operator.rehearsal.scenario.parts import (
    MAX_PODS,
    Amount,
    LabelKey,
    LabelText,
    Line,
    NamespaceName,
    Number,
    PositiveSpan,
    Rate,
    ScenarioName,
    ScenarioPart,
    Span,
    TextOrNumber,
    Whole,
)


class WorkloadKind(StrEnum):
    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    JOB = "Job"
    PODS = "Pods"


def _has_containers(template: Mapping[str, Any]) -> bool:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(c, dict) for c in containers)
    )


class PodsOfWorkload(ScenarioPart):
    """What each pod asks for: in short, or as a whole template."""

    cpu: Amount | None = Field(default=None, description="CPU that is requested. Example: 500m.")
    memory: Amount | None = Field(
        default=None, description="Memory that is requested. Example: 1Gi."
    )
    resources: dict[LabelKey, Amount] = Field(
        default_factory=dict,
        max_length=32,
        description="Further resources that are requested. Example: {nvidia.com/gpu: 1}.",
    )
    labels: dict[LabelKey, LabelText] = Field(
        default_factory=dict, max_length=64, description="Labels. Example: {team: search}."
    )
    annotations: dict[str, TextOrNumber] = Field(
        default_factory=dict, max_length=64, description="Annotations. Default: none."
    )
    node_selector: dict[LabelKey, LabelText] = Field(
        default_factory=dict,
        max_length=64,
        description="Labels that a node must have. Example: {kwok-operator.io/node-group: batch}.",
    )
    priority_class: Line | None = Field(
        default=None, description="The PriorityClass. Example: system-cluster-critical."
    )
    scheduler: Line | None = Field(
        default=None, description="The scheduler's name. Default: that of Kubernetes."
    )
    template: dict[str, Any] | None = Field(
        default=None,
        description="A whole pod template (metadata, spec) instead of all the others.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> "PodsOfWorkload":
        others = self.model_fields_set - {"template"}
        if self.template is not None and others:
            raise ValueError("has template beside other fields; write them into the template")
        if self.template is not None and not _has_containers(self.template):
            raise ValueError("template has no containers; it has spec.containers, as in a Pod")
        return self


class ArrivalWave(ScenarioPart):
    size: Whole = Field(ge=1, le=MAX_PODS, description="Objects of one wave. Example: 20.")
    every: PositiveSpan = Field(description="From one wave to the next. Example: 30s.")
    spread: Span = Field(
        default=0.0,
        description="Objects of a wave come within this time, drawn from the seed. Default: all at"
        " once.",
    )


class Spacing(StrEnum):
    EVEN = "even"
    RANDOM = "random"


class ArrivalsOfWorkload(ScenarioPart):
    """When the objects of a workload are made; by default, all at the beginning."""

    at: Span = Field(default=0.0, description="When the first one may come. Default: 0s.")
    at_once: bool | None = Field(
        default=None, strict=True, description="All together. Default: true, unless another is set."
    )
    rate: Rate | None = Field(default=None, description="One after the other. Example: 5/s.")
    spacing: Spacing = Field(
        default=Spacing.EVEN,
        description="With rate: even, or random as independent users come, drawn from the seed.",
    )
    wave: ArrivalWave | None = Field(
        default=None, description="In waves. Example: {size: 20, every: 30s}."
    )
    trace: Line | None = Field(
        default=None,
        description="A trace of `kwok-operator record` to play, relative to the scenario.",
    )
    speed: Number = Field(
        default=1.0,
        gt=0,
        le=10_000,
        description="With trace: so many times as fast. Default: 1. Example: 10.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> "ArrivalsOfWorkload":
        ways = [name for name in ("rate", "wave", "trace") if getattr(self, name) is not None]
        if self.at_once is False and not ways:
            raise ValueError("atOnce is false, and nothing else is set; give rate, wave or trace")
        if self.at_once and ways:
            raise ValueError(f"has atOnce and {ways[0]}; keep one of them")
        if len(ways) > 1:
            raise ValueError(f"has {' and '.join(ways)}; keep one of them")
        for name, needs in (("spacing", "rate"), ("speed", "trace")):
            if name in self.model_fields_set and getattr(self, needs) is None:
                raise ValueError(f"{name} is for {needs}; give {needs}, or take {name} out")
        if self.wave is not None and self.wave.spread > self.wave.every:
            raise ValueError("wave.spread is longer than wave.every; lower one or raise the other")
        return self


class ScenarioWorkload(ScenarioPart):
    """Pods that arrive."""

    name: ScenarioName = Field(description="What it is called, and its objects. Example: web.")
    kind: WorkloadKind = Field(
        default=WorkloadKind.DEPLOYMENT,
        description="What the pods are part of: Deployment, StatefulSet, Job, or Pods for pods of"
        " nobody. Default: Deployment.",
    )
    namespace: NamespaceName = Field(
        default="default", description="Where they are; made if it isn't there. Default: default."
    )
    count: Whole = Field(
        default=1, ge=1, le=MAX_PODS, description="Pods in all. Default: 1. Example: 50."
    )
    each: Whole | None = Field(
        default=None,
        ge=1,
        le=MAX_PODS,
        description="Pods of each object: 40 pods of 8 each are 5 Jobs. Default: 1 of Job and Pods;"
        " a Deployment or StatefulSet has them all.",
    )
    labels: dict[LabelKey, LabelText] = Field(
        default_factory=dict,
        max_length=64,
        description="Labels of the objects, not of their pods. Example:"
        " {kueue.x-k8s.io/queue-name: gpus}.",
    )
    pods: PodsOfWorkload | None = Field(
        default=None, description="What each pod asks for. Example: {cpu: 500m, memory: 1Gi}."
    )
    arrivals: ArrivalsOfWorkload = Field(
        default_factory=ArrivalsOfWorkload,
        description="When they come. Default: all at the beginning. Example: {rate: 5/s}.",
    )

    @model_validator(mode="after")
    def _fits(self) -> "ScenarioWorkload":
        own = self.model_fields_set & {"kind", "namespace", "count", "each", "labels", "pods"}
        if self.arrivals.trace is not None:
            if own:
                raise ValueError(
                    f"has {sorted(own)[0]} and a trace, which says so itself; keep one of them"
                )
            return self
        if self.pods is None:
            raise ValueError("has no pods; say what each asks for, as in pods: {cpu: 500m}")
        if self.kind is WorkloadKind.PODS and self.each not in (None, 1):
            raise ValueError("each is for objects that make pods; take it out")
        if self.kind is WorkloadKind.PODS and self.labels:
            raise ValueError("labels is for objects that make pods; write it into pods")
        if self.count % self.pods_of_each:
            raise ValueError(
                f"{self.count} pods can't be {self.pods_of_each} of each object; make count a"
                " multiple of each"
            )
        return self

    @property
    def pods_of_each(self) -> int:
        is_one = self.kind in (WorkloadKind.DEPLOYMENT, WorkloadKind.STATEFUL_SET)
        return self.each or (self.count if is_one else 1)

    @property
    def objects(self) -> int:
        """How many objects the rehearsal creates for the workload; 0 if a trace creates them."""
        return 0 if self.arrivals.trace is not None else self.count // self.pods_of_each

    @property
    def pod_count(self) -> int:
        return 0 if self.arrivals.trace is not None else self.count
