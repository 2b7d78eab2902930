"""A program in place of cluster-autoscaler: the answer to `--help`, the flags that count, a loop.

    python -m tests.e2e.autoscaler_program --cloud-provider=externalgrpc --cloud-config=FILE ...

A loop packs the pods without a node, by their CPU, into what groups have or await, and asks the
cheapest group for the nodes that are missing. A group whose instances fail gets no more requests,
and the instances go back. If no pod waits, empty nodes are deleted. It drains no node, has no
time-outs, and writes no Events: a scenario about these needs the real one.

The flags that say where the shim, the cluster and the namespace are have to be there. With
--address it answers /health-check once it has looped.
"""

import argparse
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.api import GROUPS, NODES, Api, path_of
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


def main() -> None:
    flags = _flags()
    client = Autoscaler(yaml.safe_load(flags.cloud_config.read_text())["address"])
    api = Api(flags.kubeconfig)
    avoided = set[str]()
    while True:
        _loop(client, api, avoided)
        if flags.address:
            _answer_health_checks(flags.address)
            flags.address = ""
        time.sleep(_PERIOD_SECONDS)


def _loop(client: Autoscaler, api: Api, avoided: set[str]) -> None:
    limits = client.loop()
    groups = [group for group in api.list(GROUPS)[0] if group["metadata"]["name"] in limits]
    room: dict[str, list[int]] = {}
    nodes: dict[str, Sequence[Any]] = {}
    size: dict[str, int] = {}
    for group in sorted(groups, key=_price):
        name = group["metadata"]["name"]
        if failed := client.failures(name):
            avoided.add(name)
            client.delete(name, *map(placeholder, failed))
        target = client.target(name)
        nodes[name], _ = api.list(NODES, selector=f"{NODE_GROUP_LABEL}={name}")
        size[name] = _milli(group["status"]["resolvedTemplate"]["status"]["allocatable"]["cpu"])
        room[name] = [size[name]] * (target - len(nodes[name]))
    # After the nodes: so a node of this list without a pod in that one is empty.
    pods = [pod for pod in api.list(path_of("pods", namespace=None))[0] if _is_alive(pod)]
    used = Counter[str]()
    for pod in pods:
        used[pod["spec"].get("nodeName", "")] += _cpu(pod)
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    for name, some in nodes.items():
        room[name] += [size[name] - used[node["metadata"]["name"]] for node in some]
        waiting = list(_left_over(waiting, room[name], name))
    for name in nodes:
        if name not in avoided:
            new = [size[name]] * min(limits[name][1] - len(room[name]), len(waiting))
            left = list(_left_over(waiting, new, name))
            if bought := sum(free < size[name] for free in new):
                client.increase(name, bought)
            waiting = left
    if used[""] == 0:
        for name, some in nodes.items():
            empty = [node for node in some if not used[node["metadata"]["name"]]]
            surplus = empty[: max(len(room[name]) - limits[name][0], 0)]
            if surplus:
                client.delete(name, *map(as_node, surplus))


def _left_over(pods: Iterable[Any], room: list[int], group: str) -> Iterator[Any]:
    """Takes of the room what each pod needs, in the first place that has it; yields the others."""
    for pod in pods:
        wanted = (pod["spec"].get("nodeSelector") or {}).get(NODE_GROUP_LABEL, group)
        fits = (n for n, free in enumerate(room) if wanted == group and free >= _cpu(pod))
        if (place := next(fits, None)) is None:
            yield pod
        else:
            room[place] -= _cpu(pod)


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
