"""Checks whether the parts of a scenario fit together, as far as that is known before it starts.

    ScenarioFile, Surroundings  --check-->  ScenarioFile with findings

Each check is a function that takes the scenario and yields problems. This module checks names,
times and processes; figurechecks.py checks figures, and what can never hold; applied.py checks
objects.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from kwok_operator.formats.manifests import CRD
from kwok_operator.formats.words import names_in_words, shown
from kwok_operator.formats.yamltext import Path
from kwok_operator.rehearsal.judge.recording import OPERATOR, SHIM
from kwok_operator.rehearsal.scenario.applied import (
    Known,
    layouts_of,
    look_at,
    pools_that_lack,
    zone_in,
)
from kwok_operator.rehearsal.scenario.arrivals import last_arrival
from kwok_operator.rehearsal.scenario.autoscaler import GIVEN_FLAGS, OPERATOR_FLAGS
from kwok_operator.rehearsal.scenario.figurechecks import figure_checks
from kwok_operator.rehearsal.scenario.karpenterchecks import KarpenterLook
from kwok_operator.rehearsal.scenario.kueuechecks import kueue_checks
from kwok_operator.rehearsal.scenario.manifests import is_object_of
from kwok_operator.rehearsal.scenario.model import Component, Scenario
from kwok_operator.rehearsal.scenario.parts import MAX_PODS
from kwok_operator.rehearsal.scenario.placement import placement_in
from kwok_operator.rehearsal.scenario.problems import problem, unknown
from kwok_operator.rehearsal.scenario.process import ClusterAutoscaler, Starts
from kwok_operator.rehearsal.scenario.racks import rack_checks
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile
from kwok_operator.rehearsal.scenario.surroundings import Surroundings, UnusableReferenceError
from kwok_operator.rehearsal.scenario.timeline import UnitsStep
from kwok_operator.rehearsal.scenario.waits import wait_checks
from kwok_operator.rehearsal.scenario.workload import ScenarioWorkload, WorkloadKind
from kwok_operator.schema.check import FieldProblem
from kwok_operator.topology.api import long_form

_KINDS: Final = {
    word: kind
    for kind, words in {
        "Deployment": "deployment deployments deploy deployment.apps",
        "StatefulSet": "statefulset statefulsets sts statefulset.apps",
        "Job": "job jobs job.batch",
        "KwokNodeGroup": "kng kwoknodegroup kwoknodegroups",
        "KwokCapacityPool": "kpool kwokcapacitypool kwokcapacitypools",
    }.items()
    for word in words.split()
}
_OF_NO_NAMESPACE: Final = frozenset({"KwokNodeGroup", "KwokCapacityPool"})


def check(read: ScenarioFile, around: Surroundings) -> ScenarioFile:
    """Returns the file with all findings of the checks that go beyond single fields."""
    scenario, document = read.scenario, read.document
    if scenario is None or document is None:
        return read
    brought = KarpenterLook(scenario, document, around, file=read.file)
    applied = look_at(scenario, document, around, file=read.file)
    known = applied.known
    known.complete &= around.own_cluster and not _makes_more(scenario)
    karpenter = brought.at(known)
    unchecked = [*karpenter.unchecked]
    problems = [
        *applied.problems,
        *karpenter.problems,
        *_cluster(scenario, around),
        *_placement(scenario, around),
        *rack_checks(scenario.topology, known.groups.values(), complete=known.complete),
        *_names(scenario),
        *_sizes(scenario),
        *_times(scenario),
        *_processes(scenario, around),
        *kueue_checks(scenario, around, unchecked),
        *_process_steps(scenario),
        *_references(scenario, known),
        *_traces(scenario, around),
        *wait_checks(scenario, known),
        *figure_checks(scenario, known, own_cluster=around.own_cluster),
    ]
    lacking = [name for name in sorted(scenario.programs) if around.lacks(name)]
    programs = [f"{names_in_words(lacking)}: not on this machine"] if lacking else []
    read = replace(
        read,
        ignored=(*karpenter.ignored,),
        unlike=(*karpenter.unlike,),
        unchecked=(*programs, *unchecked),
    )
    return read.with_findings(problems, [*applied.findings, *karpenter.findings])


def _makes_more(scenario: Scenario) -> bool:
    """Whether programs or traces of the scenario may create objects of which the checks
    can't know.
    """
    return (
        any(process.command is not None for process in scenario.processes)
        or any(step.run is not None for step in scenario.timeline)
        or any(workload.arrivals.trace is not None for workload in scenario.workloads)
    )


def _cluster(scenario: Scenario, around: Surroundings) -> Iterator[FieldProblem]:
    cluster = scenario.cluster
    if not around.own_cluster and cluster.model_fields_set:
        sentence = "is for a cluster that is made; leave cluster out, or --kubeconfig"
        yield problem(("cluster",), sentence)
    known = around.kubernetes
    if cluster.kubernetes is not None and known and cluster.kubernetes not in known:
        path = ("cluster", "kubernetes")
        yield unknown(path, "version that is known", known, value=cluster.kubernetes)
    for component, flags in cluster.flags.items():
        given = OPERATOR_FLAGS if component is Component.OPERATOR else {}
        yield from _flags(("cluster", "flags", component.value), flags, given)


def _placement(scenario: Scenario, around: Surroundings) -> Iterator[FieldProblem]:
    placement = scenario.placement
    if placement is None:
        return
    if not around.own_cluster:
        sentence = "is for a cluster that is made, as the scheduler is halted meanwhile; leave it"
        yield problem(("placement",), f"{sentence} out, or --kubeconfig")
    if placement.path is None:
        return
    try:
        placement_in(around.text(placement.path))
    except (UnusableReferenceError, ValueError) as error:
        yield problem(("placement",), f"{shown(placement.path)} {error}")


def _flags(
    path: Path, flags: Mapping[str, str], given: Mapping[str, str]
) -> Iterator[FieldProblem]:
    for name in flags:
        if name.startswith("-"):
            yield problem((*path, name), f"is written without dashes: {name.lstrip('-')}")
        elif not name or "=" in name or " " in name:
            yield problem((*path, name), "is not the name of a flag")
        elif (reason := given.get(name.replace("_", "-"))) is not None:
            yield problem((*path, name), f"is {reason}; take it out")


def _names(scenario: Scenario) -> Iterator[FieldProblem]:
    seen: dict[str, int] = {}
    for number, process in enumerate(scenario.processes):
        if process.name in seen:
            sentence = f"{shown(process.name)} is the name of processes[{seen[process.name]}], too"
            yield problem(("processes", number, "name"), f"{sentence}; rename one")
        if process.name in (OPERATOR, SHIM):
            sentence = f"{shown(process.name)} is what the rehearsal calls its own; rename it"
            yield problem(("processes", number, "name"), sentence)
        seen.setdefault(process.name, number)
    workloads = Counter(workload.name for workload in scenario.workloads)
    for number, workload in enumerate(scenario.workloads):
        path: Path = ("workloads", number, "name")
        if workloads[workload.name] > 1:
            yield problem(path, f"{shown(workload.name)} is the name of another, too; rename one")
        owner = _numbered_as(workload.name, scenario)
        if owner:
            yield problem(path, f"{shown(workload.name)} is an object of {owner}, too; rename one")


def _numbered_as(name: str, scenario: Scenario) -> str:
    """Returns another workload that would give an object the name `name`, such as `web` for
    `web-0001`; empty if there is none.
    """
    others = (each for each in scenario.workloads if each.name != name)
    return next((each.name for each in others if is_object_of(each, name)), "")


def _sizes(scenario: Scenario) -> Iterator[FieldProblem]:
    total = sum(workload.pod_count for workload in scenario.workloads)
    if total > MAX_PODS:
        yield problem(("workloads",), f"have {total:,} pods together; at most {MAX_PODS:,} can be")
    for number, step in enumerate(scenario.timeline):
        if step.scale is not None and step.scale.replicas > MAX_PODS:
            path = ("timeline", number, "scale", "replicas")
            yield problem(path, f"{step.scale.replicas:,} is more than {MAX_PODS:,}; ask for fewer")


def _times(scenario: Scenario) -> Iterator[FieldProblem]:
    """Yields problems with what would happen only after the scenario's end."""
    end = scenario.until.at_most
    late = f"is after the end, as until.atMost is {end:g} s; move it, or raise until.atMost"
    settled = scenario.until.settled
    if settled is not None and settled >= end:
        sentence = f"{settled:g} s is not less than until.atMost, {end:g} s; lower it"
        yield problem(("until", "settledFor"), sentence)
    for number, step in enumerate(scenario.timeline):
        if step.at is not None and step.at > end:
            yield problem(("timeline", number, "at"), f"{step.at:g} s {late}")
        if step.delay > end:
            yield problem(("timeline", number, "delay"), f"{step.delay:g} s {late}")
        if step.settled_for is not None and step.settled_for > end:
            yield problem(("timeline", number, "settledFor"), f"{step.settled_for:g} s {late}")
    for number, each in enumerate(scenario.expect):
        if not isinstance(each.when, str) and each.when.at > end:
            yield problem(("expect", number, "when"), f"{each.when.at:g} s {late}")
    absurd = sum(workload.objects for workload in scenario.workloads) > MAX_PODS
    for number, workload in enumerate(() if absurd else scenario.workloads):
        last = last_arrival(workload, seed=scenario.draws_from)
        if last > end:
            yield problem(
                ("workloads", number, "arrivals"),
                f"end after {last:,.0f} s, and until.atMost is {end:g} s; make them faster, fewer,"
                " or raise until.atMost",
            )


def _processes(scenario: Scenario, around: Surroundings) -> Iterator[FieldProblem]:
    for number, process in enumerate(scenario.processes):
        path: Path = ("processes", number)
        autoscaler = process.cluster_autoscaler
        yield from _program((*path, *process.program_field), process.program, around)
        if autoscaler is None:
            continue
        yield from _flags((*path, "clusterAutoscaler", "flags"), autoscaler.flags, GIVEN_FLAGS)
        yield from _crds((*path, "clusterAutoscaler", "crds"), autoscaler, around)
        if autoscaler.api_trouble is not None:
            try:
                around.check_trouble(autoscaler.api_trouble)
            except UnusableReferenceError as error:
                yield problem((*path, "clusterAutoscaler", "apiTrouble"), str(error))
    for number, step in enumerate(scenario.timeline):
        if step.run is not None:
            yield from _program(("timeline", number, "run", "command"), step.run.command[0], around)


def _crds(path: Path, wanted: ClusterAutoscaler, around: Surroundings) -> Iterator[FieldProblem]:
    folder = wanted.folder_of_crds(partial(around.beside, wanted.binary))
    if folder is None:
        return
    try:
        material = around.material(folder)
    except UnusableReferenceError as error:
        flags = ", ".join(wanted.flags_with_crds)
        hint = "" if wanted.crds else f"; {flags} needs CRDs, which are sought there"
        yield problem(path, f"{shown(folder)} {error}{hint}")
        return
    if material.complete and not any(CRD in text for _, text in material.texts):
        sentence = "has no CRD; name cluster-autoscaler/apis/config/crd of kubernetes/autoscaler"
        yield problem(path, f"{shown(folder)} {sentence}")


def _program(path: Path, name: str, around: Surroundings) -> Iterator[FieldProblem]:
    try:
        around.check_program(name)
    except UnusableReferenceError as error:
        yield problem(path, f"{shown(name)} {error}")


def _process_steps(scenario: Scenario) -> Iterator[FieldProblem]:
    """Yields problems with start and stop of processes: unknown, never started, started twice."""
    names = {process.name for process in scenario.processes}
    started: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    for number, step in enumerate(scenario.timeline):
        for action, name in (("start", step.start), ("stop", step.stop)):
            if name is None:
                continue
            (started if action == "start" else stopped)[name] += 1
            if name not in names:
                path = ("timeline", number, action)
                yield unknown(path, "process of this scenario", names, value=name)
    for number, process in enumerate(scenario.processes):
        starts, stops = started[process.name], stopped[process.name]
        own: Path = ("processes", number)
        if process.starts is Starts.BY_TIMELINE and not starts:
            sentence = f"is byTimeline, and no step starts it; add one, as in start: {process.name}"
            yield problem((*own, "starts"), sentence)
        elif process.starts is Starts.AT_ONCE and starts > stops:
            sentence = "is started at once and by the timeline; write starts: byTimeline, or stop"
            yield problem((*own, "name"), f"{shown(process.name)} {sentence} it before")


def _references(scenario: Scenario, known: Known) -> Iterator[FieldProblem]:
    if not known.complete:
        return
    for group, pool in pools_that_lack(known):
        sentence = f"KwokNodeGroup {group} draws from the pool {pool}, which is nowhere; apply it"
        yield problem(("apply",), sentence)
    patched = any(step.patch is not None for step in scenario.timeline)
    for number, step in enumerate(scenario.timeline):
        path: Path = ("timeline", number)
        if (out := step.outage) is not None and out.group is not None:
            yield from _in((*path, "outage", "group"), "group", known.groups, out.group)
        if out is not None and out.pool is not None:
            yield from _in((*path, "outage", "pool"), "pool", known.pools, out.pool)
        if out is not None and out.zone is not None and known.zones_known and not patched:
            zones = set(map(zone_in, known.groups.values())) - {""}
            yield from _in((*path, "outage", "zone"), "zone of a group", zones, out.zone)
        if out is not None and out.topology is not None and not patched:
            yield from _units((*path, "outage", "topology"), out.topology, known)
        nodes = step.cordon or step.uncordon or step.interrupt or step.lose
        if nodes is not None and nodes.group is not None:
            yield from _in((*path, step.action, "group"), "group", known.groups, nodes.group)
        machines = step.interrupt or step.lose
        if machines is not None and machines.node_pool is not None and known.node_pools_known:
            given, there = (*path, step.action, "nodePool"), known.node_pools
            yield from _in(given, "NodePool", there, machines.node_pool)
        target = step.scale or step.patch or step.delete
        if target is not None:
            word, _, name = target.what.partition("/")
            here = _of_kind(_KINDS.get(word.lower(), ""), target.namespace, scenario, known)
            if here is None:
                continue
            names, own = here
            if name not in names and not any(is_object_of(each, name) for each in own):
                what = f"{word} of namespace {target.namespace}"
                if _KINDS[word.lower()] in _OF_NO_NAMESPACE:
                    what = word
                yield unknown((*path, step.action, "what"), what, names, value=name)


def _units(path: Path, step: UnitsStep, known: Known) -> Iterator[FieldProblem]:
    """Yields problems with levels and units that no group's topology has."""
    layouts = layouts_of(known.groups).values()
    labels = {label for each in layouts for layer in each.layers for label in layer.labels}
    if step.level is not None and long_form(step.level) not in labels:
        what = "label of the template.topology of a group that is applied"
        yield unknown((*path, "level"), what, labels, value=step.level)
    for number, value in enumerate(step.values or ()):
        if all(each.unit(value) is None for each in layouts):
            sentence = "is a value that no label of a group's template.topology can have; write one"
            hint = f"such as {min(each.domain for each in layouts)}-0" if layouts else "of a group"
            yield problem((*path, "values", number), f"{shown(value)} {sentence} {hint}")


def _in(path: Path, what: str, known: object, name: str) -> Iterator[FieldProblem]:
    names = set(known)  # type: ignore[call-overload]
    if name not in names:
        yield unknown(path, f"{what} that is applied", names, value=name)


def _of_kind(
    kind: str, namespace: str, scenario: Scenario, known: Known
) -> tuple[set[str], list[ScenarioWorkload]] | None:
    """Returns the known names of objects of a kind in a namespace, and the workloads that create
    such objects; None if `kind` is empty, as the name then isn't checked.
    """
    if not kind:
        return None
    names = {
        name
        for each, where, name in known.objects
        if each == kind and (kind in _OF_NO_NAMESPACE or where == namespace)
    }
    own = [
        workload
        for workload in scenario.workloads
        if workload.kind.value == kind
        and workload.namespace == namespace
        and workload.kind is not WorkloadKind.PODS
    ]
    names |= {workload.name for workload in own if workload.objects == 1}
    return names, own


def _traces(scenario: Scenario, around: Surroundings) -> Iterator[FieldProblem]:
    for number, workload in enumerate(scenario.workloads):
        trace = workload.arrivals.trace
        if trace is None:
            continue
        path: Path = ("workloads", number, "arrivals", "trace")
        if not around.own_cluster:
            # Its pods may go to any node, and its objects aren't marked as the rehearsal's.
            sentence = "is for a cluster that is made; put pods in its place, or"
            yield problem(path, f"{shown(trace)} {sentence} leave --kubeconfig out")
            continue
        try:
            around.check_trace(trace)
        except UnusableReferenceError as error:
            yield problem(path, f"{shown(trace)} {error}")
