"""Recordings at random, by a seed: each could have been made, few would have been.

Times never go back, and a line of an object follows from the one before. All else is hostile:
several lines at one moment, names used again, pods on nodes that are gone or not shown yet.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    BudgetState,
    EndLine,
    EventLine,
    GroupLine,
    GroupState,
    JobLine,
    JobState,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    NodeState,
    PodGroupLine,
    PodGroupState,
    PodLine,
    PodState,
    RecordedLine,
    RecordedTopology,
    WarningLine,
    WatchLine,
)

GROUPS: Final = ("a", "b")
ZONES: Final = ("x", "y")
NODE_POOLS: Final = ("p", "q")
NAMESPACES: Final = ("default", "shop")
WORKLOADS: Final = ("Deployment/default/web", "Deployment/shop/web", "Job/shop/batch")
_NODES: Final = tuple(f"n{number}" for number in range(6))
_STATES: Final = ("waiting", "creating", "failed", "starting", "ready", "notReady", "deleting")
_REASONS: Final = (
    *("EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByTaintManager"),
    *("PreemptionByScheduler", "DeletionByPodGC", "TerminationByKubelet"),
)


class _World:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.t = 0.0
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.claims: dict[str, NodeClaimState] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.priced = self.draw.random()
        self.karpenters = self.chance(0.3)
        """Whether all nodes are alike, and often have NodeClaims: then more are replaced."""
        self.gaps = 0.1 if self.draw.random() < 0.2 else 0.0

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def created(self) -> float:
        """Of what is there for the first time."""
        if self.t == 0 or self.chance(0.05):
            return round(self.draw.uniform(-100, 0), 3)
        return round(max(0.0, self.t - self.draw.choice((0, 0.4, 3))), 3)

    def moment(self) -> float:
        """Of what happened lately, by a clock that need not agree."""
        return round(self.t - self.draw.choice((0, 0, 0.5, 4)), 3)

    def node_came(self) -> RecordedLine | None:
        name = self.draw.choice(_NODES)
        if name in self.nodes:
            return None
        created = self.created()
        asked = round(created - self.draw.choice((-1, 0, 5, 40)), 3) if self.chance(0.4) else None
        return self._node(name, NodeState(created=created, requested=asked))

    def _node(self, name: str, node: NodeState) -> RecordedLine:
        if not node.group:
            # A node of the name that comes again is of the same place: names aren't used twice.
            place = 0 if self.karpenters else _NODES.index(name)
            node = replace(
                node,
                group=GROUPS[place % len(GROUPS)],
                zone=ZONES[place // 2 % len(ZONES)],
                pool=(NODE_POOLS[0], "")[place // 4],
                shape="s" if self.karpenters else self.draw.choice(("s", "m")),
            )
        elif not self.karpenters and self.chance(0.15):
            places: dict[str, Any] = {"zone": ZONES, "group": GROUPS, "pool": NODE_POOLS}
            part = self.draw.choice(list(places))
            node = replace(node, **{part: self.draw.choice(places[part])})
        if not node.topology or self.chance(0.1):
            rack = self.draw.choice((("b", "r"), ("b", "s"), ("c", "r"), ("b", ""), ("", "r"), ()))
            node = replace(node, topology=rack)
        if not node.allocatable or self.chance(0.1):
            offer = self.draw.choice((1_000.0, 4_000.0))
            node = replace(node, allocatable={"cpu": offer, "memory": offer * 2**20})
            if self.chance(0.5):
                gpus = {"nvidia.com/gpu": 4.0, "pods": self.draw.choice((1.0, 3.0))}
                node = replace(node, allocatable=node.allocatable | gpus)
        price = self.draw.choice((0.0, 0.1, 2.5)) if self.chance(self.priced / 2) else None
        self.nodes[name] = replace(
            node,
            price=price if self.chance(0.7) else node.price,
            ready=self.chance(0.7),
            schedulable=self.chance(0.8),
            deleting=node.deleting or self.chance(0.1),
        )
        return NodeLine(self.t, name, self.nodes[name])

    def node_changed(self) -> RecordedLine | None:
        if not self.nodes:
            return None
        name = self.draw.choice(list(self.nodes))
        return self._node(name, self.nodes[name])

    def node_went(self) -> RecordedLine | None:
        # Once in a while also one that the recording hasn't shown.
        name = self.draw.choice(list(self.nodes) if self.nodes and self.chance(0.97) else _NODES)
        self.nodes.pop(name, None)
        return NodeLine(self.t, name, None)

    def pod_came(self) -> RecordedLine | None:
        workload = self.draw.choice((*WORKLOADS, "DaemonSet/shop/agent"))
        kind, namespace, of = workload.split("/")
        name = f"{namespace}/{of}-{self.draw.randrange(6)}"
        if name in self.pods:
            return None
        cpu = self.draw.choice((0.0, 100.0, 1_500.0))
        self.pods[name] = PodState(
            workload=f"{workload}-0001" if kind == "Job" and self.chance(0.5) else workload,
            rehearsed=of if kind == "Job" else "",
            created=self.created(),
            requests={"cpu": cpu, "memory": cpu * 2**20},
        )
        if self.chance(0.4):
            gang = f"PodGroup/{namespace}/{self.draw.choice('gh')}"
            least = self.draw.choice((0, 0, 2))
            self.pods[name] = replace(self.pods[name], gang=gang, least=least)
        if self.chance(0.4):
            devices = {"nvidia.com/gpu": 1.0} | ({"amd.com/gpu": 1.0} if self.chance(0.2) else {})
            claims = int(self.chance(0.05))
            asked = self.pods[name].requests | devices
            self.pods[name] = replace(self.pods[name], requests=asked, claims=claims)
        if self.pods[name].workload != workload:
            self.pods[name] = replace(self.pods[name], rehearsed="batch")
        if self.t == 0:
            for _ in range(self.draw.randrange(4)):
                self._pod_changes(name)
        return PodLine(self.t, name, self.pods[name])

    def pod_changed(self) -> RecordedLine | None:
        if not self.pods:
            return None
        name = self.draw.choice(list(self.pods))
        for _ in range(self.draw.choice((1, 1, 1, 2, 3))):
            self._pod_changes(name)
        return PodLine(self.t, name, self.pods[name])

    def _pod_changes(self, name: str) -> None:
        pod = self.pods[name]
        if pod.phase in ("Succeeded", "Failed"):
            return
        if pod.gang and self.chance(0.1):
            pod = replace(pod, gang=pod.gang[:-1] + self.draw.choice("gh"))
        if self.chance(0.12):
            pod = replace(pod, disrupted=self.draw.choice(_REASONS))
            budgets = tuple(b for b in ("p", "q") if self.chance(0.6))
            pod = replace(pod, budgets=budgets if pod.phase == "Running" else ())
        if self.chance(0.05):
            pod = replace(pod, phase="Failed", running=pod.running)
        elif not pod.node:
            node = self.draw.choice(list(self.nodes) if self.nodes and self.chance(0.9) else _NODES)
            if self.chance(0.7):
                pod = replace(pod, node=node, bound=self.moment() if self.chance(0.9) else None)
        elif pod.phase in ("Pending", "Unknown"):
            pod = replace(pod, phase="Running", running=pod.running or self.moment())
            if self.chance(0.1):
                pod = replace(pod, phase="Succeeded", running=self.draw.choice((None, pod.running)))
        else:
            pod = replace(pod, restarts=pod.restarts + self.draw.randrange(3))
            pod = replace(
                pod, phase=self.draw.choice(("Running", "Running", "Succeeded", "Failed"))
            )
        self.pods[name] = pod

    def pod_went(self) -> RecordedLine | None:
        if not self.pods:
            return None
        name = self.draw.choice(list(self.pods))
        del self.pods[name]
        return PodLine(self.t, name, None)

    def job(self) -> RecordedLine:
        name = f"Job/{self.draw.choice(NAMESPACES)}/{self.draw.choice(('batch', 'batch-0001'))}"
        job = self.jobs.get(name)
        if job is None:
            job = {"created": self.created(), "wanted": self.draw.randrange(4), "succeeded": 0}
            job |= {"failed": 0, "done": "", "parallelism": self.draw.randrange(4)}
            job |= {"rehearsed": "batch"} if name.endswith("1") else {}
            ends = self.t == 0 and self.chance(0.5)
        elif self.chance(0.15):
            del self.jobs[name]
            return JobLine(self.t, name, None)
        else:
            ends = not job["done"] and self.chance(0.3)
            grows = not job["done"] and self.chance(0.5)
            most = job["wanted"] or 99
            job = {**job, "succeeded": min(most, job["succeeded"] + grows)}
        if ends:
            finished = job["wanted"] and job["succeeded"] >= job["wanted"]
            done = "Complete" if finished or self.chance(0.5) else "Failed"
            whole = done == "Complete"
            job = {**job, "done": done} | ({"succeeded": max(job["wanted"], 1)} if whole else {})
        self.jobs[name] = job
        return JobLine(self.t, name, JobState(**job))

    def pod_group(self) -> RecordedLine:
        name = f"PodGroup/{self.draw.choice(NAMESPACES)}/{self.draw.choice('gh')}"
        state = None if self.chance(0.2) else PodGroupState(self.draw.randrange(1, 4))
        return PodGroupLine(self.t, name, state)

    def claim(self) -> RecordedLine:
        name = f"c{self.draw.randrange(5)}"
        claim = self.claims.get(name)
        if claim is None and self.chance(0.95):
            pool = self.draw.choice(("", *NODE_POOLS))
            claim = NodeClaimState(created=self.created(), pool=pool)
        elif claim is None or self.chance(0.1):
            self.claims.pop(name, None)
            return NodeClaimLine(self.t, name, None)
        if self.chance(0.7):
            claim = self._launched(claim)
        if claim.launched is not None and self.chance(0.7):
            node = claim.node or self.draw.choice([*self.nodes, *_NODES])
            claim = replace(claim, registered=claim.registered or self.moment(), node=node)
        if not claim.deleting and self.chance(0.5):
            reasons = ("", "Underutilized", "Empty", "Drifted", "Expired", "Interrupted")
            claim = replace(claim, reason=self.draw.choice(reasons), deleting=self.chance(0.2))
        self.claims[name] = claim
        return NodeClaimLine(self.t, name, claim)

    def _launched(self, claim: NodeClaimState) -> NodeClaimState:
        """It gets its group and its zone, and now and then others: labels can change."""
        moment = self.moment() if claim.launched is None else claim.launched
        group, zone = self.draw.choice(GROUPS), self.draw.choice(ZONES)
        return replace(claim, launched=moment, group=group, zone=zone)

    def budget(self) -> RecordedLine:
        name = f"PodDisruptionBudget/{self.draw.choice(NAMESPACES)}/{self.draw.choice('pq')}"
        state = BudgetState(allowed=self.draw.randrange(3), healthy=3, desired=2)
        return BudgetLine(self.t, name, None if self.chance(0.1) else state)

    def group(self) -> RecordedLine:
        states = {state: self.draw.randrange(4) for state in _STATES if self.chance(0.4)}
        price = self.draw.choice((None, 1.0))
        state = None if self.chance(0.1) else GroupState(3, 2, 1, states, price)
        return GroupLine(self.t, self.draw.choice(GROUPS), state)

    def other(self) -> RecordedLine:
        count = self.draw.randrange(1, 4)
        about = self.draw.choice(("Pod/default/web-1", "Pod/shop/web-1", "Node//n1"))
        program = self.draw.choice(("operator", "shim", "autoscaler"))
        return self.draw.choice(
            (
                EventLine(self.t, "Normal", "Scheduled", about, "scheduler", "said", count),
                WarningLine(self.t, program, "it is late", count, self.t == 0 and self.chance(0.5)),
                MarkLine(self.t, "scale", "web to 10"),
            )
        )

    def watch(self) -> RecordedLine:
        kinds = "nodes pods groups events budgets jobs podGroups nodeClaims"
        kind = self.draw.choice(kinds.split())
        return WatchLine(self.t, kind, self.draw.choice(("broken", "back", "back", "listed")))

    def actions(self) -> list[Callable[[], RecordedLine | None]]:
        nodes = [self.node_came] * 4 + [self.node_changed] * 4 + [self.node_went] * 2
        pods = [self.pod_came] * 5 + [self.pod_changed] * 9 + [self.pod_went] * 2
        others = [self.job] * 4 + [self.budget] * 2 + [self.pod_group] * 2
        others += [self.claim] * (16 if self.karpenters else 4)
        return [*nodes, *pods, *others, self.group, self.other]

    def lines(self) -> Iterator[RecordedLine]:
        actions = self.actions()
        before = self.draw.randrange(15)
        for number in range(self.draw.randrange(1, 70)):
            if number > before:
                steps = (0, 0, 0, 0.001, round(self.draw.uniform(0, 9), 3), 60, 300, 600, 601)
                weights = (8, 8, 8, 2, 30, 2, 1, 0.5, 0.5)
                self.t = round(self.t + self.draw.choices(steps, weights)[0], 3)
            line = self.watch() if self.chance(self.gaps) else self.draw.choice(actions)()
            if line is not None:
                yield line
        yield EndLine(round(self.t + self.draw.choice((0, 5)), 3), "settled")


def random_recording(seed: int) -> list[RecordedLine]:
    return list(_World(seed).lines())


def random_topology(seed: int) -> RecordedTopology | None:
    pods: tuple[dict[str, float], ...] = ({}, {"cpu": 300.0}, {"cpu": 1.0, "nvidia.com/gpu": 1.0})
    levels = ("example.com/block", "example.com/rack")
    topologies = [RecordedTopology(levels, pod) for pod in pods]
    return random.Random(seed).choice([None, *topologies])
