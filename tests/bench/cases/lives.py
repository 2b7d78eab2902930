"""Pods that live by a KwokPodProfile: what was seen beside what was told, and what it costs kwok.

    kwok's own Stages      so many pods, made at a steady rate, until all run
    the profile, seed a    the same pods, until all have ended
    seed a, again          in the second round
    seed b                 in the third

Pods are those of an indexed Job: another run has the same indexes and other names. They are bound
as they are made, so kube-scheduler has no part. Stages are compiled here and applied by hand: once
they are there, no operator has a part either. Times count from the pod's creation: its stamp has
whole seconds, so the pod is half a second younger, on average.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from kwok_operator.cloud.draws import span
from kwok_operator.constants import KWOK_NODE_ANNOTATION
from kwok_operator.formats.times import parse_time
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile, compile_profile
from kwok_operator.podprofiles.explain import explain
from kwok_operator.podprofiles.life import FAILED_TRIES, INDEX_LABEL, JOB_LABEL
from kwok_operator.podprofiles.selectors import Pod
from tests.bench.api import ApiError
from tests.bench.cluster import FEW_HEARTBEATS, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import percentile
from tests.bench.observer import PODS, Events, Observer
from tests.bench.progress import Progress
from tests.bench.runs import patience
from tests.e2e.podlives import state_of

OWN: Final = "kwok's own Stages"
PROFILE: Final = "profile"
TOLD: Final = "told"
SPEC: Final[Mapping[str, Any]] = {
    "podSelector": {"matchLabels": {"app": "bench"}},
    "start": {"delay": {"lognormal": {"p50": "20s", "p99": "1m"}}},
    "run": {"duration": {"lognormal": {"p50": "30s", "p99": "90s"}}},
    "failures": [
        {"type": "Error", "probability": "0.05", "after": {"uniform": {"min": "5s", "max": "20s"}}},
        {"type": "ImagePullBackOff", "probability": "0.02"},
    ],
}
SHARES: Final = (0.1, 0.5, 0.9, 0.95)
ENDS: Final = ("Succeeded", "Failed", "ImagePullBackOff")
_HALF_A_SECOND: Final = 500
_NODES: Final = 4
_AT_ONCE: Final = 8
_SLOWEST_SECONDS: Final = 600.0

Life = list[tuple[int, str]]
"""States, and the milliseconds after which each came."""


class Lives(Events):
    """The life of each pod, by its index."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: dict[int, Life] = {}
        self.last: Counter[str] = Counter()
        self._since = time.time() - time.monotonic()

    def anew(self) -> Self:
        """What was seen stays so: only what has happened meanwhile comes late."""
        return self

    def forget(self) -> None:
        self.lives, self.last = {}, Counter()

    def take(self, body: dict[str, Any], *, deleted: bool, now: float) -> None:
        metadata = body["metadata"]
        if deleted:
            return
        life, state = (
            self.lives.setdefault(int(metadata["labels"][INDEX_LABEL]), []),
            state_of(body),
        )
        if state and (not life or life[-1][1] != state):
            if life:
                self.last[life[-1][1]] -= 1
            self.last[state] += 1
            began = parse_time(metadata["creationTimestamp"])
            life.append((round((now + self._since) * 1_000) - began - _HALF_A_SECOND, state))

    def ended(self, *states: str) -> int:
        return sum(self.last[state] for state in states)

    def __str__(self) -> str:
        states = ", ".join(f"{count:,} {state}" for state, count in self.last.items())
        return f"{len(self.lives):,} are there: {states}"


def run(context: Context) -> None:
    seeds = {OWN: "", "seed a": "a", "seed a, again": "a", "seed b": "b"}
    turns = list(seeds)[: 1 + context.options.rounds]
    progress = context.progress(len(turns))
    with context.cluster(stages=True, extra_args=FEW_HEARTBEATS) as bench:
        bench.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": _nodes()})
        pods = Observer(bench.api, path=PODS, view=Lives())
        first: dict[int, Life] = {}
        try:
            pods.wait_synced()
            for who in turns:
                progress.step(f"{context.options.life_pods:,} pods by {who}")
                with _staged(bench, seeds[who]):
                    found = _turn(context, bench, progress, pods, who, seed=seeds[who])
                if first:
                    _compare(context, who, found, first, same=seeds[who] == "a")
                first = first or found
                _clear(bench, progress)
        finally:
            pods.close()
    progress.end()


def profile_of(seed: str) -> Profile:
    spec = KwokPodProfileSpec.model_validate({**SPEC, "seed": seed})
    return Profile.of("bench", spec, namespaces=None)


@contextmanager
def _staged(bench: BenchCluster, seed: str) -> Iterator[None]:
    """With the Stages of the profile, unless there is no seed."""
    stages = compile_profile(profile_of(seed)).stages if seed else ()
    if stages:
        bench.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": list(stages)})
        time.sleep(5)  # kwok hears of Stages by a watch, and doesn't say so
    try:
        yield
    finally:
        for stage in stages:
            bench.kubectl("delete", "stage", stage["metadata"]["name"])


def _turn(
    context: Context,
    bench: BenchCluster,
    progress: Progress,
    pods: Observer[Lives],
    who: str,
    *,
    seed: str,
) -> dict[int, Life]:
    """Returns the lives of the pods, none by kwok's own Stages."""
    size, rate = context.options.life_pods, context.options.life_rate
    pods.sight.forget()
    pods.expect(lambda view: view.ended(*(ENDS if seed else ("Ready",))) == size)
    cpu, patches = bench.cpu(), _patches(bench)
    began = time.monotonic()
    _make(bench, size, rate=rate, run=who)
    made = time.monotonic() - began
    pods.wait(patience(size) + _SLOWEST_SECONDS, tick=lambda view: progress.tick(str(view)))
    used = bench.cpu()["kwok-controller"] - cpu["kwok-controller"]
    add, lives = _adder(context), {i: list(life) for i, life in pods.sight.lives.items()}
    add(who, "CPU of kwok a pod", used * 1_000 / size, unit="ms", reference=OWN)
    add(who, "PATCHes a pod", (_patches(bench) - patches) / size, reference=OWN)
    if made > 1.1 * size / rate:
        context.note(f"{who}: {size:,} pods were made in {made:.0f} s, to be {size / rate:.0f}")
    if not seed:
        firsts = [life[0][0] / 1_000 for life in lives.values()]
        for share in (0.5, 0.99):
            add(who, f"later than told: p{share * 100:.0f}", percentile(firsts, share), unit="s")
        return {}
    _note(context, who, lives, seed=seed)
    return lives


def _adder(context: Context) -> Callable[..., None]:
    def add(who: str, figure: str, value: float, *, unit: str = "", reference: str = "") -> None:
        n = context.options.life_pods
        context.add(who, figure, value, work="live", n=n, unit=unit, reference=reference)

    return add


def _note(context: Context, who: str, lives: dict[int, Life], *, seed: str) -> None:
    """Times and failures, beside those told of the same pods and those of the profile."""
    profile, add, size = profile_of(seed), _adder(context), len(lives)
    told = {index: told_of(profile, index) for index in lives}
    start, duration = profile.spec.start.delay, profile.spec.run.duration
    assert start is not None and duration is not None
    late = []
    for figure, delay, times in (("start", start, starts), ("run", duration, runs)):
        here, there = times(lives), times(told)
        for share in SHARES:
            name = f"{figure} p{share * 100:.0f}, seed {seed}"
            add(PROFILE, name, span(delay, share) / 1_000, unit="s")
            add(TOLD, name, percentile(there, share) / 1_000, unit="s", reference=PROFILE)
            add(who, name, percentile(here, share) / 1_000, unit="s", reference=PROFILE)
    for index, life in lives.items():
        late += [at - due for (at, _), (due, _) in zip(life, told[index], strict=False)]
    for share in (0.5, 0.99):
        add(who, f"later than told: p{share * 100:.0f}", percentile(late, share) / 1_000, unit="s")
    for end in ENDS[1:]:
        add(PROFILE, f"{end}, seed {seed}", _share_of(profile, end) * size)
        for each, found in ((TOLD, told), (who, lives)):
            count = sum(life[-1][1] == end for life in found.values())
            add(each, f"{end}, seed {seed}", count, reference=PROFILE)
    otherwise = sum(states(lives[index]) != states(told[index]) for index in lives)
    add(who, "lived otherwise than told", otherwise)


def _share_of(profile: Profile, end: str) -> float:
    types = {"Failed": "Error"}
    failure = next(f for f in profile.spec.failures if f.type == types.get(end, end))
    return float(failure.probability or 0)


def _compare(
    context: Context, who: str, lives: dict[int, Life], before: dict[int, Life], *, same: bool
) -> None:
    otherwise = sum(states(lives[i]) != states(before[i]) for i in lives)
    apart = sum(abs(lives[i][-1][0] - before[i][-1][0]) > 2_000 for i in lives)
    add = _adder(context)
    add(who, "lived otherwise than with seed a", otherwise)
    add(who, "ended 2 s earlier or later than with seed a", apart)
    if same and otherwise:
        context.note(f"failed: {who}: {otherwise} pods of the same seed lived otherwise")


def states(life: Life) -> list[str]:
    return [state for _, state in life]


def starts(lives: Mapping[int, Life]) -> list[int]:
    return [life[0][0] for life in lives.values() if life[0][1] == "Ready"]


def runs(lives: Mapping[int, Life]) -> list[int]:
    """Of those that weren't cut short."""
    return [life[-1][0] - life[0][0] for life in lives.values() if life[-1][1] == "Succeeded"]


def told_of(profile: Profile, index: int) -> Life:
    """As it is seen: a pod that is Ready at once is never seen running only."""
    steps = explain(profile, Pod.of(_pod(index, run="told"))).steps
    return [(step.after, step.state) for step in steps if step.state != "Running"]


def _pod(index: int, *, run: str) -> dict[str, Any]:
    suffix = run.replace(" ", "").replace(",", "").replace("'", "").lower()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"bench-{index}-{suffix}",
            "namespace": "default",
            "labels": {"app": "bench", JOB_LABEL: "bench", INDEX_LABEL: str(index)},
            "annotations": {FAILED_TRIES: "0"},
        },
        "spec": {
            "nodeName": f"bench-ab12-{index % _NODES:06}",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none"}],
        },
    }


def _nodes() -> list[dict[str, Any]]:
    resources = {"cpu": "1k", "memory": "1Ti", "pods": "100k"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"bench-ab12-{number:06}",
                "annotations": {KWOK_NODE_ANNOTATION: "fake"},
            },
            "status": {"capacity": resources, "allocatable": resources},
        }
        for number in range(_NODES)
    ]


def _make(bench: BenchCluster, size: int, *, rate: int, run: str) -> None:
    """One after the other at a steady rate, or as fast as the API server takes them."""
    began = time.monotonic()
    indexes = iter(range(size))

    def work() -> None:
        api = bench.api.another()
        for index in indexes:
            time.sleep(max(0.0, began + index / rate - time.monotonic()))
            api.request("POST", PODS, body=_pod(index, run=run))
        api.close()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(work) for _ in range(_AT_ONCE)]:
            done.result()


def _patches(bench: BenchCluster) -> float:
    return bench.requests(resource="pods", verb="PATCH")


def _clear(bench: BenchCluster, progress: Progress) -> None:
    """By the API server alone: kwok is given no time."""
    while bench.api.json(f"{PODS}?limit=1")["items"]:
        progress.tick("pods are removed")
        with suppress(ApiError):  # it doesn't get through them in a minute, and goes on
            bench.api.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
