"""Makes report.html interactive: adds scripts, and the data that they draw, to the page.

    Judged, PageScript --live_parts--> data blocks, uPlot, our script
    NodeLanes --lanes_data--> every k-th node and its pods, as many as fit

A browser runs only scripts whose hashes are in the page's policy. Data are in blocks that it
doesn't run. They contain no `<`, so that no name can end such a block. outputs.py reads the files.
"""

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.formats.svg import COLOURS
from kwok_operator.rehearsal.judge.lanes import NodeLane, NodeLanes, PodLane
from kwok_operator.rehearsal.report.pageparts import POLICY, subject_name

_IN_JSON: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_TENTH: Final = 10


@dataclass(frozen=True, slots=True)
class PageScript:
    """The texts of the files in the folder `live`."""

    library: str
    style: str
    licence: str
    own: str

    @property
    def scripts(self) -> tuple[str, str]:
        notice = " ".join(self.licence.split()).replace("*/", "")
        return f"/* uPlot. {notice} */{self.library}", self.own

    @property
    def policy(self) -> str:
        """The page's Content-Security-Policy: it allows these scripts and no others."""
        sums = (hashlib.sha256(each.encode()).digest() for each in self.scripts)
        allowed = (f"'sha256-{base64.b64encode(each).decode()}'" for each in sums)
        return f"{POLICY}; script-src {' '.join(allowed)}"

    def tags(self) -> str:
        return "".join(f"<script>{each}</script>" for each in self.scripts)


def data_block(name: str, value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for char, escaped in _IN_JSON.items():
        text = text.replace(char, escaped)
    return f'<script type="application/json" id="{name}">{text}</script>'


def lanes_data(lanes: NodeLanes, *, most: int) -> tuple[str, str]:
    """Returns a data block of at most `most` bytes, and a sentence on what is left out. Both are
    empty without nodes, or if nothing fits.

    If not all fit, all nodes are shown, but pods only on every second node, on every fourth, and so
    on; if that is still too large, only every second node is shown, every fourth, and so on.
    """
    for nodes_every, pods_every in _thinner(len(lanes.nodes)):
        nodes = lanes.nodes[::nodes_every]
        with_pods = {id(node) for node in nodes[::pods_every]}
        pods = [pod for pod in lanes.pods if id(pod.node) in with_pods]
        block = data_block("lanes", _packed(nodes, pods))
        if len(block) <= most:
            left_out = _left_out(lanes, len(nodes), len(pods), nodes_every * pods_every)
            return block, left_out
    return "", ""


def _thinner(nodes: int) -> list[tuple[int, int]]:
    powers = [2**n for n in range(max(nodes, 1).bit_length())] if nodes else []
    few = powers[:6]
    return [(1, each) for each in few] + [(each, few[-1]) for each in powers[1:]]


def _left_out(lanes: NodeLanes, nodes: int, pods: int, every: int) -> str:
    all_nodes = len(lanes.nodes) + lanes.more_nodes
    all_pods = len(lanes.pods) + lanes.more_pods
    parts = []
    if nodes < all_nodes:
        first = f" from the first {len(lanes.nodes):,}" if lanes.more_nodes else ""
        parts.append(f"{nodes:,} of {all_nodes:,} nodes are shown, evenly chosen{first}")
    if pods < all_pods:
        on = f", those on one node in {every:,}" if every > 1 else ""
        parts.append(f"{pods:,} of {all_pods:,} pods are shown{on}")
    return f"{'; '.join(parts)}: all of them would make this page too large." if parts else ""


def _packed(nodes: list[NodeLane], pods: list[PodLane]) -> str:
    """Returns the rows of nodes and pods as base64 of deflated JSON, which has them by columns.
    Times are in tenths of a second; None if a time is unknown, or hasn't come yet.
    """
    places = {id(node): place for place, node in enumerate(nodes)}
    groups = list(dict.fromkeys(node.group for node in nodes))
    workloads = list(dict.fromkeys(pod.workload for pod in pods))
    group_at = {name: place for place, name in enumerate(groups)}
    workload_at = {name: place for place, name in enumerate(workloads)}
    columns = {
        "groups": [subject_name(each) for each in groups],
        "workloads": [subject_name(each) for each in workloads],
        "nodes": {
            "name": [subject_name(node.name) for node in nodes],
            "group": [group_at[node.group] for node in nodes],
            "requested": [_tenths(node.requested) for node in nodes],
            "came": [_tenths(node.came) for node in nodes],
            "gone": [_tenths(node.gone) for node in nodes],
            "turns": [[_tenths(turn) for turn in node.turns] for node in nodes],
        },
        "pods": {
            "name": [subject_name(pod.name) for pod in pods],
            "workload": [workload_at[pod.workload] for pod in pods],
            "node": [places[id(pod.node)] for pod in pods],
            "created": [_tenths(pod.created) for pod in pods],
            "bound": [_tenths(pod.bound) for pod in pods],
            "running": [_tenths(pod.running) for pod in pods],
            "ended": [_tenths(pod.ended) for pod in pods],
        },
        "colours": COLOURS,
    }
    text = json.dumps(columns, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _tenths(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * _TENTH)
