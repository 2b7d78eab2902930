"""Compiles a profile into Stages for kwok: for each state of a pod, the next state, and when.

    bound --start--> [init containers --init--> ...] running --ready--> Ready --succeed--> Succeeded
      |                                                 |  ^
      `--stuck--> waiting (hold)          Failed <--fail'  `--restart-- waiting
    deleted --end--> Failed --terminate--> gone

At most one Stage of a profile matches a pod at any time, as kwok would choose among several at
random. The Stage `hold` matches while nothing is to happen: it keeps kwok's own Stages away. The
end of a delay is a time, computed from a timestamp in the pod's status, so it survives a restart of
kwok and other writes to the pod. Timestamps have whole seconds: half a second is added, so that a
delay is right on average.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.podprofiles import templates
from kwok_operator.podprofiles.api import (
    NEVER_START,
    Failure,
    FailureType,
    KwokPodProfileSpec,
)
from kwok_operator.podprofiles.life import Lives
from kwok_operator.podprofiles.selectors import Expression, Scope, expression

WEIGHT: Final = 1_000_000
"""The weight of a profile's Stages. kwok's own Stages weigh 0, or 1 in its set pod/general: they
win one step in a million."""
MAX_STAGE_BYTES: Final = 900_000
"""The most bytes of a Stage. etcd accepts 1.5 MiB per request, and managedFields are added."""
STAGE_API_VERSION: Final = "kwok.x-k8s.io/v1alpha1"
STAGE_KIND: Final = "Stage"
NAME_PREFIX: Final = "kwok-operator."
"""The names of all objects that are compiled from profiles begin with it."""
_MAX_NAME: Final = 253
_HALF_A_SECOND: Final = 500

Manifest = dict[str, Any]

_BOUND_AT: Final = (
    '([.status.conditions[]? | select(.type == "PodScheduled" and .status == "True")'
    " | .lastTransitionTime][0] // .metadata.creationTimestamp)"
)
_CONTAINER: Final = ".status.containerStatuses[0]"
_STARTED_AT: Final = f"{_CONTAINER}.state.running.startedAt"
_ENDED_AT: Final = f"({_CONTAINER} | .state.terminated // .lastState.terminated | .finishedAt)"
_INIT: Final = (
    "([.spec.initContainers // [], .status.initContainerStatuses // []] | transpose"
    ' | map((.[0].restartPolicy != "Always") and .[1].state.running != null) | index(true))'
)
_INIT_STARTED_AT: Final = (
    f"({_INIT} as $i | .status.initContainerStatuses[$i].state.running.startedAt)"
)
_DELETED_AT: Final = (
    "(.metadata | (.deletionTimestamp | fromdate) - (.deletionGracePeriodSeconds // 0) | todate)"
)
_UNREADY: Final = (
    "(([.status.conditions[]? | {(.type): .status}] | add) as $is"
    ' | $is.Ready != "True" and ($is.ContainersReady != "True" or (.spec.readinessGates | not)))'
)
"""jq: the pod is not Ready, for another reason than a readiness gate that others set. Also true if
Kubernetes set it NotReady because its node was away, which a kubelet would correct."""

_AT: Final = (
    "def at($stamp; $ms): (($stamp | fromdate) * 1000 + $ms"
    f" + {_HALF_A_SECOND}) as $t | (($t - $t % 1000) / 1000 | todate | .[:-1])"
    ' + "." + ($t % 1000 + 1000 | tostring | .[1:]) + "Z"; '
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile, and the pods that it selects (`scope`)."""

    name: str
    spec: KwokPodProfileSpec
    scope: Scope

    @classmethod
    def of(
        cls, name: str, spec: KwokPodProfileSpec, *, namespaces: Sequence[str] | None
    ) -> "Profile":
        """Makes a profile. `namespaces` are those that its namespaceSelector selects, None if it
        has no such selector."""
        return cls(name, spec, Scope.of(spec, namespaces))

    @property
    def seed(self) -> str:
        return self.spec.seed or self.name

    @property
    def rank(self) -> tuple[int, str]:
        """The sort key of profiles. Of those that select a pod, the first one applies."""
        return (-self.spec.priority, self.name)


@dataclass(frozen=True, slots=True)
class ProfileProblem:
    """Why a profile, or a part of it, has no effect; `reason` is the reason of a condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """The Stages of a profile, or the problems because of which it has none."""

    stages: tuple[Manifest, ...] = ()
    problems: tuple[ProfileProblem, ...] = ()
    overlapping: tuple[str, ...] = ()
    """The names of other profiles that apply to some of its pods instead."""


def compile_profile(profile: Profile, *, above: Sequence[Profile] = ()) -> Compiled:
    """Compiles a profile. `above` are all profiles with a higher rank, whatever pods they
    select."""
    over = [other for other in above if other.scope.may_overlap(profile.scope)]
    names = tuple(other.name for other in over)
    if profile.scope.namespaces == ():
        message = "no namespace has the labels of spec.namespaceSelector: label one, or change it"
        return Compiled(problems=(ProfileProblem("NoNamespaces", message),))
    all_above = next((other for other in over if other.scope.everything()), None)
    if all_above:
        message = (
            f"the profile {all_above.name} holds for all pods and goes before this one: give it a"
            " selector, or this one a greater spec.priority"
        )
        return Compiled(problems=(ProfileProblem("Overshadowed", message),), overlapping=names)
    stages = _Stages(profile, over).all()
    too_large = next((s for s in stages if len(str(s)) > MAX_STAGE_BYTES), None)
    if too_large:
        message = (
            f"the Stage {too_large['metadata']['name']} is too large to be stored: select fewer"
            " namespaces, or all"
        )
        return Compiled(problems=(ProfileProblem("TooLarge", message),), overlapping=names)
    return Compiled(tuple(stages), overlapping=names)


def stage_name(profile: str, part: str) -> str:
    """Returns the name of the Stage for a part of a profile. Names of parts have no dot, so two
    profiles never share a Stage's name."""
    name = f"{NAME_PREFIX}{profile}.{part}"
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(profile.encode()).hexdigest()[:10]
    return f"{NAME_PREFIX}{profile[: _MAX_NAME - 60].rstrip('-.')}-{digest}.{part}"


_ALIVE: Final = expression(".metadata.deletionTimestamp", "DoesNotExist")


def _phase(phase: str) -> Expression:
    return expression(".status.phase", "In", phase)


class _Stages:
    """Makes the Stages of one profile, which leave out pods that a profile in `above` selects."""

    def __init__(self, profile: Profile, above: Sequence[Profile]) -> None:
        self._profile, self._spec = profile, profile.spec
        self._lives = Lives(profile.spec, seed=profile.seed)
        self._scope = profile.scope.expressions()
        self._scope += [expression(other.scope.jq(), "NotIn", "true") for other in above]
        failures = list(enumerate(profile.spec.failures))
        self._stuck = [(i, each) for i, each in failures if each.type in NEVER_START]
        self._ending = [(i, each) for i, each in failures if each.type not in NEVER_START]
        self._readies_late = profile.spec.start.ready_delay is not None

    def all(self) -> list[Manifest]:
        stages = [*self._pending(), *self._running()]
        if stages:
            # Always, as pods may have crashed under an earlier version of the profile.
            stages.append(self._restart())
        if self._spec.termination.delay is not None:
            stages += self._terminate()
        return stages

    # Stages before the containers run.

    def _pending(self) -> list[Manifest]:
        fresh = [_ALIVE, _phase("Pending"), expression(".status.containerStatuses", "DoesNotExist")]
        stages = [self._wait(i, each, fresh) for i, each in self._stuck]
        if self._stuck:
            stages.append(self._hold())
        start = self._spec.start
        if start.delay is not None or start.init_containers or self._readies_late:
            stages += [self._start(fresh), self._init()]
        return stages

    def _start(self, fresh: list[Expression]) -> Manifest:
        stuck = [i for i, _ in self._stuck]
        failure = [self._matches_failure(stuck, "NotIn")] if stuck else []
        return self._stage(
            "start",
            [*fresh, *self._scope, *failure],
            delay=self._delay(_BOUND_AT, self._lives.jq_span("start", self._lives.start)),
            status=templates.start(
                inits_take_time=bool(self._spec.start.init_containers),
                ready=not self._readies_late,
            ),
        )

    def _init(self) -> Manifest:
        return self._stage(
            "init",
            [_ALIVE, _phase("Pending"), expression(_INIT, "Exists"), *self._scope],
            delay=self._delay(_INIT_STARTED_AT, self._lives.jq_init(_INIT)),
            status=templates.next_init(ready=not self._readies_late),
        )

    def _wait(self, position: int, failure: Failure, fresh: list[Expression]) -> Manifest:
        after = self._lives.jq_after_of(position, who="(who_fails | number_of_try(0))")
        return self._stage(
            f"stuck-{position}",
            [*fresh, *self._scope, self._matches_failure([position], "In")],
            delay=self._delay(_BOUND_AT, after),
            status=templates.stuck(failure),
            event=("Failed", f"Error: {failure.type.value}"),
        )

    def _hold(self) -> Manifest:
        reasons = sorted({each.type.value for _, each in self._stuck})
        waiting = expression(f"{_CONTAINER}.state.waiting.reason", "In", *reasons)
        return self._stage("hold", [_ALIVE, _phase("Pending"), waiting, *self._scope])

    # Stages while the containers run.

    def _running(self) -> list[Manifest]:
        if not (self._ending or self._readies_late or self._lives.run is not None):
            return []
        stages = [self._ready()]
        if self._lives.run is not None:
            stages.append(self._succeed())
        stages += [self._fail(position, failure) for position, failure in self._ending]
        return stages

    def _state(self) -> list[Expression]:
        return [_ALIVE, _phase("Running"), expression(_STARTED_AT, "Exists")]

    @property
    def _may_end_first(self) -> bool:
        """Whether any pod's containers could end before it is Ready. If none can, the Stages need
        no check for that."""
        lives = self._lives
        ends = [lives.after[position] for position, _ in self._ending]
        ends += [] if lives.run is None else [lives.run]
        return any(each.least < lives.ready.most for each in ends)

    def _before_ready(self, ends: str) -> str:
        """Returns jq that is true if the containers end before the pod would be Ready. `ends` is jq
        for the milliseconds until they end; its value may be null."""
        ready = self._lives.jq_span("ready", self._lives.ready)
        return f"({ends} as $e | $e != null and $e < {ready})"

    def _ready(self) -> Manifest:
        lives = self._lives
        conditions = [expression(_UNREADY, "In", "true"), *self._scope]
        if self._may_end_first:
            either = " or ".join(f"$f == {i}" for i, _ in self._ending) or "false"
            ends = (
                f"({lives.jq_failure()}{lives.jq_after()}restarts as $r | failure($r) as $f"
                f" | if {either} then after($f; $r) else {lives.jq_run()} end)"
            )
            conditions.append(expression(lives.jq(self._before_ready(ends)), "NotIn", "true"))
        return self._stage(
            "ready",
            [*self._state(), *conditions],
            delay=self._delay(_STARTED_AT, lives.jq_span("ready", lives.ready)),
            status=templates.ready(),
        )

    def _end(
        self,
        part: str,
        expressions: list[Expression],
        *,
        ends: str,
        status: str,
        event: tuple[str, str] = ("", ""),
    ) -> Manifest:
        """Makes a Stage that ends the containers of pods: of Ready pods, and of pods whose
        containers end before they would be Ready."""
        due = f"({_UNREADY} | not)"
        if self._may_end_first:
            due = self._lives.jq(f"{due} or {self._before_ready(ends)}")
        return self._stage(
            part,
            [*self._state(), *self._scope, *expressions, expression(due, "In", "true")],
            delay=self._delay(_STARTED_AT, ends),
            status=status,
            event=event,
        )

    def _succeed(self) -> Manifest:
        match = [expression(".spec.restartPolicy", "In", "Never", "OnFailure")]
        if self._ending:
            match.append(self._matches_failure([i for i, _ in self._ending], "NotIn"))
        return self._end("succeed", match, ends=self._lives.jq_run(), status=templates.succeeded())

    def _fail(self, position: int, failure: Failure) -> Manifest:
        evicted = failure.type is FailureType.EVICTED
        return self._end(
            f"fail-{position}",
            [self._matches_failure([position], "In")],
            ends=self._lives.jq_after_within_run(position),
            status=templates.evicted(failure) if evicted else templates.failed(failure),
            event=("Evicted", failure.message or templates.EVICTED_MESSAGE)
            if evicted
            else ("", ""),
        )

    def _restart(self) -> Manifest:
        lives = self._lives
        waits = f'({_CONTAINER}.state | .terminated or .waiting.reason == "CrashLoopBackOff")'
        back_off = f"({lives.jq_failure()}{lives.jq_after()}{lives.jq_back_off()})"
        return self._stage(
            "restart",
            [_ALIVE, _phase("Running"), expression(waits, "In", "true"), *self._scope],
            delay=self._delay(_ENDED_AT, back_off),
            status=templates.restarted(ready=not self._readies_late),
        )

    # Stages after the pod's deletion.

    def _terminate(self) -> list[Manifest]:
        lives = self._lives
        span = lives.jq_span("termination", lives.termination)
        within = f"([{span}, (.metadata.deletionGracePeriodSeconds // 0) * 1000] | min)"
        deleted = expression(".metadata.deletionTimestamp", "Exists")
        over = expression(".status.phase", "In", "Succeeded", "Failed")
        going = expression(".status.phase", "NotIn", "Succeeded", "Failed")
        delay = self._delay(_DELETED_AT, within)
        return [
            self._stage(
                "end", [deleted, going, *self._scope], delay=delay, status=templates.killed()
            ),
            self._stage("terminate", [deleted, over, *self._scope], delay=delay, delete=True),
        ]

    def _matches_failure(self, positions: list[int], operator: str) -> Expression:
        failure = f"{self._lives.jq_failure()}failure(restarts) | tostring"
        return expression(self._lives.jq(failure), operator, *map(str, positions))

    def _delay(self, stamp: str, span: str) -> str | None:
        """Returns jq for the time at which `span` has passed since `stamp`; None if there is no
        delay."""
        return None if span == "0" else self._lives.jq(f"{_AT}at({stamp}; {span})")

    def _stage(
        self,
        part: str,
        expressions: list[Expression],
        *,
        delay: str | None = None,
        status: str = "",
        event: tuple[str, str] = ("", ""),
        delete: bool = False,
    ) -> Manifest:
        selector: Manifest = {"matchExpressions": expressions}
        labels = self._profile.scope.match_labels()
        if labels:
            selector["matchLabels"] = labels
        following: Manifest = {}
        if status:
            template = templates.unless_changed(status)
            following["patches"] = [{"subresource": "status", "template": template}]
        reason, message = event
        if reason:
            following["event"] = {"type": "Warning", "reason": reason, "message": message}
        if delete:
            following["delete"] = True
        spec: Manifest = {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": selector,
            "weight": WEIGHT,
            "next": following,
        }
        if delay is not None:
            spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": delay}}
        return {
            "apiVersion": STAGE_API_VERSION,
            "kind": STAGE_KIND,
            "metadata": {"name": stage_name(self._profile.name, part)},
            "spec": spec,
        }
