"""Makes a report's plots over time from the samples of a run's story.

`plots.py` draws them as pictures; the page's script draws the same ones again.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kwok_operator.rehearsal.judge.story import NodeCounts, Sample
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.report.pageparts import subject
from kwok_operator.rehearsal.report.plots import SHADES, PlotLine, TimePlot

_MOST_GROUPS: Final = 6
_MOST_PLACES: Final = 500
"""The most triangles in a row: more than a screen can show side by side."""
_NOTHING: Final = NodeCounts()
_LARGEST: Final = {
    "largestGang.cluster": "in the cluster",
    "largestGang.block": "in one block",
    "largestGang.rack": "in one rack",
}


def time_plots(judged: Judged) -> Iterator[TimePlot]:
    """Yields the plots over time."""
    samples = judged.story.samples
    marks = [mark.t for mark in judged.story.marks]
    apart = judged.t / _MOST_PLACES
    requested_at = {
        way: thinned(times, apart=apart) for way, times in judged.story.requested_at.items()
    }

    def plot(title: str, *lines: PlotLine, **more: bool) -> TimePlot:
        return TimePlot(title, lines, marks=marks, requested_at=requested_at, **more)

    def line(name: str, values: Iterable[float | None], colour: int, **more: Any) -> PlotLine:
        steps = zip((sample.t for sample in samples), values, strict=True)
        return PlotLine(name, [*steps], colour, **more)

    names = {name for sample in samples for name in sample.nodes} - {""}
    by = "NodePool" if names and not names & judged.groups.keys() else "group"
    yield plot(f"Nodes by {by} and state", *_nodes_of_groups(samples), stacked=True, counts=True)
    running = line("running", (sample.running for sample in samples), 2)
    pending = line("pending", (sample.pending for sample in samples), 1)
    orphaned = line("on nodes that are gone", (sample.orphaned for sample in samples), 3)
    some = [orphaned] if any(sample.orphaned for sample in samples) else []
    yield plot("Pods", running, pending, *some, counts=True)
    memory = line("memory", (sample.memory for sample in samples), 3, wide=True)
    cpu = line("CPU", (sample.cpu for sample in samples), 0)
    gpu = line("GPU", (sample.gpu for sample in samples), 2)
    gpus = [gpu] if any(sample.gpu is not None for sample in samples) else []
    yield plot("Utilisation: requests over allocatable", memory, cpu, *gpus, percent=True)
    if judged.figures["racks.total"] is not None:
        gangs = (
            line(words, (sample.of_racks.get(name) for sample in samples), colour)
            for colour, (name, words) in enumerate(_LARGEST.items())
            if judged.figures[name] is not None
        )
        yield plot("Largest gang that would fit, in pods", *gangs, counts=True)
        free = line("free", (sample.of_racks.get("racks.free") for sample in samples), 2)
        every = line("with nodes", (s.of_racks.get("racks.total") for s in samples), 0)
        yield plot("Racks", every, free, counts=True)
    if judged.figures["cost"] is not None:
        unit = judged.currency
        lacks = " (incomplete)" if "cost" in judged.incomplete else ""
        money = f" in {unit}{lacks}" if unit else lacks
        cost = (sample.cost for sample in samples)
        yield plot(f"Cost{money}", line("so far", cost, 4, smooth=True))
        of = "of the nodes with a price" if lacks else "of all nodes"
        price = line(of, (sample.price for sample in samples), 4)
        yield plot(f"Price per hour{money}", price)


def thinned(times: Iterable[float], *, apart: float) -> list[float]:
    """Returns the times in order, without those less than `apart` after the one before."""
    kept: list[float] = []
    for t in sorted(times):
        if not kept or t - kept[-1] >= apart:
            kept.append(t)
    return kept


def _nodes_of_groups(samples: Sequence[Sample]) -> list[PlotLine]:
    """Returns the plot lines of the nodes and instances in each state, for each of the largest
    groups and for all smaller ones together. A last line has the sum of all targets.
    """
    most: dict[str, int] = {}
    for sample in samples:
        for group, counts in sample.nodes.items():
            most[group] = max(most.get(group, 0), counts.total, counts.target or 0)
    drawn = sorted((g for g in most if g), key=lambda g: (-most[g], g))[:_MOST_GROUPS]
    rest = [group for group in most if group not in drawn]
    lines = []
    for colour, group in enumerate([*drawn, ""] if rest else drawn):
        members = [group] if group else rest
        name = group or ("all others" if drawn else "nodes")
        of_each = [[sample.nodes.get(member, _NOTHING) for member in members] for sample in samples]
        states = {
            "": [sum(each.ready for each in some) for some in of_each],
            "faint": [sum(each.total - each.ready for each in some) for some in of_each],
            "fainter": [sum(each.creating for each in some) for some in of_each],
            "failing": [sum(each.failed for each in some) for some in of_each],
        }
        for shade, values in states.items():
            if shade and not any(values):
                continue
            words = (
                f"{name}: {SHADES[shade].partition(': ')[2] or SHADES[shade]}" if shade else name
            )
            steps = [(sample.t, float(n)) for sample, n in zip(samples, values, strict=True)]
            of = subject("group", group) if group else ""
            lines.append(PlotLine(words, steps, colour, shade=shade, of=of))
    if any(each.target for sample in samples for each in sample.nodes.values()):
        wanted = [
            sum(
                each.total if each.target is None else each.target for each in sample.nodes.values()
            )
            for sample in samples
        ]
        steps = [(sample.t, float(n)) for sample, n in zip(samples, wanted, strict=True)]
        lines.append(PlotLine("target", steps, over=True))
    return lines
