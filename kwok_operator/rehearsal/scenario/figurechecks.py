"""Checks the figures that a scenario names: whether they exist and can be measured, and whether
their bounds can hold.

Conditions of the timeline and of `until` are checked, too: a step after a condition that can never
hold would never be done, and the rehearsal would end only by `atMost`.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kwok_operator.formats.podparts import gang
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.words import names_in_words, shown
from kwok_operator.formats.yamltext import Path
from kwok_operator.rehearsal.judge.figures import (
    DISRUPTIONS,
    EVENT_COUNT,
    FIGURES,
    Figure,
    FigureScope,
)
from kwok_operator.rehearsal.judge.recording import OPERATOR, SHIM
from kwok_operator.rehearsal.scenario.applied import Known
from kwok_operator.rehearsal.scenario.expectation import Compared
from kwok_operator.rehearsal.scenario.manifests import is_object_of
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.parts import is_time
from kwok_operator.rehearsal.scenario.problems import problem, unknown
from kwok_operator.rehearsal.scenario.racks import recorded
from kwok_operator.rehearsal.scenario.workload import ScenarioWorkload, WorkloadKind
from kwok_operator.schema.check import FieldProblem

_OF_NODE_CLAIMS: Final = ("nodeClaims.", *(f"disruptions.{reason}" for reason in DISRUPTIONS))
_ALWAYS_THERE: Final = frozenset({"default", "kube-system", "kwok-operator"})
"""The namespaces that a cluster of a rehearsal has from the start."""
_OF_RACKS: Final = ("racks.", "largestGang.", "gangs.crossRack")
_OF_JOBS: Final = ("gangs.completionSeconds", "gangs.unfinished")


def figure_checks(scenario: Scenario, known: Known, *, own_cluster: bool) -> Iterator[FieldProblem]:
    """Yields all problems with figures and their bounds."""
    for path, compared in scenario.compared():
        if compared.event is not None:
            yield from _says_nothing(path, compared, EVENT_COUNT)
        if compared.figure is None:
            continue
        figure = FIGURES.get(compared.figure)
        if figure is None:
            yield unknown((*path, "figure"), "figure", FIGURES, value=compared.figure)
            continue
        of = compared.of
        for name in sorted(of.by.keys() - figure.of):
            may = f"by {names_in_words(sorted(figure.of))} only" if figure.of else "by nothing"
            yield problem((*path, "of", name), f"{compared.figure} can be narrowed {may}")
        if of.program and of.program not in (there := programs(scenario)):
            what = "program whose warnings are recorded"
            yield unknown((*path, "of", "program"), what, there, value=of.program)
        yield from _of_what_is_there((*path, "of"), of, scenario, known)
        why = "" if own_cluster else _not_recorded(compared.figure, scenario)
        if not why and known.complete:
            why = _without_lines(compared.figure, of, scenario, known)
        if why:
            sentence = f"{shown(compared.figure)} can't be measured: {why}"
            yield problem((*path, "figure"), f"{sentence}, or take the figure out")
        problems = [*_says_nothing(path, compared, figure)]
        yield from problems or _too_many_pods(path, compared, scenario, known)


def _not_recorded(figure: str, scenario: Scenario) -> str:
    """Returns why the recording of a borrowed cluster lacks the figure, and the remedy; empty if
    the recording has it.
    """
    if figure.startswith(_OF_NODE_CLAIMS) and not scenario.karpenters:
        return (
            "NodeClaims of an existing cluster are recorded for a Karpenter of the scenario only;"
            " add it to processes"
        )
    return ""


def _without_lines(figure: str, of: FigureScope, scenario: Scenario, known: Known) -> str:
    """Returns what the scenario lacks to measure the figure, and the remedy; empty if nothing."""
    karpenter = bool(scenario.karpenters)
    whose = f"the group {of.group} has" if of.group else "no group that is applied has"
    if figure.startswith("instances.") and not _any_group(known, of, scenario, "cloud"):
        return f"{whose} {'no ' if of.group else ''}spec.cloud; give it one"
    if figure == "cost" and not karpenter and not _any_group(known, of, scenario, "price"):
        return f"{whose} {'no ' if of.group else ''}spec.price; give it one"
    if figure.startswith(_OF_RACKS) and (why := _without_racks(figure, scenario, known)):
        return why
    where = f" in the namespace {of.namespace}" if of.namespace else ""
    if figure == "disruptions.beyondBudget" and not _any_object(
        known, {"PodDisruptionBudget"}, of.namespace
    ):
        return f"no PodDisruptionBudget is applied{where}; apply one"
    if (
        figure.startswith(_OF_NODE_CLAIMS)
        and not karpenter
        and not _any_object(known, {"NodeClaim"}, "")
    ):
        return "nothing makes NodeClaims here; add Karpenter to processes, or apply them"
    if figure.startswith("gangs.") and not (
        _any_object(known, {"Job", "CronJob"}, of.namespace, of.workload)
        or (known.pods and not figure.startswith(_OF_JOBS))
        or any(
            (workload.kind is WorkloadKind.JOB or _is_gang(workload, figure))
            and of.namespace in ("", workload.namespace)
            and (not of.workload or _is_called(workload, of.workload))
            for workload in scenario.workloads
        )
    ):
        called = f" called {of.workload}" if of.workload else ""
        return f"there is no Job{called}{where}; add one to workloads or apply"
    return ""


def _without_racks(figure: str, scenario: Scenario, known: Known) -> str:
    topology = recorded(scenario.topology, known.groups.values())
    if topology is None:
        return "no labels of racks are known; name them in topology.levels"
    if figure.startswith("largestGang.block") and len(topology.levels) == 1:
        return "topology has one level; put a wider one before it"
    return ""


def _is_gang(workload: ScenarioWorkload, figure: str) -> bool:
    """Whether the workload's pods name a gang, and the figure counts gangs that pods name."""
    pods = workload.pods
    if pods is None or figure.startswith(_OF_JOBS):
        return False
    template = pods.template or {"metadata": pods.dump()}
    name, _ = gang(as_map(template.get("metadata")), as_map(template.get("spec")))
    return name != ""


def _any_group(known: Known, of: FigureScope, scenario: Scenario, part: str) -> bool:
    """Whether a group of the scope has the part, such as a price, in its spec, or may get it by a
    patch of the timeline.
    """
    if any(step.patch is not None for step in scenario.timeline):
        return True
    groups: Collection[Mapping[str, Any]] = known.groups.values()
    if of.group:
        # A group that doesn't exist is reported elsewhere.
        groups = [known.groups.get(of.group, {part: {}})]
    return any(as_map(spec).get(part) is not None for spec in groups)


def _any_object(known: Known, kinds: Collection[str], namespace: str, called: str = "") -> bool:
    """Whether the scenario applies an object of one of these kinds. With `called`, only an object
    counts with whose name `called` begins: names of a CronJob's Jobs begin with the CronJob's.
    """
    return any(
        kind in kinds
        and namespace in ("", where or "default")
        and (not called or called.rpartition("/")[2].startswith(name))
        for kind, where, name in known.objects
    )


def _is_called(workload: ScenarioWorkload, wanted: str) -> bool:
    name = wanted.rpartition("/")[2]
    return workload.name == name or is_object_of(workload, name)


def programs(scenario: Scenario) -> frozenset[str]:
    """Returns the programs whose warnings are recorded."""
    presets = {each.name for each in scenario.processes if each.command is None}
    shims = any(each.cluster_autoscaler is not None for each in scenario.processes)
    return frozenset({OPERATOR, *({SHIM} if shims else ()), *presets})


def _of_what_is_there(
    path: Path, of: FigureScope, scenario: Scenario, known: Known
) -> Iterator[FieldProblem]:
    if not known.complete:
        return
    if of.group and of.group not in known.groups:
        yield unknown((*path, "group"), "group that is applied", known.groups, value=of.group)
    patched = any(step.patch is not None for step in scenario.timeline)
    if of.zone and known.zones_known and not patched and of.zone not in known.zones:
        what = "zone of a group that is applied"
        yield unknown((*path, "zone"), what, known.zones, value=of.zone)
    pools = known.node_pools if known.node_pools_known and not patched else {of.node_pool}
    if of.node_pool and of.node_pool not in pools:
        what = "NodePool that is applied"
        yield unknown((*path, "nodePool"), what, pools, value=of.node_pool)
    if of.namespace:
        there = _ALWAYS_THERE | {workload.namespace for workload in scenario.workloads}
        there |= {namespace for _, namespace, _ in known.objects if namespace}
        there |= {name for kind, _, name in known.objects if kind == "Namespace"}
        if of.namespace not in there:
            what = "namespace of this scenario"
            yield unknown((*path, "namespace"), what, there, value=of.namespace)
    if not of.workload or known.pods:
        return
    names = {workload.name for workload in scenario.workloads}
    meant = [each for each in scenario.workloads if _is_called(each, of.workload)]
    if not meant:
        what = "workload of this scenario"
        yield unknown((*path, "workload"), what, names, value=of.workload)
    elif of.namespace not in ("", *(own := {each.namespace for each in meant})):
        what = f"namespace of {of.workload}"
        yield unknown((*path, "namespace"), what, own, value=of.namespace)


def _says_nothing(path: Path, compared: Compared, figure: Figure) -> Iterator[FieldProblem]:
    """Yields a problem if the bounds hold for every possible value, or for none."""
    keys = {"equals": compared.equals, "atLeast": compared.at_least, "atMost": compared.at_most}
    bounds = {key: number for key, number in keys.items() if number is not None}
    low = bounds.get("equals", bounds.get("atLeast", 0))
    high = bounds.get("equals", bounds.get("atMost", math.inf))
    name = compared.figure or "the number of Events"
    field, said = next(iter(bounds)), f"{low:g}"
    if figure.unit != "s" and (times := [key for key in bounds if is_time(bounds[key])]):
        field, said = times[0], f"is a time, which {name} is not; write a number"
    elif figure.unit == "share" and (over := [key for key in bounds if bounds[key] > 1]):
        field, bound = over[0], bounds[over[0]]
        hint = f"; write {bound / 100:g}" if bound <= 100 else ""
        said = f"{bound:g} is no share: {name} is from 0 to 1{hint}"
    elif figure.whole and math.ceil(low) > high:
        said += f" can never be: {name} is a whole number; write one"
    elif figure.grows and low > 0 and getattr(compared, "when", "") == "always":
        said += f" can't always be: {name} begins at 0; take out when: always"
    elif low == 0 and high == math.inf:
        said += f" can't fail: {name} is never below 0; write more than 0, or atMost"
    else:
        return
    yield problem((*path, field), said)


def _too_many_pods(
    path: Path, compared: Compared, scenario: Scenario, known: Known
) -> Iterator[FieldProblem]:
    least = compared.equals if compared.equals is not None else compared.at_least
    field = "equals" if compared.equals is not None else "atLeast"
    if least is None or compared.figure is None:
        return
    most = _most_pods(compared.of, scenario, known)
    level = compared.figure.removesuffix(".max").removesuffix(".final")
    # Pods that failed or were deleted are replaced, so there may be more pods than replicas.
    if level in ("pods.pending", "pods.running") and least > most:
        yield problem(
            (*path, field),
            f"{shown(compared.figure)} can never be {least:g}: there are {most:g} pods at most;"
            " lower it, or raise count",
        )


def _most_pods(of: FigureScope, scenario: Scenario, known: Known) -> float:
    """Returns how many pods the scenario's workloads can have at most; infinity if other objects or
    steps may create more.
    """
    if not known.complete or known.pods:
        return math.inf
    sizes = {workload.name: workload.pod_count for workload in scenario.workloads}
    for step in scenario.timeline:
        if step.patch is not None or step.apply is not None or step.delete is not None:
            return math.inf
        if step.scale is not None:
            name = step.scale.what.rpartition("/")[2]
            if name in sizes:
                sizes[name] = max(sizes[name], step.scale.replicas)
            else:
                return math.inf
    if of.workload:
        return sizes.get(of.workload.rpartition("/")[2], math.inf)
    return float(sum(sizes.values()))
