"""A small cluster-autoscaler that decides the same over both protocols, and what it needs of each.

    pods, nodes, groups of a Protocol  --decide-->  sizes to grow to, empty nodes to delete

It does what the flags of the real one stand for in FLAGS: the expander least-waste, balancing, a
total of GPUs, nothing at all while a node lacks a CSINode, and minimums that are enforced. It
decides only when all that it asked for is there, so what it does hangs on no clock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol

from kwok_operator.constants import ALIKE_LABEL
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from tests.e2e.api import NODES, Api, path_of
from tests.e2e.autoscaler import Autoscaler, as_node
from tests.e2e.capi import CAPACITY, GROUP, Provider

GPU: Final = "nvidia.com/gpu"
MOST_GPUS: Final = {"t4": 2}
FLAGS: Final = (
    "--expander=least-waste",
    "--balance-similar-node-groups",
    "--gpu-total=t4:0:2",
    "--enable-csi-node-aware-scheduling",
    "--enforce-node-group-min-size",
)
_BOUNDS: Final = f"{GROUP}/cluster-api-autoscaler-node-group-"
_IGNORED: Final = frozenset({"kubernetes.io/hostname", "topology.kubernetes.io/zone"})
_PROXY: Final = Fraction(1, 10)
"""CPU that the provider `clusterapi` takes off for kube-proxy, while there is no node."""


@dataclass(frozen=True)
class Shape:
    """What a node of a group has, or would have."""

    labels: Mapping[str, str]
    taints: frozenset[str]
    amounts: Mapping[str, Fraction]

    def fits(self, pod: Any) -> bool:
        spec = pod["spec"]
        tolerated = {each["key"] for each in spec.get("tolerations") or ()}
        wanted = spec.get("nodeSelector") or {}
        return (
            self.taints <= tolerated
            and wanted.items() <= self.labels.items()
            and all(_holds(self.labels, each) for each in _expressions(spec))
        )

    @property
    def alike(self) -> object:
        """Equal for groups that are balanced."""
        if ALIKE_LABEL in self.labels:
            return self.labels[ALIKE_LABEL]
        labels = {key: text for key, text in self.labels.items() if key not in _IGNORED}
        return str(sorted(labels.items())), str(sorted(self.amounts.items()))


@dataclass(frozen=True)
class NodeGroup:
    least: int
    most: int
    target: int
    shape: Shape


@dataclass(frozen=True)
class Observed:
    """All that a loop looks at; `group_of` and `used` are by the names of nodes."""

    groups: Mapping[str, NodeGroup]
    nodes: Mapping[str, Any]
    group_of: Mapping[str, str]
    waiting: Sequence[Any]
    used: frozenset[str]


class Side(Protocol):
    """One protocol."""

    @property
    def gpu_label(self) -> str: ...
    def begin(self) -> None: ...
    def groups(self, nodes: Mapping[str, Sequence[Any]]) -> dict[str, NodeGroup]: ...
    def group_of(self, node: Any) -> str: ...
    def increase(self, group: str, delta: int) -> None: ...
    def delete(self, group: str, nodes: Sequence[Any]) -> None: ...


class ByMachines:
    """As the provider `clusterapi`; groups are called as their MachineDeployments."""

    def __init__(self, api: Api) -> None:
        self._provider = Provider(api)

    @property
    def gpu_label(self) -> str:
        return "cluster-api/accelerator"

    def begin(self) -> None:
        """It keeps nothing in mind."""

    def groups(self, nodes: Mapping[str, Sequence[Any]]) -> dict[str, NodeGroup]:
        found = {}
        for body in self._provider.objects("machinedeployments"):
            name, annotations = body["metadata"]["name"], body["metadata"]["annotations"]
            some = nodes.get(name)
            shape = _shape_of(some[0]) if some else _from_annotations(annotations)
            least, most = (int(annotations[f"{_BOUNDS}{which}-size"]) for which in ("min", "max"))
            found[name] = NodeGroup(least, most, body["spec"]["replicas"], shape)
        return found

    def group_of(self, node: Any) -> str:
        return self._provider.group_of(node["metadata"]["name"]).rpartition("/")[2]

    def increase(self, group: str, delta: int) -> None:
        self._provider.set_size(group, self._provider.size(group) + delta)

    def delete(self, group: str, nodes: Sequence[Any]) -> None:
        self._provider.delete_nodes(group, [node["metadata"]["name"] for node in nodes])


class ByShim:
    """As the provider `externalgrpc`; groups are called as their MachineDeployments."""

    def __init__(self, client: Autoscaler) -> None:
        self._client = client

    @property
    def gpu_label(self) -> str:
        return str(self._client.call("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse).label)

    def begin(self) -> None:
        self._client.refresh()

    def groups(self, nodes: Mapping[str, Sequence[Any]]) -> dict[str, NodeGroup]:
        found = {}
        for id_, bounds in self._client.groups().items():
            name, some = _own(id_), nodes.get(_own(id_))
            template = k8s.Node.FromString(self._client.template(id_))
            shape = _shape_of(some[0]) if some else _from_message(template)
            found[name] = NodeGroup(*bounds, self._client.target(id_), shape)
        return found

    def group_of(self, node: Any) -> str:
        return _own(self._client.group_of(as_node(node)))

    def increase(self, group: str, delta: int) -> None:
        self._client.increase(f"default.{group}", delta)

    def delete(self, group: str, nodes: Sequence[Any]) -> None:
        self._client.delete(f"default.{group}", *map(as_node, nodes))


def loop(api: Api, side: Side) -> bool:
    """Once; whether there was anything to do. Raises AssertionError while what was asked for
    before isn't there, or stands still.
    """
    side.begin()
    seen = observe(api, side)
    lacking = seen.nodes.keys() - set(api.names("/apis/storage.k8s.io/v1/csinodes"))
    assert not lacking, f"nodes without a CSINode: {lacking}"
    sizes = grown(seen, gpu_label=side.gpu_label)
    for name, size in sizes.items():
        side.increase(name, size - seen.groups[name].target)
    if sizes:
        return True
    spare = _empty(seen)
    for name, names in spare.items():
        side.delete(name, [seen.nodes[each] for each in names])
    return bool(spare)


def observe(api: Api, side: Side) -> Observed:
    """Raises AssertionError where the world is on its way."""
    nodes = {node["metadata"]["name"]: node for node in api.list(NODES)[0]}
    pods = api.list(path_of("pods"))[0]
    group_of = {name: side.group_of(node) for name, node in nodes.items()}
    by_group: dict[str, list[Any]] = {}
    for name, node in sorted(nodes.items()):
        by_group.setdefault(group_of[name], []).append(node)
    groups = side.groups(by_group)
    for name, group in groups.items():
        usable = [node for node in by_group.get(name, ()) if _is_usable(node)]
        assert len(usable) == len(by_group.get(name, ())) == group.target, f"{name}: {group.target}"
    free = {name: dict(_shape_of(node).amounts) for name, node in nodes.items()}
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    for pod in placed:
        room = free[pod["spec"]["nodeName"]]
        for resource, amount in _wanted(pod).items():
            room[resource] -= amount
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    for pod in waiting:
        for name, room in free.items():
            has_room = _has(room, _wanted(pod)) and _shape_of(nodes[name]).fits(pod)
            assert not has_room, f"{pod['metadata']['name']} is about to be placed"
    used = frozenset(pod["spec"]["nodeName"] for pod in placed)
    return Observed(groups, nodes, group_of, waiting, used)


def grown(seen: Observed, *, gpu_label: str) -> dict[str, int]:
    """The sizes of the groups that are to grow: one kind of pods at a time."""
    short = {name: g.least for name, g in seen.groups.items() if g.target < g.least}
    if short:
        return short
    kinds: dict[str, list[Any]] = {}
    for pod in seen.waiting:
        kinds.setdefault(pod["metadata"]["labels"]["kind"], []).append(pod)
    for _, pods in sorted(kinds.items()):
        wanted = _wanted(pods[0])
        options = {}
        for name, group in seen.groups.items():
            each = _most_on(group.shape, wanted)
            if each and group.shape.fits(pods[0]):
                needed = -(-len(pods) // each)
                room = group.shape.amounts["cpu"]
                waste = 1 - len(pods) * wanted["cpu"] / (needed * room)
                options[name] = (waste, name, needed)
        if not options:
            continue
        _, best, needed = min(options.values())
        alike = seen.groups[best].shape.alike
        some = [name for name in options if seen.groups[name].shape.alike == alike]
        sizes = _balanced({n: seen.groups[n] for n in some}, needed, seen, gpu_label=gpu_label)
        if sizes:
            return sizes
    return {}


def _balanced(
    some: Mapping[str, NodeGroup], needed: int, seen: Observed, *, gpu_label: str
) -> dict[str, int]:
    sizes = {name: group.target for name, group in some.items()}
    gpus = Counter[str]()
    for group in seen.groups.values():
        gpus[group.shape.labels.get(gpu_label, "")] += int(
            group.target * group.shape.amounts.get(GPU, 0)
        )
    for _ in range(needed):
        name = min(sizes, key=lambda each: (sizes[each], each))
        kind = some[name].shape.labels.get(gpu_label, "")
        more = int(some[name].shape.amounts.get(GPU, 0)) if kind else 0
        if sizes[name] >= some[name].most or gpus[kind] + more > MOST_GPUS.get(kind, 10**6):
            break
        sizes[name] += 1
        gpus[kind] += more
    return {name: size for name, size in sizes.items() if size > some[name].target}


def _empty(seen: Observed) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(seen.nodes.keys() - seen.used):
        group = seen.group_of[name]
        spare = seen.groups[group].target - seen.groups[group].least
        if len(found.get(group, ())) < spare:
            found.setdefault(group, []).append(name)
    return found


def _most_on(shape: Shape, wanted: Mapping[str, Fraction]) -> int:
    return min(int(shape.amounts.get(name, 0) // amount) for name, amount in wanted.items())


def _has(room: Mapping[str, Fraction], wanted: Mapping[str, Fraction]) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in wanted.items())


def _wanted(pod: Any) -> dict[str, Fraction]:
    (container,) = pod["spec"]["containers"]
    requests = container["resources"]["requests"].items()
    return {name: parse_quantity(text) for name, text in requests} | {"pods": Fraction(1)}


def _is_usable(node: Any) -> bool:
    ready = [c["status"] for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
    keys = {taint["key"] for taint in node["spec"].get("taints") or ()}
    return ready == ["True"] and "node.kubernetes.io/not-ready" not in keys


def _shape_of(node: Any) -> Shape:
    amounts = {k: parse_quantity(v) for k, v in node["status"]["allocatable"].items()}
    taints = frozenset(taint["key"] for taint in node["spec"].get("taints") or ())
    return Shape(node["metadata"]["labels"], taints, amounts)


def _from_message(node: k8s.Node) -> Shape:
    amounts = {k: parse_quantity(v.string) for k, v in node.status.allocatable.items()}
    taints = frozenset(taint.key for taint in node.spec.taints)
    return Shape(dict(node.metadata.labels), taints, amounts)


def _from_annotations(annotations: Mapping[str, str]) -> Shape:
    told = {k.removeprefix(CAPACITY): v for k, v in annotations.items() if k.startswith(CAPACITY)}
    amounts = {name: parse_quantity(told[name]) for name in ("cpu", "memory")}
    amounts["cpu"] -= _PROXY
    amounts["pods"] = Fraction(told.get("maxPods", "110"))
    if "gpu-count" in told:
        amounts[told["gpu-type"]] = Fraction(told["gpu-count"])
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    labels |= dict(piece.split("=", 1) for piece in told.get("labels", "").split(",") if piece)
    taints = frozenset(piece.split("=")[0] for piece in told.get("taints", "").split(",") if piece)
    return Shape(labels, taints, amounts)


def _expressions(spec: Any) -> Iterable[Any]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        yield from term["matchExpressions"]


def _holds(labels: Mapping[str, str], expression: Any) -> bool:
    there = expression["key"] in labels
    return there if expression["operator"] == "Exists" else not there


def _own(group: str) -> str:
    return group.removeprefix("default.")
