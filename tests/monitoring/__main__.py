"""The page of the dashboard in the docs, made from a real run.

    python -m tests.monitoring docs/img/dashboard.svg

A control plane, the operator, a shim and a Prometheus run for three minutes, while groups are
scaled, paused, broken and interrupted, and somebody plays cluster-autoscaler. Then every query of
the dashboard is asked over that time, and what comes back is drawn (page.py).
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from hack.tools import PROMETHEUS
from kwok_operator.constants import API_GROUP, API_VERSION, POOL_KIND
from kwok_operator.controlplane import Settings, find_set, temporary
from kwok_operator.reporter import Reporter
from tests.e2e.autoscaler import Autoscaler, Shim
from tests.e2e.groups import apply_group, install_crds, patch_group, scale
from tests.e2e.kubectl import Kubectl
from tests.e2e.operator import Harness, as_service_account
from tests.e2e.ports import free_address
from tests.e2e.prometheus import Panel, Prometheus, panels, running_prometheus
from tests.e2e.rights import SHIM, kubeconfig_of
from tests.monitoring.page import Line, Shown, draw

POINTS = 60
_LABEL = re.compile(r"{{\w+}}")
BOUNDS = {"minSize": 0, "maxSize": 400}
BROKEN = {"node": {"metadata": {"labels": {"no label": "x"}}}}
POOL = {
    "apiVersion": f"{API_GROUP}/{API_VERSION}",
    "kind": POOL_KIND,
    "metadata": {"name": "zone-b"},
    "spec": {"instances": 50},
}
SPOT = {
    "provisioningDelay": {"lognormal": {"p50": "8s", "p99": "40s"}},
    "failures": {"creation": [{"probability": "0.25", "class": "QuotaExceeded"}]},
    "retryAfter": "15s",
    "capacityPools": ["zone-b"],
    "interruptions": {"lifetime": {"exponential": {"mean": "3m"}}, "notice": "10s"},
}


def story(kubectl: Kubectl) -> list[tuple[float, Callable[[], object]]]:
    """What happens, and after how many seconds."""
    shapes = {"web": {"cpu": 8}, "batch": {"cpu": 64}, "gpu": {"gpu": {"count": 8}}}

    def make(name: str, size: int) -> None:
        template = {"shape": shapes[name]}
        apply_group(kubectl, name, targetSize=size, template=template, autoscaling=BOUNDS)

    return [
        (0, lambda: make("web", 40)),
        (5, lambda: kubectl.apply(POOL)),
        (6, lambda: apply_group(kubectl, "spot", targetSize=30, cloud=SPOT)),
        (10, lambda: make("batch", 120)),
        (25, lambda: make("gpu", 16)),
        (45, lambda: scale(kubectl, "web", 200)),
        (65, lambda: scale(kubectl, "batch", 20)),
        (80, lambda: patch_group(kubectl, "gpu", paused=True)),
        (82, lambda: scale(kubectl, "gpu", 60)),
        (100, lambda: patch_group(kubectl, "gpu", paused=False)),
        (95, lambda: scale(kubectl, "spot", 60)),
        (115, lambda: patch_group(kubectl, "batch", template=BROKEN)),
        (120, lambda: scale(kubectl, "batch", 60)),
        (140, lambda: patch_group(kubectl, "batch", template={"node": None})),
        (155, lambda: scale(kubectl, "web", 90)),
        (180, lambda: None),
    ]


def play(autoscaler: Autoscaler, over: threading.Event) -> None:
    """cluster-autoscaler's loop, once a second."""
    while not over.wait(1.0):
        with contextlib.suppress(grpc.RpcError):
            for group in autoscaler.loop():
                autoscaler.target(group)
                autoscaler.instances(group)
                autoscaler.template(group)
    autoscaler.close()


def ask(prometheus: Prometheus, *, start: float, end: float) -> Iterator[Shown]:
    """All panels, with what Prometheus says of them."""
    for panel in panels():
        lines = [
            line
            for query, legend in panel.queries
            for line in _lines(prometheus, panel, query, legend, start=start, end=end)
        ]
        yield Shown(panel.row, panel.title, panel.kind, panel.unit, lines)


def _lines(
    prometheus: Prometheus, panel: Panel, query: str, legend: str, *, start: float, end: float
) -> Iterator[Line]:
    step = (end - start) / POINTS
    for series in prometheus.query_range(query, start=start, end=end, step=step):
        points = [
            (float(at) - start, float(value))
            for at, value in series["values"]
            if value not in ("NaN", "+Inf")
        ]
        if points:
            yield Line(_filled_in(legend, series["metric"]), points)


def _filled_in(legend: str, labels: dict[str, Any]) -> str:
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return _LABEL.sub("", legend).strip() or "none"


def run(directory: Path) -> str:
    """The whole run; gives the page."""
    settings = Settings.from_environ(os.environ)
    tools = find_set(PROMETHEUS, settings=settings, reporter=Reporter(sys.stderr))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(temporary("dashboard", settings=settings))
        kubectl = Kubectl(
            program=cluster.kubectl, kubeconfig=cluster.kubeconfig, cache=directory / "cache"
        )
        install_crds(kubectl)
        operator_file, shim_file = directory / "operator.kubeconfig", directory / "shim.kubeconfig"
        operator_file.write_text(as_service_account(kubectl))
        shim_file.write_text(kubeconfig_of(kubectl, SHIM))
        harness = Harness(kubeconfig=operator_file, directory=directory)
        stack.callback(harness.stop)
        operator = harness.start()
        shim_metrics = free_address()
        shim = Shim(kubeconfig=shim_file, directory=directory)
        stack.callback(shim.stop)
        shim.start(f"--metrics-listen={shim_metrics}")
        targets = {
            "kwok-operator": f"127.0.0.1:{operator.port}",
            "kwok-operator-shim": shim_metrics,
        }
        prometheus = stack.enter_context(running_prometheus(tools, directory, targets=targets))
        over = threading.Event()
        player = threading.Thread(target=play, args=(Autoscaler(shim.socket), over))
        player.start()
        stack.callback(player.join)
        stack.callback(over.set)
        time.sleep(5)
        start = time.time()
        for after, act in story(kubectl):
            time.sleep(max(0.0, start + after - time.time()))
            act()
        end = time.time()
        return draw(ask(prometheus, start=start, end=end), seconds=end - start)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.monitoring", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("page", type=Path, metavar="PAGE.svg")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        page = run(Path(directory))
    arguments.page.write_text(page, encoding="utf-8")
    print(arguments.page)


if __name__ == "__main__":
    main()
