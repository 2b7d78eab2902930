"""Groups with a simulated cloud as the e2e tests handle them: what was told, and what should be.

    rows_of, states_of   what status says of instances without a Node, by serial
    life_of, born_after  what was decided about a Node, as it stands on it
    courses, seeded      what a spec does to an instance, worked out here from the spec alone
    chronicled           every version of a few groups and of their nodes, in order
    staged_cluster       a cluster in which nodes can be held NotReady for as long as one likes

A chronicle is told by watches, so nothing that was there for a moment is missed. What is drawn is
the same in every run, so a test says exactly what it expects: of which instance, and when.

Nothing here asserts what a cloud should do: that is for the tests to say.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hack.cloudpictures.course import Course
from kwok_operator.cloud.annotations import load_life
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.arrival import phases
from kwok_operator.cloud.life import Life
from kwok_operator.cloud.terms import History
from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    LIFE_ANNOTATION,
    NODE_GROUP_LABEL,
    POOL_KIND,
    POOL_SHORT_NAME,
    REQUESTED_AT_ANNOTATION,
)
from kwok_operator.controlplane import Cluster
from kwok_operator.formats.times import parse_time
from kwok_operator.nodegroups.serials import Ranges
from tests.e2e.api import GROUPS, NODES, POOLS, Api
from tests.e2e.deploying import ROOT
from tests.e2e.groups import is_ready, serial_of
from tests.e2e.kubectl import Kubectl
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.watching import Watch, each

HOLD_STAGE_FILE = ROOT / "deploy" / "components" / "hold-stage" / "stage.yaml"
AGENT = {"key": "example.com/agent", "effect": "NoSchedule"}
MARKED = {"startupTaints": [{**AGENT, "removedAfter": {"fixed": "1s"}}]}
"""With it, each Node carries when it was born: one of a perfect cloud needs no record."""


def rows_of(status: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The row of `status.cloud.instances` that each serial is in."""
    rows = (status.get("cloud") or {}).get("instances") or []
    return {serial: row for row in rows for serial in Ranges(row["serials"])}


def states_of(status: Mapping[str, Any]) -> dict[int, str]:
    """The state of each instance that has no Node, by serial."""
    return {serial: row["state"] for serial, row in rows_of(status).items()}


def condition_of(about: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A condition in the status of a group, a pool or a node; {} where there is none."""
    return next((c for c in about.get("conditions") or [] if c["type"] == kind), {})


def life_of(node: Mapping[str, Any]) -> Life:
    """What was decided about a Node. Raises LookupError where it carries no record."""
    return load_life(node["metadata"]["annotations"][LIFE_ANNOTATION])


def born_after(node: Mapping[str, Any]) -> int:
    """Milliseconds from the request of an instance to the birth of its Node."""
    asked_at = parse_time(node["metadata"]["annotations"][REQUESTED_AT_ANNOTATION])
    return life_of(node).born - asked_at


def serial(node: Mapping[str, Any]) -> int:
    return serial_of(node["metadata"]["name"])


def taint_keys(node: Mapping[str, Any]) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", [])}


def arrival(course: Course) -> int | None:
    """Milliseconds from the request to the birth of the Node; None where there never is one."""
    life = course.life()
    return None if life is None else life.born - course.requested_at


def states_before(course: Course) -> list[str]:
    """The states that an instance goes through until its Node is to be created."""
    history = History.always(course.cloud)
    found = phases(history, course.who, requested_at=course.requested_at)
    return [phase.state.value for phase in found]


def courses(cloud: Mapping[str, Any], *, group: str, size: int) -> list[Course]:
    """Those of the first instances of a group that are asked for together."""
    spec = Cloud.model_validate(cloud)
    return [Course.of(spec, group=group, serial=s, requested_at=0) for s in range(size)]


def seeded(
    cloud: Mapping[str, Any],
    *,
    group: str,
    size: int,
    wish: Callable[[Sequence[int | None]], bool],
) -> dict[str, Any]:
    """The cloud with a seed that makes the arrivals of the first instances as is wished."""
    for number in range(10_000):
        tried = {**cloud, "seed": f"run-{number}"}
        if wish([arrival(course) for course in courses(tried, group=group, size=size)]):
            return tried
    raise AssertionError("no seed does what is wished")


def apply_pool(kubectl: Kubectl, name: str, **spec: Any) -> None:
    manifest = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": POOL_KIND,
        "metadata": {"name": name},
        "spec": spec,
    }
    kubectl.apply(manifest)


def pool_status(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """The status; empty as long as there is none."""
    status: dict[str, Any] = kubectl.json("get", POOL_SHORT_NAME, name).get("status", {})
    return status


@contextmanager
def pools(kubectl: Kubectl, *names: str) -> Iterator[None]:
    """Pools of these names may be made; they are removed in the end."""
    try:
        yield
    finally:
        for name in names:
            kubectl.api.delete(f"{POOLS}/{name}")


class Version(NamedTuple):
    """A Node as it was told `at` a time in milliseconds."""

    at: int
    node: dict[str, Any]

    @property
    def ready(self) -> bool:
        return is_ready(self.node)


class Chronicle:
    """`nodes` has all versions of each Node by name, and `born` the names in order of appearance;
    `gone_at` is when a Node went, in milliseconds, and `statuses` has all versions of the status of
    each group. `counts` are the numbers of nodes by group, after each event.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, list[Version]] = {}
        self.gone_at: dict[str, int] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        self.counts: list[Counter[str]] = [Counter()]

    @property
    def born(self) -> list[str]:
        return list(self.nodes)

    @property
    def most(self) -> int:
        """The most nodes that there were at a time, of all groups together."""
        return max(counts.total() for counts in self.counts)

    def uids(self, name: str) -> set[str]:
        return {version.node["metadata"]["uid"] for version in self.nodes[name]}

    def here(self) -> list[dict[str, Any]]:
        """The nodes that are there now, as they are now."""
        found = [(name, versions[-1].node) for name, versions in list(self.nodes.items())]
        return [node for name, node in found if name not in self.gone_at]

    def first(self, name: str, fits: Callable[[Version], bool]) -> Version | None:
        """The first version of a Node that fits."""
        return next(filter(fits, list(self.nodes.get(name, ()))), None)

    def told(self, group: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """The first status of a group that fits."""
        return next(filter(fits, list(self.statuses.get(group, ()))), None)

    def walk(self, group: str, serial: int) -> list[str]:
        """The states that status told of an instance before it had a Node, one after another."""
        found: list[str] = []
        for status in list(self.statuses.get(group, ())):
            state = states_of(status).get(serial)
            if state and [state] != found[-1:]:
                found.append(state)
        return found

    def counted(self) -> None:
        labels = (node["metadata"]["labels"][NODE_GROUP_LABEL] for node in self.here())
        self.counts.append(Counter(labels))


@contextmanager
def chronicled(cluster: Cluster, *groups: str) -> Iterator[Chronicle]:
    """Watches groups and their nodes, from before the block on."""
    chronicle, api = Chronicle(), Api(cluster.kubeconfig)
    selector = f"{NODE_GROUP_LABEL} in ({','.join(groups)})"

    def node(event: str, item: dict[str, Any]) -> None:
        now, name = int(time.time() * 1_000), item["metadata"]["name"]
        if event == "DELETED":
            chronicle.gone_at[name] = now
        else:
            chronicle.nodes.setdefault(name, []).append(Version(now, item))
        chronicle.counted()

    def group(event: str, item: dict[str, Any]) -> None:
        name = item["metadata"]["name"]
        if name in groups and "status" in item and event != "DELETED":
            chronicle.statuses.setdefault(name, []).append(item["status"])

    with (
        Watch(api, NODES, listed=each(node), seen=node, selector=selector),
        Watch(api, GROUPS, listed=each(group), seen=group),
    ):
        yield chronicle


@contextmanager
def staged_cluster(
    name: str,
    *,
    directory: Path,
    manage_all_nodes: bool = False,
    extra_args: Sequence[str] = (),
) -> Iterator[OwnCluster]:
    """A cluster whose kwok takes its Stages from the API: its own, and the one that holds nodes."""
    with own_cluster(
        name,
        directory=directory,
        manage_all_nodes=manage_all_nodes,
        stages=True,
        extra_args=extra_args,
    ) as own:
        own.kubectl("apply", f"--filename={HOLD_STAGE_FILE}")
        yield own
