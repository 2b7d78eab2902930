"""A program in place of Karpenter's kwok provider: its environment, its objects, its log, a loop.

    KUBECONFIG=FILE INSTANCE_TYPES_FILE_PATH=FILE HEALTH_PROBE_PORT=N \
        python -m tests.e2e.karpenter_program

    pending pod --> NodeClaim --Launched--> Node, tainted --Registered--> Ready --Initialized-->
    empty, drifted or deleted --> Node drained --> both gone

A pending pod without room in what is there or under way gets a NodeClaim of the cheapest offering
that a NodePool allows. Finalizers, labels, taints, conditions and owners are those that Karpenter
writes, in its order. It knows Empty and Drifted, and nothing of Underutilized, budgets, affinities
between pods or volumes: a scenario about these needs the real one.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from tests.e2e import karpenterobjects as objects
from tests.e2e.api import NODES, Api, ApiError, Refused, path_of
from tests.e2e.karpenterobjects import DISRUPTED, HASH, POOL, Offering

POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
_PERIOD_SECONDS: Final = 0.2


def log(level: str, message: str, **fields: Any) -> None:
    """A line as Karpenter logs it; values with a name are objects."""
    named = {
        key: {"name": value["metadata"]["name"]} if isinstance(value, dict) else value
        for key, value in fields.items()
    }
    line = {"level": level, "time": objects.now(), "logger": "controller", "message": message}
    print(json.dumps(line | named), flush=True)


@dataclass
class World:
    """All that is in the cluster, as one loop has read it."""

    pools: list[Any]
    claims: list[Any]
    nodes: dict[str, Any]
    """By the UID of their NodeClaim and by their providerID."""
    pods: list[Any]
    delays: dict[str, float]
    """How long nodes of a class take to appear, by its name."""

    def node_of(self, claim: Any) -> Any | None:
        by_id = self.nodes.get(claim["status"].get("providerID", ""))
        return self.nodes.get(claim["metadata"]["uid"], by_id)

    def pods_on(self, node: Any | None) -> list[Any]:
        name = node["metadata"]["name"] if node else None
        return [each for each in self.pods if name and each["spec"].get("nodeName") == name]


def read(api: Api) -> World:
    nodes = {}
    for node in api.list(NODES)[0]:
        owners = node["metadata"].get("ownerReferences") or ()
        nodes[node["spec"].get("providerID", "")] = node
        nodes |= {each["uid"]: node for each in owners if each["kind"] == "NodeClaim"}
    pods = api.list(path_of("pods", namespace=None))[0]
    return World(
        pools=sorted(api.list(POOLS)[0], key=lambda each: -(each["spec"].get("weight") or 0)),
        claims=[{"status": {}, **each} for each in api.list(CLAIMS)[0]],
        nodes=nodes,
        pods=[each for each in pods if each["status"].get("phase") in ("Pending", "Running")],
        delays={
            each["metadata"]["name"]: objects.seconds(
                each.get("spec", {}).get("nodeRegistrationDelay", "")
            )
            for each in api.list(CLASSES)[0]
        },
    )


@dataclass
class Karpenter:
    api: Api
    offered: list[Offering]
    _due: dict[str, float] = field(default_factory=dict)
    """When the Nodes of launched NodeClaims come, by UID."""
    _quiet: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    """Since when a node has had these pods, by the UID of its NodeClaim."""

    def loop(self) -> None:
        world = read(self.api)
        for pool in world.pools:
            if not pool.get("status", {}).get("conditions"):
                self._report(POOLS, pool, {"conditions": objects.pool_conditions()})
        for claim in world.claims:
            if "deletionTimestamp" in claim["metadata"]:
                self._end(claim, world)
            else:
                self._bring_up(claim, world)
                self._disrupt(claim, world)
        self._provision(world)

    def _provision(self, world: World) -> None:
        """NodeClaims for the pods without room in what is there or under way."""
        places = []
        for claim in world.claims:
            if "deletionTimestamp" not in claim["metadata"]:
                each = objects.chosen(claim, self.offered)
                left = objects.room(each.allocatable, world.pods_on(world.node_of(claim)))
                places.append((claim, each, left))
        for pod in filter(objects.is_unschedulable, world.pods):
            fitting = (place for place in places if _has_room(pod, *place))
            if place := next(fitting, None) or self._buy(pod, world):
                objects.take(place[2], pod)
                if place not in places:
                    places.append(place)

    def _buy(self, pod: Any, world: World) -> tuple[Any, Offering, objects.Amounts] | None:
        """The cheapest NodeClaim of the first pool that has one for the pod."""
        for pool in world.pools:
            name = pool["metadata"]["name"]
            used = [each for each in world.claims if each["metadata"]["labels"][POOL] == name]
            for each in self.offered:
                planned, left = objects.claim(pool, each), objects.room(each.allocatable, ())
                if objects.allows(pool, each, used) and _has_room(pod, planned, each, left):
                    claim = {
                        "status": {"capacity": each.capacity},
                        **self.api.create(CLAIMS, planned),
                    }
                    log("INFO", "created nodeclaim", NodePool=pool, NodeClaim=claim)
                    world.claims.append(claim)
                    return claim, each, left
        return None

    def _bring_up(self, claim: Any, world: World) -> None:
        """The next thing on the way to a usable node, if it is time for it."""
        name, uid, node = claim["metadata"]["name"], claim["metadata"]["uid"], world.node_of(claim)
        if not objects.has(claim, "Launched"):
            each = objects.chosen(claim, self.offered)
            labels = {**each.labels, **claim["metadata"]["labels"], **objects.FAKE}
            self.api.patch(f"{CLAIMS}/{name}", {"metadata": {"labels": labels}})
            delay = world.delays.get(claim["spec"]["nodeClassRef"]["name"], 0.0)
            self._due[uid] = time.monotonic() + delay
            self._report(CLAIMS, claim, objects.launched(claim, each))
            log("INFO", "launched nodeclaim", NodeClaim=claim, **{"instance-type": each.type})
        elif node is None and objects.has(claim, "Registered"):
            self.api.delete(f"{CLAIMS}/{name}")  # its node was lost
        elif node is None:
            if self._due.get(uid, 0.0) <= time.monotonic():
                self.api.create(NODES, objects.node(claim))
        elif not objects.has(claim, "Registered"):
            self._change(node, objects.registration(claim, node))
            status = {"conditions": objects.conditions(claim, Registered="True")}
            self._report(CLAIMS, claim, {**status, "nodeName": node["metadata"]["name"]})
            log("INFO", "registered nodeclaim", NodeClaim=claim, Node=node)
        elif not objects.has(claim, "Initialized") and objects.is_usable(node):
            self._change(node, {"metadata": {"labels": {"karpenter.sh/initialized": "true"}}})
            status = {"conditions": objects.conditions(claim, Initialized="True")}
            self._report(CLAIMS, claim, status)
            log("INFO", "initialized nodeclaim", NodeClaim=claim, Node=node)

    def _disrupt(self, claim: Any, world: World) -> None:
        """Ends a node that is of an older template, or has been empty for long enough."""
        pools = {each["metadata"]["name"]: each for each in world.pools}
        pool, node = pools.get(claim["metadata"]["labels"][POOL]), world.node_of(claim)
        if pool is None or node is None or not objects.has(claim, "Initialized"):
            return
        uid, there = claim["metadata"]["uid"], world.pods_on(node)
        pods = frozenset(each["metadata"]["uid"] for each in there if not objects.stays(each))
        since, before = self._quiet.get(uid, (0.0, None))
        if pods != before:
            since = time.monotonic()
            self._quiet[uid] = since, pods
        after = pool["spec"].get("disruption", {}).get("consolidateAfter", "0s")
        if claim["metadata"]["annotations"][HASH] != objects.template_hash(pool):
            reason = "Drifted"
        elif pods or after == "Never" or self._is_nominated(claim, world):
            return
        elif time.monotonic() - since >= objects.seconds(after):
            reason = "Empty"
        else:
            return
        log("INFO", "disrupting node(s)", reason=reason.lower(), NodeClaim=claim, Node=node)
        self._taint(node)
        status = {"conditions": objects.conditions(claim, DisruptionReason=reason)}
        self._report(CLAIMS, claim, status)
        self.api.delete(f"{CLAIMS}/{claim['metadata']['name']}")
        for kind, about in (("Node", node), ("NodeClaim", claim)):
            self.api.create(path_of("events"), objects.event(kind, about, reason))

    def _is_nominated(self, claim: Any, world: World) -> bool:
        """Whether a pod that is pending may still come to the node: Karpenter ends no such node."""
        each = objects.chosen(claim, self.offered)
        left = objects.room(each.allocatable, world.pods_on(world.node_of(claim)))
        waiting = filter(objects.is_unschedulable, world.pods)
        return any(_has_room(pod, claim, each, left) for pod in waiting)

    def _end(self, claim: Any, world: World) -> None:
        """Drains and deletes the node of a NodeClaim that is being deleted, then lets both go."""
        node = world.node_of(claim)
        if node is None:
            path = f"{CLAIMS}/{claim['metadata']['name']}"
            self.api.patch(path, {"metadata": {"finalizers": None}})
            log("INFO", "deleted nodeclaim", NodeClaim=claim)
            return
        if "deletionTimestamp" not in node["metadata"]:
            self.api.delete(f"{NODES}/{node['metadata']['name']}")
            return
        self._taint(node)
        leaving = [each for each in world.pods_on(node) if not objects.stays(each)]
        for pod in leaving:
            place, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            if "deletionTimestamp" not in pod["metadata"]:
                with contextlib.suppress(Refused):  # by a budget; the next loop asks again
                    path = path_of("pods", namespace=place, name=name)
                    self.api.create(f"{path}/eviction", eviction)
        if not leaving:
            self._change(node, {"metadata": {"finalizers": None}})

    def _taint(self, node: Any) -> None:
        taints = node["spec"].get("taints") or []
        if DISRUPTED["key"] not in {each["key"] for each in taints}:
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            self._change(node, {"metadata": version, "spec": {"taints": [*taints, DISRUPTED]}})

    def _change(self, node: Any, body: Mapping[str, Any]) -> None:
        self.api.patch(f"{NODES}/{node['metadata']['name']}", body)

    def _report(self, path: str, of: Any, status: Mapping[str, Any]) -> None:
        self.api.patch(f"{path}/{of['metadata']['name']}/status", {"status": status})


def _has_room(pod: Any, claim: Any, each: Offering, left: objects.Amounts) -> bool:
    labels = {**claim["metadata"]["labels"], **each.labels}
    return objects.fits(pod, labels, claim["spec"].get("taints") or (), left)


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Its log has no line for each probe."""


def main() -> None:
    offered: list[Offering] = []
    try:
        types = json.loads(Path(os.environ["INSTANCE_TYPES_FILE_PATH"]).read_text())
        offered = sorted(objects.offerings(types), key=lambda each: each.price)
    except (OSError, ValueError, LookupError, TypeError) as error:
        log("ERROR", "failed constructing instance types", error=str(error))
    karpenter = Karpenter(Api(Path(os.environ["KUBECONFIG"])), offered)
    server = HTTPServer(("127.0.0.1", int(os.environ["HEALTH_PROBE_PORT"])), _Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        try:
            karpenter.loop()
        except ApiError as error:
            # A conflict, or something gone meanwhile: the next loop reads all anew.
            log("DEBUG", "reconciling again", error=str(error))
        time.sleep(_PERIOD_SECONDS)


if __name__ == "__main__":
    main()
