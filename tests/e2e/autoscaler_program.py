"""A program in place of cluster-autoscaler: the answer to `--help`, the flags that count, a loop.

    python -m tests.e2e.autoscaler_program --cloud-provider=externalgrpc --cloud-config=FILE ...

A loop packs the pods without a node, by their CPU, into what groups have or await, and asks the
cheapest group for the nodes that are missing. A group whose instances fail gets no more requests,
and the instances go back. If no pod waits, empty nodes are deleted. Its Events about pods have the
texts of the real one. It drains no node, has no time-outs, and knows no affinities between pods: a
scenario about these needs the real one.

The flags that say where the shim, the cluster and the namespace are have to be there. With
--address it answers /health-check once it has looped.
"""

import argparse
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.api import GROUPS, NODES, Api, Refused, path_of
from tests.e2e.autoscaler import Autoscaler, as_node, placeholder

_PERIOD_SECONDS = 0.2


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--cloud-provider", choices=["externalgrpc"], required=True)
    for flag in ("--cloud-config", "--kubeconfig"):
        parser.add_argument(flag, type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--address", default="")
    return parser.parse_known_args()[0]


@dataclass
class _Group:
    """A group as a loop sees it; CPU in thousandths."""

    name: str
    most: int
    target: int
    labels: Mapping[str, str]
    size: int
    nodes: Sequence[Any]
    room: list[int]
    """What is free on each node, and on each that was asked for."""

    def suits(self, pod: Any) -> bool:
        return (pod["spec"].get("nodeSelector") or {}).items() <= self.labels.items()

    def refusal(self, pod: Any, *, avoided: bool) -> str:
        """Why no node comes for the pod, as the real one says it."""
        if avoided:
            return "in backoff after failed scale-up"
        if self.target >= self.most:
            return "max node group size reached"
        unsuited = "node(s) didn't match Pod's node affinity/selector"
        return "Insufficient cpu" if self.suits(pod) else unsuited


def main() -> None:
    flags = _flags()
    client = Autoscaler(yaml.safe_load(flags.cloud_config.read_text())["address"])
    api = Api(flags.kubeconfig)
    avoided = set[str]()
    said = set[tuple[str, str]]()
    while True:
        _loop(client, api, avoided, said)
        if flags.address:
            _answer_health_checks(flags.address)
            flags.address = ""
        time.sleep(_PERIOD_SECONDS)


def _loop(client: Autoscaler, api: Api, avoided: set[str], said: set[tuple[str, str]]) -> None:
    limits = client.loop()
    groups = _groups(client, api, limits, avoided)
    # After the nodes: so a node of this list without a pod in that one is empty.
    pods = [pod for pod in api.list(path_of("pods", namespace=None))[0] if _is_alive(pod)]
    used = Counter[str]()
    for pod in pods:
        used[pod["spec"].get("nodeName", "")] += _cpu(pod)
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    for group in groups:
        group.room += [group.size - used[node["metadata"]["name"]] for node in group.nodes]
        waiting = list(_left_over(waiting, group.room, group))
    bought = False
    for group in groups:
        if group.name not in avoided:
            new = [group.size] * min(group.most - len(group.room), len(waiting))
            left = list(_left_over(waiting, new, group))
            if more := sum(free < group.size for free in new):
                client.increase(group.name, more)
                bought = True
                plan = f"{group.name} {group.target}->{group.target + more} (max: {group.most})"
                for pod in (pod for pod in waiting if pod not in left):
                    say = f"pod triggered scale-up: [{{{plan}}}]"
                    _report(api, pod, "TriggeredScaleUp", say, said=said)
            waiting = left
    for pod in () if bought else waiting:
        why = Counter(group.refusal(pod, avoided=group.name in avoided) for group in groups)
        reasons = ", ".join(f"{count} {reason}" for reason, count in why.items())
        say = f"pod didn't trigger scale-up: {reasons}"
        _report(api, pod, "NotTriggerScaleUp", say, said=said)
    if used[""] == 0:
        for group in groups:
            empty = [node for node in group.nodes if not used[node["metadata"]["name"]]]
            surplus = empty[: max(len(group.room) - limits[group.name][0], 0)]
            if surplus:
                client.delete(group.name, *map(as_node, surplus))


def _groups(
    client: Autoscaler, api: Api, limits: Mapping[str, tuple[int, int]], avoided: set[str]
) -> list[_Group]:
    """The cheapest first; gives back what has failed."""
    bodies = [group for group in api.list(GROUPS)[0] if group["metadata"]["name"] in limits]
    found: list[_Group] = []
    for body in sorted(bodies, key=_price):
        name, template = body["metadata"]["name"], body["status"]["resolvedTemplate"]
        if failed := client.failures(name):
            avoided.add(name)
            client.delete(name, *map(placeholder, failed))
        target, size = client.target(name), _milli(template["status"]["allocatable"]["cpu"])
        nodes, _ = api.list(NODES, selector=f"{NODE_GROUP_LABEL}={name}")
        labels = {**template["metadata"].get("labels", {}), NODE_GROUP_LABEL: name}
        room = [size] * (target - len(nodes))
        found.append(_Group(name, limits[name][1], target, labels, size, nodes, room))
    return found


def _left_over(pods: Iterable[Any], room: list[int], group: _Group) -> Iterator[Any]:
    """Takes of the room what each pod needs, in the first place that has it; yields the others."""
    for pod in pods:
        fits = (n for n, free in enumerate(room) if group.suits(pod) and free >= _cpu(pod))
        if (place := next(fits, None)) is None:
            yield pod
        else:
            room[place] -= _cpu(pod)


def _report(api: Api, pod: Any, reason: str, message: str, *, said: set[tuple[str, str]]) -> None:
    """An Event about the pod, unless it is there already."""
    metadata = pod["metadata"]
    if (metadata["uid"], message) in said:
        return
    said.add((metadata["uid"], message))
    now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {key: metadata[key] for key in ("name", "namespace", "uid")}
    body = {
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": "cluster-autoscaler"},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
    with contextlib.suppress(Refused):  # its namespace is being deleted
        api.create(path_of("events", namespace=metadata["namespace"]), body)


def _is_alive(pod: Any) -> bool:
    return pod["status"].get("phase") in ("Pending", "Running")


def _cpu(pod: Any) -> int:
    requests = ((c.get("resources") or {}).get("requests") or {} for c in pod["spec"]["containers"])
    return sum(_milli(each.get("cpu", "0")) for each in requests)


def _milli(quantity: str) -> int:
    whole = quantity.removesuffix("m")
    return int(whole) if whole != quantity else round(float(whole) * 1000)


def _price(group: Any) -> float:
    return float((group["spec"].get("price") or {}).get("hourly", 0))


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def _answer_health_checks(address: str) -> None:
    host, _, port = address.rpartition(":")
    server = HTTPServer((host, int(port)), _Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    main()
