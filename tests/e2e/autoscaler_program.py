"""A program in place of cluster-autoscaler: the answer to `--help`, the flags that count, a loop.

    python -m tests.e2e.autoscaler_program --cloud-provider=externalgrpc --cloud-config=FILE ...

It gives each group as many nodes as there are pods in its namespace that select the group. The
flags that say where the shim, the cluster and the namespace are have to be there, as it uses them.
With --address it answers /health-check once it has looped.
"""

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.api import NODES, Api, path_of
from tests.e2e.autoscaler import Autoscaler, as_node

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
    while True:
        pods, _ = api.list(path_of("pods", namespace=flags.namespace))
        for group in client.loop():
            wanted = sum(_group_of(pod) == group for pod in pods)
            surplus = client.target(group) - wanted
            nodes, _ = api.list(NODES, selector=f"{NODE_GROUP_LABEL}={group}")
            if surplus < 0:
                client.increase(group, -surplus)
            elif surplus > 0:
                client.delete(group, *map(as_node, nodes[:surplus]))
        if flags.address:
            _answer_health_checks(flags.address)
            flags.address = ""
        time.sleep(_PERIOD_SECONDS)


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def _answer_health_checks(address: str) -> None:
    host, _, port = address.rpartition(":")
    server = HTTPServer((host, int(port)), _Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _group_of(pod: dict[str, object]) -> object:
    spec = pod["spec"]
    assert isinstance(spec, dict)
    return (spec.get("nodeSelector") or {}).get(NODE_GROUP_LABEL)


if __name__ == "__main__":
    main()
