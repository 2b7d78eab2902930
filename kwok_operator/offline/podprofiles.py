"""Forecasts what the pods of workloads in files will do, without a cluster.

    Pods, StatefulSets, indexed Jobs  -->  pods by name, a Job's tries one after the other
    KwokPodProfiles, Namespaces       -->  the profile that applies to each

Pods of other workloads have names with a random part, which can't be known beforehand. The files
are users' input: a field that the API server would refuse is a finding, or counts as missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator.constants import PROFILE_KIND
from kwok_operator.importing.pods.allow import TEXTS, Schema, copy_allowed
from kwok_operator.offline.files import Files, Finding, FoundObject
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.explain import Course, clock, explain, holding, lines
from kwok_operator.podprofiles.life import FAILED_TRIES, INDEX_LABEL, JOB_LABEL, ORDINAL_LABEL
from kwok_operator.podprofiles.selectors import Pod, labels_match
from kwok_operator.schema.check import check_profile

MOST_PODS: Final = 1_000
"""The most pods of one workload."""
MOST_TRIES: Final = 10
_MOST_NUMBERS: Final = 100_000
_UNKNOWN: Final = "-"
_RUNS: Final = ("Running", "Ready")
_LABELS: Final[dict[str, Schema]] = {"labels": TEXTS, "annotations": TEXTS}
_POD_SPEC: Final = {
    "nodeName": str,
    "restartPolicy": str,
    "terminationGracePeriodSeconds": int,
    "initContainers": [{"restartPolicy": str}],
}
_POD: Final[dict[str, Schema]] = {"metadata": _LABELS, "spec": _POD_SPEC}
_WORKLOAD: Final[dict[str, Schema]] = {
    "replicas": int,
    "ordinals": {"start": int},
    "completionMode": str,
    "completions": int,
    "backoffLimitPerIndex": int,
    "template": _POD,
}
_KNOWN: Final = frozenset({"Pod", "StatefulSet", "Job"})
_RANDOM: Final = frozenset({"Deployment", "ReplicaSet", "DaemonSet", "CronJob"})


@dataclass(frozen=True, slots=True)
class LifeRow:
    """A pod's life in words: when its containers run, when it is Ready, how and when it ends."""

    pod: str
    attempt: str
    running: str
    ready: str
    then: str
    at: str


@dataclass(slots=True)
class PodForecast:
    """The forecast: `rows` has all pods; `lines` describes the one pod that was selected, if
    any."""

    rows: list[LifeRow] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def forecast_pods(files: Files, *, only: str | None = None) -> PodForecast:
    """Forecasts pods. `only` selects one: namespace/name, or namespace/job-index for a pod of an
    indexed Job."""
    return _Forecaster(files).forecast(only)


class _Forecaster:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._result = PodForecast(findings=list(files.findings))
        self._specs = {profile.name: spec for profile, spec in self._sound()}
        self._labels = {
            each.name: copy_allowed(each.value.get("metadata"), _LABELS).fields.get("labels", {})
            for each in files.others
            if each.value["kind"] == "Namespace"
        }

    def _sound(self) -> Iterator[tuple[FoundObject, KwokPodProfileSpec]]:
        for profile in self._files.profiles:
            problems = check_profile(profile.value)
            self._result.findings += [profile.finding(each.message, each.path) for each in problems]
            if not problems:
                yield profile, KwokPodProfileSpec.model_validate(profile.value.get("spec") or {})

    def forecast(self, only: str | None) -> PodForecast:
        for workload in self._files.others:
            kind = workload.value["kind"]
            if kind in _KNOWN:
                self._workload(workload, self._kept(workload), only)
            elif kind in _RANDOM:
                self._random(workload)
        self._result.notes = list(dict.fromkeys(self._result.notes))
        return self._result

    def _kept(self, workload: FoundObject) -> Mapping[str, Any]:
        """Returns the fields of a workload that decide about its pods. Values that the API server
        refuses become findings."""
        bare = workload.value["kind"] == "Pod"
        kept = (
            copy_allowed(workload.value, _POD)
            if bare
            else copy_allowed(workload.value.get("spec"), _WORKLOAD)
        )
        for unfit in kept.unfit:
            path = tuple(filter(None, ("" if bare else "spec", *unfit.split("."))))
            message = f"{'.'.join(path)}: is nothing that the API server takes; see kubectl explain"
            self._result.findings.append(workload.finding(message, path))
        return kept.fields

    def _random(self, workload: FoundObject) -> None:
        self._result.notes.append(
            f"{workload.label}: its pods' names have a random part, so what each will do is known"
            " only when it is there"
        )

    def _workload(self, workload: FoundObject, kept: Mapping[str, Any], only: str | None) -> None:
        if workload.value["kind"] == "Job" and kept.get("completionMode") != "Indexed":
            self._random(workload)
            return
        numbers = _numbers(workload, kept)
        if only is None and len(numbers) > MOST_PODS:
            first = f"the first {MOST_PODS:,} of its {len(numbers):,} pods are told"
            self._result.notes.append(f"{workload.label}: {first}")
            numbers = numbers[:MOST_PODS]
        for number in numbers:
            pod = _pod_of(workload, kept, number)
            if only in (None, f"{pod.namespace}/{pod.name}"):
                self._pod(
                    workload, pod, tries=kept.get("backoffLimitPerIndex"), in_lines=bool(only)
                )

    def _pod(self, workload: FoundObject, pod: Pod, *, tries: int | None, in_lines: bool) -> None:
        profile = self._profile_of(pod)
        if profile is None:
            self._result.notes.append(f"{workload.label}: no {PROFILE_KIND} is for its pods")
            return
        if INDEX_LABEL in pod.labels and tries is None and profile.spec.failures:
            self._result.notes.append(
                f"{workload.label}: what fails by probability is drawn by the random part of its"
                " pods' names, and is left out here; with spec.backoffLimitPerIndex it is drawn by"
                " index"
            )
            profile = _without_chance(profile)
        for number in range(min(tries or 0, MOST_TRIES) + 1):
            counted = {FAILED_TRIES: str(number)} if tries is not None else {}
            tried = replace(pod, annotations={**pod.annotations, **counted})
            course = explain(profile, tried)
            if in_lines:
                self._result.lines += [f"try {number + 1}:"] if number else []
                self._result.lines += lines(profile, tried)
            self._result.rows.append(_row(tried, course, str(number + 1) if counted else _UNKNOWN))
            if course.steps[-1].state != "Failed":
                return

    def _profile_of(self, pod: Pod) -> Profile | None:
        return holding(pod, [self._profile(name, pod) for name in self._specs])

    def _profile(self, name: str, pod: Pod) -> Profile:
        spec = self._specs[name]
        if spec.namespace_selector is None:
            return Profile.of(name, spec, namespaces=None)
        if pod.namespace not in self._labels:
            self._result.notes.append(
                f"Namespace {pod.namespace} is not among the files; it counts as one without labels"
            )
        labels = {
            "kubernetes.io/metadata.name": pod.namespace,
            **self._labels.get(pod.namespace, {}),
        }
        here = [pod.namespace] if labels_match(spec.namespace_selector, labels) else []
        return Profile.of(name, spec, namespaces=here)


def _numbers(workload: FoundObject, kept: Mapping[str, Any]) -> range:
    """Returns the ordinals of a StatefulSet, or the indexes of a Job; a bare pod counts as one."""
    first, count = 0, 1
    if workload.value["kind"] == "StatefulSet":
        first, count = kept.get("ordinals", {}).get("start", 0), kept.get("replicas", 1)
    elif workload.value["kind"] == "Job":
        count = kept.get("completions", 0)
    return range(first, first + min(count, _MOST_NUMBERS))


def _pod_of(workload: FoundObject, kept: Mapping[str, Any], number: int) -> Pod:
    """Makes a pod with the labels that the controller of its workload gives it."""
    kind, (namespace, owner) = workload.value["kind"], workload.identity
    name = owner if kind == "Pod" else f"{owner}-{number}"
    labels = {
        "Pod": {},
        "StatefulSet": {ORDINAL_LABEL: str(number), "statefulset.kubernetes.io/pod-name": name},
        "Job": {INDEX_LABEL: str(number), JOB_LABEL: owner, "job-name": owner},
    }[kind]
    manifest = kept if kind == "Pod" else kept.get("template", {})
    metadata = manifest.get("metadata", {})
    return Pod.of(
        {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": metadata.get("labels", {}) | labels,
                "annotations": metadata.get("annotations", {}),
            },
            "spec": manifest.get("spec", {}),
        }
    )


def _without_chance(profile: Profile) -> Profile:
    """Returns the profile without the probabilities of failures, so that each failure is certain.
    The failures keep their positions, on which random draws depend."""
    failures = tuple(
        each.model_copy(update={"probability": None}) for each in profile.spec.failures
    )
    return replace(profile, spec=profile.spec.model_copy(update={"failures": failures}))


def _row(pod: Pod, course: Course, attempt: str) -> LifeRow:
    def first(state: str) -> str:
        return next((clock(step.after) for step in course.steps if step.state == state), _UNKNOWN)

    restarts = sum(step.state == "Running" for step in course.steps) - 1
    last = course.steps[-1]
    if course.goes_on:
        last = next(step for step in course.steps if step.state not in _RUNS)
    runs = last.state in _RUNS
    then = ["runs" if runs else "fails again and again" if course.goes_on else last.state]
    then += [last.detail] if last.detail and not runs else []
    then += [f"after {restarts} restarts"] if restarts > 0 and not course.goes_on else []
    return LifeRow(
        pod=f"{pod.namespace}/{pod.name}",
        attempt=attempt,
        running=first("Running"),
        ready=first("Ready"),
        then=", ".join(then),
        at=_UNKNOWN if runs else clock(last.after),
    )
