"""What the demo shows, step by step, and what must have come of each step.

    install -> even and odd -> a refused drain -> spread pods -> 1,000 nodes and back
            -> nodes that cluster-autoscaler asks for, where there is one

Each step prints the commands that it runs, so that they can be typed again, and ends with a check
of the cluster's own answers. The first check that fails ends the demo with a `DemoError`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.demo import facts
from hack.demo.autoscaler import VARIABLE, Autoscaler, NoAutoscaler, find
from hack.demo.errors import DemoError
from hack.demo.kubectl import Kubectl
from hack.demo.operator import ACCOUNT, NAMESPACE, Operator
from hack.demo.progress import WATCHED, Progress, Sighting
from hack.demo.screen import Screen
from kwok_operator.constants import API_GROUP, NODE_GROUP_LABEL, PLURAL

MANIFESTS = "hack/demo/manifests"
PODS_NAMESPACE = "kwok-demo"
PARITY = "example.com/parity"

_OURS = "app.kubernetes.io/part-of=kwok-operator-demo"
_CRD = f"crd/{PLURAL}.{API_GROUP}"
_BIG = "demo-eks"
_AUTO = "demo-auto"
_GUIDE = "docs/rehearse-autoscaling.md"
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget"
_SCALING_SECONDS = 300.0
_LOOK_SECONDS = 0.25


class Story:
    """The steps, in the order in which `tell` takes them."""

    def __init__(
        self,
        *,
        kubectl: Kubectl,
        screen: Screen,
        operator: Operator,
        autoscaler: Autoscaler,
        nodes: int,
        environ: Mapping[str, str],
    ) -> None:
        self._kubectl = kubectl
        self._screen = screen
        self._operator = operator
        self._autoscaler = autoscaler
        self._nodes = nodes
        self._environ = environ

    def tell(self) -> None:
        """Show everything; raises DemoError where something is not as it should be."""
        self._install()
        self._even_and_odd()
        self._refused_drain()
        self._spread()
        self._large_group()
        try:
            self._autoscaling(find(self._environ))
        except NoAutoscaler as why:
            how = f"{_GUIDE} says how to get one, `make demo {VARIABLE}=PATH` uses it"
            self._screen.say(["", f"No cluster-autoscaler is shown: {why}. {how}."])

    def _install(self) -> None:
        kubectl = self._kubectl
        self._screen.step(
            "Install the operator",
            "The CRD, what the operator may do, and the operator itself, with the rights of its "
            "service account. On a cluster of your own it is the same.",
        )
        kubectl.show("apply", "-f", "crds/")
        kubectl.show("apply", "-f", "deploy/base/namespace.yaml", "-f", "deploy/base/rbac.yaml")
        # A CRD has no conditions in its first moment, and kubectl wait doesn't wait for them.
        accepted = f"--for=jsonpath={{.status.acceptedNames.plural}}={PLURAL}"
        kubectl.read("wait", accepted, _CRD, "--timeout=60s")
        self._operator.start(kubectl, self._screen)
        self._screen.passed(f"it runs as {NAMESPACE}/{ACCOUNT}, its log is {self._operator.log}")
        remove_what_is_left(kubectl)

    def _even_and_odd(self) -> None:
        kubectl = self._kubectl
        self._screen.step(
            "Ten nodes in two groups",
            "A KwokNodeGroup is a number of equal nodes. Those of one group are labelled "
            f"{PARITY}=even, those of the other {PARITY}=odd.",
        )
        kubectl.show("apply", "-f", f"{MANIFESTS}/groups.yaml")
        self._wait_until_ready("demo-even", "demo-odd")
        kubectl.show("get", "kng", "-l", _OURS)
        kubectl.show("get", "nodes", "-l", PARITY, "-L", PARITY)
        nodes = Counter(facts.label_of(node, PARITY) for node in self._parity_nodes())
        self._check(nodes == {"even": 5, "odd": 5}, "five nodes are even and five odd", seen=nodes)

    def _refused_drain(self) -> None:
        kubectl = self._kubectl
        self._screen.step(
            "A drain that a PodDisruptionBudget refuses",
            "Ten pods that want to be on one node, whichever it is, and a budget with "
            "minAvailable: 10. The nodes are fake, the scheduler and the eviction API are not.",
        )
        kubectl.show("apply", "-f", f"{MANIFESTS}/ten-pods.yaml")
        self._wait_for_pods("ten")
        healthy = "--for=jsonpath={.status.currentHealthy}=10"
        kubectl.read("wait", "pdb/ten", "-n", PODS_NAMESPACE, healthy, "--timeout=60s")
        placed = facts.running_on(self._pods("ten"))
        self._check(list(placed.values()) == [10], "ten pods run on one node", seen=placed)
        (node,) = placed
        names = facts.running(self._pods("ten"))
        said = kubectl.refused("drain", node, "--ignore-daemonsets", "--timeout=3s")
        # After that, kubectl says it all again in a summary.
        lines = said.partition("There are pending")[0].splitlines()
        self._screen.output(facts.abridged(lines, names=names))
        self._check(_VIOLATED in said, "the API server refused to evict the pods")
        kubectl.show("uncordon", node)
        after = facts.running(self._pods("ten"))
        self._check(after == names, "the same ten pods still run")

    def _spread(self) -> None:
        kubectl = self._kubectl
        self._screen.step(
            "Eleven pods, spread over even and odd",
            f"topologySpreadConstraints with maxSkew: 1 and topologyKey: {PARITY}.",
        )
        kubectl.show("apply", "-f", f"{MANIFESTS}/eleven-pods.yaml")
        self._wait_for_pods("eleven")
        columns = "custom-columns=POD:.metadata.name,NODE:.spec.nodeName"
        order = "--sort-by=.spec.nodeName"
        kubectl.show("get", "pods", "-n", PODS_NAMESPACE, "-l", "app=eleven", "-o", columns, order)
        placed = facts.running_on(self._pods("eleven"))
        pods = facts.by_label(placed, self._parity_nodes(), label=PARITY)
        self._check(sorted(pods.values()) == [5, 6], "the difference is one", seen=pods)

    def _large_group(self) -> None:
        kubectl = self._kubectl
        self._screen.step(
            f"{self._nodes:,} nodes like one of a managed cloud",
            "template.node of this group is a whole EKS node, pasted as `kubectl get node -o "
            "yaml` printed it. What belonged to that one machine must not come back on others.",
        )
        kubectl.show("apply", "-f", f"{MANIFESTS}/eks-group.yaml")
        self._wait_until_ready(_BIG)
        self._scale(start=0, end=self._nodes)
        kubectl.show("get", "kng", _BIG, "-o", "wide")
        self._show_cleaning()
        self._scale(start=self._nodes, end=0)
        left = kubectl.json("get", "nodes", "-l", f"{NODE_GROUP_LABEL}={_BIG}")["items"]
        names = [node["metadata"]["name"] for node in left]
        self._check(not left, "none of its nodes is left", seen=names)

    def _show_cleaning(self) -> None:
        pasted = self._kubectl.json("get", "kng", _BIG)["spec"]["template"]["node"]
        one = f"/api/v1/nodes?labelSelector={NODE_GROUP_LABEL}%3D{_BIG}&limit=1"
        (made,) = json.loads(self._kubectl.read("get", "--raw", one))["items"]
        rows = [("", "pasted", "made of it"), *facts.comparison(pasted, made)]
        self._screen.output(["", *facts.table(rows)])
        found = facts.traces(pasted, made)
        self._check(not found, "nothing of the pasted machine is on the node", seen=found)

    def _autoscaling(self, program: Path) -> None:
        kubectl = self._kubectl
        self._screen.step(
            "cluster-autoscaler asks for nodes",
            f"{_AUTO} has no node, and may have ten. Six pods want a node of it each. To "
            "cluster-autoscaler the shim is a cloud; --namespace is where it writes its status.",
        )
        kubectl.show("apply", "-f", f"{MANIFESTS}/autoscaled.yaml")
        self._wait_until_ready(_AUTO)
        running = self._autoscaler.running(
            program, kubectl, self._screen, namespace=PODS_NAMESPACE, groups=_OURS
        )
        with running:
            started = time.monotonic()
            kubectl.show("apply", "-f", f"{MANIFESTS}/six-pods.yaml")
            self._wait_for_autoscaler(start=0, end=6)
            self._wait_for_pods("six")
            seconds = time.monotonic() - started
            placed = facts.running_on(self._pods("six"))
            right = list(placed.values()) == [1] * 6
            self._check(right, f"six pods run on six new nodes after {seconds:.1f} s")
            kubectl.show("get", "kng", _AUTO)
            self._screen.output(self._scale_up_events())
            started = time.monotonic()
            kubectl.show("delete", "deployment", "six", "-n", PODS_NAMESPACE)
            self._wait_for_autoscaler(start=6, end=0)
            seconds = time.monotonic() - started
            self._screen.passed(f"it has given the six nodes back after {seconds:.1f} s")
        self._screen.passed(f"it has ended, and so has the shim; its log is {self._autoscaler.log}")

    def _wait_for_autoscaler(self, *, start: int, end: int) -> None:
        """Show how far it is from one size of its group to another."""
        started = time.monotonic()
        look = ("get", "kng", _AUTO, f"--output=jsonpath={WATCHED}")
        while True:
            seconds = time.monotonic() - started
            self._autoscaler.check()
            seen = Sighting.parse(self._kubectl.read(*look))
            if seen is not None:
                progress = Progress.of(seen.nodes, start=start, end=end, seconds=seconds)
                if seen.settled and seen.nodes == end:
                    self._screen.updated(progress.line())
                    return
                self._screen.update(progress.line())
            if seconds > _SCALING_SECONDS:
                why = f"{self._why_not_ready(_AUTO)} ({self._autoscaler.log})"
                raise DemoError(f"{_AUTO} is not at {end} nodes in {seconds:.0f} s: {why}")
            time.sleep(_LOOK_SECONDS)

    def _scale_up_events(self) -> list[str]:
        """What cluster-autoscaler says of the pods that it got nodes for, each once."""
        where = ("get", "events", "-n", PODS_NAMESPACE, "--field-selector=reason=TriggeredScaleUp")
        events = self._kubectl.json(*where)["items"]
        return sorted({f"Event {event['reason']}: {event['message']}" for event in events})

    def _scale(self, *, start: int, end: int) -> None:
        """Scale the large group, and show how far it is until it is there."""
        started = time.monotonic()
        self._kubectl.show("scale", f"kng/{_BIG}", f"--replicas={end}")
        # As a list: kubectl leaves out what happens between its first look at a single object and
        # the watch that follows.
        one = f"--field-selector=metadata.name={_BIG}"
        watched = ("get", "kng", one, f"--output=jsonpath={WATCHED}")
        with self._kubectl.watch(*watched, seconds=_SCALING_SECONDS) as lines:
            for line in lines:
                seconds = time.monotonic() - started
                seen = Sighting.parse(line)
                if seen is None:
                    continue
                done = seen.usable if end else seen.nodes
                progress = Progress.of(done, start=start, end=end, seconds=seconds)
                if seen.settled:
                    self._screen.updated(progress.line())
                    break
                self._screen.update(progress.line())
            else:
                why = self._why_not_ready(_BIG)
                raise DemoError(f"{_BIG} is not at {end} nodes in {_SCALING_SECONDS:.0f} s: {why}")
        what = "usable" if end else "gone"
        self._check(
            seen.nodes == end,
            f"{abs(end - start):,} nodes are {what} after {seconds:.1f} s: "
            f"{progress.rate:,.0f} nodes/s",
        )

    def _wait_until_ready(self, *groups: str) -> None:
        names = (f"kng/{group}" for group in groups)
        try:
            self._kubectl.show("wait", *names, "--for=condition=Ready", "--timeout=60s")
        except DemoError as err:
            why = (f"{group}: {self._why_not_ready(group)}" for group in groups)
            raise DemoError(f"not Ready in 60 s: {'; '.join(why)}") from err

    def _why_not_ready(self, group: str) -> str:
        self._operator.check()
        path = '--output=jsonpath={.status.conditions[?(@.type=="Ready")].message}'
        return self._kubectl.read("get", f"kng/{group}", path) or "the operator says nothing"

    def _wait_for_pods(self, deployment: str) -> None:
        name = f"deployment/{deployment}"
        rollout = ("rollout", "status", name, "-n", PODS_NAMESPACE, "--timeout=120s")
        self._kubectl.show(*rollout, last=1)

    def _pods(self, app: str) -> list[Any]:
        pods = self._kubectl.json("get", "pods", "-n", PODS_NAMESPACE, "-l", f"app={app}")
        items: list[Any] = pods["items"]
        return items

    def _parity_nodes(self) -> list[Any]:
        items: list[Any] = self._kubectl.json("get", "nodes", "-l", PARITY)["items"]
        return items

    def _check(
        self, right: bool, what: str, *, seen: Counter[str] | list[str] | None = None
    ) -> None:
        so = f" ({facts.in_words(seen)})" if seen else ""
        if not right:
            raise DemoError(f"this should hold, and does not: {what}{so}")
        self._screen.passed(f"{what}{so}")


def remove_what_is_left(kubectl: Kubectl) -> None:
    """Remove the pods and the groups that a demo has made.

    The groups go last and with them their nodes, so that no pod is left on a node that is gone.
    Nothing here waits for the garbage collector: after 1,000 nodes it has 1,000 Leases to delete.
    """
    limit = "--timeout=100s"
    here = ("-n", PODS_NAMESPACE)
    if deployments := kubectl.read("get", "deployments", *here, "-l", _OURS, "-o", "name").split():
        kubectl.read("scale", *deployments, *here, "--replicas=0")
        pods = "app in (ten,eleven,six)"
        kubectl.read("wait", "pods", "--for=delete", *here, "-l", pods, limit)
    kubectl.read("delete", "kng", "-l", _OURS, "--ignore-not-found", limit)
    nodes = f"{NODE_GROUP_LABEL} in (demo-even,demo-odd,{_BIG},{_AUTO})"
    kubectl.read("wait", "nodes", "--for=delete", "-l", nodes, limit)
