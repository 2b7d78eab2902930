"""Forecasts what a pod of a profile will do, by the same draws as its Stages.

Times count from when the pod is bound to a node. In the cluster each step may be half a second
early or late, and later still if kwok is busy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kwok_operator.podprofiles.api import NEVER_START, FailureType
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.life import NO_FAILURE, Lives, Who, exit_code
from kwok_operator.podprofiles.selectors import Pod

RESTARTS_TOLD: Final = 5


@dataclass(frozen=True, slots=True)
class LifeStep:
    """A step of a pod's life, `after` milliseconds after it was bound; kubectl then shows
    `state`."""

    after: int
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Course:
    """What a pod will do. `goes_on`: further restarts follow the last of the `steps`; `deletion`:
    milliseconds from the pod's deletion until the pod is gone."""

    steps: tuple[LifeStep, ...]
    deletion: int
    goes_on: bool = False


def holding(pod: Pod, profiles: list[Profile]) -> Profile | None:
    """Returns the profile that applies to a pod: of those that select it, the one with the first
    rank."""
    fitting = (each for each in profiles if each.scope.takes(pod))
    return min(fitting, key=lambda each: each.rank, default=None)


def explain(profile: Profile, pod: Pod) -> Course:
    return _Explanation(profile, pod).course()


def lines(profile: Profile, pod: Pod) -> list[str]:
    """Returns the forecast as lines for people: the pod, its profile, and the steps."""
    course = explain(profile, pod)
    seed = f"profile {profile.name}, seed {profile.seed}"
    text = [f"{pod.namespace}/{pod.name}: {seed}; times count from when it is bound"]
    for step in course.steps:
        detail = f"  {step.detail}" if step.detail else ""
        text.append(f"{clock(step.after):>12}  {step.state}{detail}")
    if course.goes_on:
        text.append(f"{'':>12}  and so on")
    if course.deletion:
        text.append(f"{clock(course.deletion):>12}  after it is deleted, it is gone")
    return text


def clock(after: int) -> str:
    """Formats milliseconds as hours, minutes and seconds."""
    seconds, thousandths = divmod(after, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}.{thousandths:03}"


class _Explanation:
    def __init__(self, profile: Profile, pod: Pod) -> None:
        self._pod, self._who = pod, Who.of(pod)
        self._lives = Lives(profile.spec, seed=profile.seed)
        self._run = self._lives.run_of(self._who, pod)
        self._ready = self._lives.span("ready", self._lives.ready, self._who.life)
        self._goes_on = False

    def course(self) -> Course:
        steps = tuple(self._steps())
        lives = self._lives
        deletion = lives.span("termination", lives.termination, self._who.life)
        return Course(steps, min(deletion, self._pod.grace_seconds * 1_000), self._goes_on)

    def _steps(self) -> Iterator[LifeStep]:
        lives, who = self._lives, self._who
        first = lives.failure(who, 0)
        if first != NO_FAILURE and lives.spec.failures[first].type in NEVER_START:
            state = lives.spec.failures[first].type.value
            yield LifeStep(lives.alone(first, who), state, "for ever")
            return
        at = lives.span("start", lives.start, who.life)
        for position, sidecar in enumerate(self._pod.init_containers if lives.inits else ()):
            if not sidecar:
                yield LifeStep(at, "Init", f"init container {position} runs")
                at += lives.init_of(position, who)
        yield from self._from_running(at)

    def _from_running(self, at: int) -> Iterator[LifeStep]:
        lives, who, never = self._lives, self._who, self._pod.restart_policy == "Never"
        for restarts in range(RESTARTS_TOLD + 1):
            which = lives.failure(who, restarts)
            failure = None if which == NO_FAILURE else lives.spec.failures[which]
            if failure is not None and failure.type in NEVER_START:
                failure = None
            ends = lives.after_of(which, who, restarts, run=self._run) if failure else self._run
            yield LifeStep(at, "Running", f"restart {restarts}" if restarts else "")
            if ends is None or self._ready <= ends:
                yield LifeStep(at + self._ready, "Ready")
            if ends is None:
                return
            at += ends
            if failure is None:
                yield LifeStep(at, "Succeeded")
                return
            if failure.type is FailureType.EVICTED:
                yield LifeStep(at, "Failed", "Evicted")
                return
            reason = f"{_REASONS.get(failure.type, 'Error')}, exit code {exit_code(failure)}"
            state = "Failed" if never else "CrashLoopBackOff" if restarts else "Error"
            yield LifeStep(at, state, reason)
            if never:
                return
            at += lives.back_off(who, restarts, run=self._run)
        self._goes_on = True


_REASONS: Final = {FailureType.OOM_KILLED: "OOMKilled"}
