"""Pictures of pods' lives for docs/pods.md, made from the samples.

python -m hack.podpictures            write docs/img/pods-*.svg
python -m hack.podpictures --check    exit with 1 if one is stale, missing or left over

sample --profile, pods--> explain --> a bar for each pod; starts of 1,000 pods beside the profile
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack.frame import RIGHT, THICK, TOP, WIDTH, bar, framed
from hack.generated import pictures
from kwok_operator.cloud.draws import SECOND, span
from kwok_operator.constants import PROFILE_KIND
from kwok_operator.formats.svg import GREY, LinearAxis, smooth_path
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.explain import explain
from kwok_operator.podprofiles.selectors import Pod

ROOT: Final = Path(__file__).resolve().parents[1]
DIRECTORY: Final = ROOT / "docs" / "img"
SAMPLES: Final = ROOT / "deploy" / "samples" / "pods"
_PATTERN: Final = "pods-*.svg"
COLOURS: Final[Mapping[str, str]] = {
    "Pending": "#60a5fa",
    "Running": "#eab308",
    "Ready": "#22a06b",
    "Error": "#ef4444",
    "CrashLoopBackOff": "#f97316",
    "ImagePullBackOff": "#a855f7",
}
_LEFT, _ROW = 100, 14
_PLOT: Final = 200
_MANY: Final = 1_000


def generate() -> dict[str, bytes]:
    """Name and content of each file."""
    made = {
        "pods-slow-images.svg": bars("20 pods whose images are slow", "slow-images", end=90),
        "pods-crash-loops.svg": bars("10 pods, of which 3 crash", "crash-loops", end=250),
        "pods-starts.svg": starts("How long 1,000 pods take to run", "slow-images", end=60),
    }
    return {name: text.encode() for name, text in made.items()}


def bars(title: str, sample: str, *, end: int) -> str:
    """A bar for each pod of a sample's StatefulSet, for so many seconds."""
    profile, workload = _read(sample)
    pods = list(_pods(workload, workload["spec"]["replicas"]))
    bottom = TOP + len(pods) * _ROW + 4
    axis = LinearAxis.up_to(end, start=_LEFT, end=WIDTH - RIGHT, ticks=10)
    parts, seen = [], dict[str, None]()
    for place, pod in enumerate(pods):
        y = TOP + place * _ROW
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 10}" text-anchor="end">{pod.name}</text>')
        for state, begin, until in _spans(profile, pod, end=end):
            seen[state] = None
            parts.append(bar(axis, begin, until, y + 2, _ROW - 4, COLOURS[state]))
    legend = {state: (colour, THICK) for state, colour in COLOURS.items() if state in seen}
    return framed(title, parts, axis, bottom, legend=legend)


def starts(title: str, sample: str, *, end: int) -> str:
    """The share of pods that run after so many seconds, beside the share that should."""
    profile, workload = _read(sample)
    told = sorted(
        next(step.after for step in explain(profile, pod).steps if step.state == "Running")
        for pod in _pods(workload, _MANY)
        if explain(profile, pod).steps[0].state == "Running"
    )
    delay = profile.spec.start.delay
    assert delay is not None
    bottom = TOP + _PLOT
    axis = LinearAxis.up_to(end, start=_LEFT, end=WIDTH - RIGHT, ticks=10)
    share = LinearAxis(1.0, 0.25, bottom, TOP)
    shown = [(at, n) for n, at in enumerate(told, 1) if at <= end * SECOND]
    asked = [(span(delay, n / 200), n / 200) for n in range(1, 200)]
    lines = (
        (COLOURS["Ready"], 3, [(axis.at(a / SECOND), share.at(n / len(told))) for a, n in shown]),
        (GREY, 1, [(axis.at(a / SECOND), share.at(p)) for a, p in asked if a <= end * SECOND]),
    )
    parts = [
        f'<path d="{smooth_path(points)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        for colour, width, points in lines
    ]
    for tick in share.ticks():
        y = share.at(tick)
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{tick:.0%}</text>')
    parts.append(f'<text x="{_LEFT + 8}" y="{TOP + 10}">thin: the profile, thick: pods</text>')
    return framed(title, parts, axis, bottom, legend={})


def _read(sample: str) -> tuple[Profile, dict[str, Any]]:
    documents = list(yaml.safe_load_all((SAMPLES / f"{sample}.yaml").read_text(encoding="utf-8")))
    (profile,) = (each for each in documents if each["kind"] == PROFILE_KIND)
    (workload,) = (each for each in documents if each["kind"] == "StatefulSet")
    spec = KwokPodProfileSpec.model_validate(profile["spec"])
    return Profile.of(profile["metadata"]["name"], spec, namespaces=None), workload


def _pods(workload: Mapping[str, Any], count: int) -> Iterator[Pod]:
    template, name = workload["spec"]["template"], workload["metadata"]["name"]
    for ordinal in range(count):
        metadata = {**template["metadata"], "name": f"{name}-{ordinal}"}
        index = {"apps.kubernetes.io/pod-index": str(ordinal)}
        metadata["labels"] = {**metadata.get("labels", {}), **index}
        yield Pod.of({"metadata": metadata, "spec": template["spec"]})


def _spans(profile: Profile, pod: Pod, *, end: int) -> Iterator[tuple[str, float, float]]:
    steps = [("Pending", 0.0), *((s.state, s.after / SECOND) for s in explain(profile, pod).steps)]
    for (state, begin), (_, until) in zip(steps, [*steps[1:], ("", float(end))], strict=True):
        if begin < min(until, end):
            yield state, begin, min(until, end)


def main(arguments: Sequence[str] | None = None, *, directory: Path = DIRECTORY) -> int:
    return pictures(
        arguments,
        program="hack.podpictures",
        page="docs/pods.md",
        generate=generate,
        pattern=_PATTERN,
        directory=directory,
    )


if __name__ == "__main__":
    sys.exit(main())
