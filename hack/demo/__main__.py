"""The demo's command line: a cluster, the story, and how to go on from there.

What is shown goes to standard output; what takes long before it (tools, a cluster) and why it
failed, to standard error. A step that fails is one line and exit status 1, an interrupt is 130.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from hack.demo.autoscaler import Autoscaler
from hack.demo.errors import DemoError
from hack.demo.kubectl import CHECKOUT, Kubectl, on_search_path
from hack.demo.operator import Operator
from hack.demo.screen import Screen
from hack.demo.story import PODS_NAMESPACE, Story, remove_what_is_left
from kwok_operator.controlplane import (
    DEFAULT_NAME,
    Cluster,
    ControlPlaneError,
    Settings,
    create,
    delete,
    get,
)

_EPILOG = """\
CLUSTER_AUTOSCALER names a cluster-autoscaler for the last step; by default it is the one on PATH.
The environment variables of `python3 -m kwok_operator.controlplane --help` hold here, too. With
KWOK_OPERATOR_TEST_KUBECONFIG, the demo uses that cluster, needs a kwok controller there, and takes
away what it made when it is told to: the CRD, and the namespace and rights of the operator, stay.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m hack.demo",
        description="Show the operator at work on a real control plane.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="leave the cluster and the operator running at the end (default), or remove both",
    )
    parser.add_argument(
        "--name", default=DEFAULT_NAME, help="which cluster to use or create (default: %(default)s)"
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=1_000,
        metavar="N",
        help="size to which the large group is scaled (default: 1000)",
    )
    parser.add_argument(
        "--down", action="store_true", help="show nothing; remove what a demo has left running"
    )
    return parser


class _Demo:
    """One run, with all that belongs to it."""

    def __init__(self, cluster: Cluster, *, settings: Settings, screen: Screen) -> None:
        self._cluster = cluster
        self._settings = settings
        self._screen = screen
        # In the cluster's own directory, which goes when the cluster goes.
        home = settings.cache if cluster.borrowed else cluster.kubeconfig.parent
        self._directory = home / "demo"
        self._operator = Operator(self._directory)
        self._autoscaler = Autoscaler(self._directory)
        self._kubectl = Kubectl(
            cluster.kubectl,
            kubeconfig=cluster.kubeconfig,
            cache=self._directory / "kubectl",
            environ=settings.environ,
            screen=screen,
        )

    def show(self, *, nodes: int) -> None:
        """Tell the story from its beginning, whatever an earlier demo has left."""
        started = time.monotonic()
        self._kubectl.read("get", "--raw", "/readyz")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._stop()
        story = Story(
            kubectl=self._kubectl,
            screen=self._screen,
            operator=self._operator,
            autoscaler=self._autoscaler,
            nodes=nodes,
            environ=self._settings.environ,
        )
        story.tell()
        self._screen.say(["", f"That was all, in {time.monotonic() - started:.0f} s."])

    def remove(self) -> None:
        """End the operator and remove the cluster, or what was made in a borrowed one."""
        try:
            if self._cluster.borrowed and self._directory.exists():
                # While the operator is there: it deletes nodes faster than the garbage collector.
                remove_what_is_left(self._kubectl)
                self._kubectl.read("delete", "namespace", PODS_NAMESPACE, "--ignore-not-found")
        finally:
            self._stop()
            shutil.rmtree(self._directory, ignore_errors=True)
            delete(self._cluster.name, settings=self._settings)

    def _stop(self) -> None:
        """End what an earlier demo has left, too, if it was killed."""
        self._autoscaler.stop()
        self._operator.stop()

    def say_how_to_go_on(self) -> None:
        """Tell how to use what is left running, and how to remove it."""
        cluster, environ = self._cluster, self._settings.environ
        lines = ["", "The cluster and the operator go on running. To play with them:", ""]
        lines.append(f"  export KUBECONFIG={cluster.kubeconfig}")
        if not on_search_path(cluster.kubectl, environ=environ):
            lines.append(f'  export PATH="{cluster.kubectl.parent}:$PATH"')
        lines += [
            "  kubectl get kng",
            "  kubectl scale kng demo-even --replicas=50",
            "  kubectl get nodes -l kwok-operator.io/node-group=demo-even",
            "  kubectl describe kng demo-even",
            "  kubectl explain kng.spec",
            "",
            f"The operator's log:     {self._operator.log}",
            f"The operator's metrics: http://{self._operator.address}/metrics",
            f"To remove all of it:    {_removal(cluster)}",
        ]
        self._screen.say(lines)


def _described(cluster: Cluster) -> str:
    if cluster.borrowed:
        return f"The cluster of {cluster.kubeconfig}, which you chose."
    return (
        f"Cluster {cluster.name}: etcd, Kubernetes {cluster.kubernetes_version} and kwok, "
        "run by kwokctl on this machine."
    )


def _removal(cluster: Cluster) -> str:
    if cluster.borrowed or cluster.name != DEFAULT_NAME:
        python = Path(sys.executable)
        shown = python.relative_to(CHECKOUT) if python.is_relative_to(CHECKOUT) else python
        name = "" if cluster.borrowed else f" --name {cluster.name}"
        return f"{shown} -m hack.demo --down{name}"
    return "make cluster-down"


def _run(options: argparse.Namespace, *, settings: Settings) -> None:
    screen = Screen(sys.stdout, environ=settings.environ)
    if options.down:
        _Demo(get(options.name, settings=settings), settings=settings, screen=screen).remove()
        return
    screen.title("kwok-operator: groups of fake nodes on a real Kubernetes control plane")
    # With the options of `make cluster-up`, which is for the same cluster.
    cluster = create(options.name, reuse=True, stages=True, settings=settings)
    demo = _Demo(cluster, settings=settings, screen=screen)
    screen.say([_described(cluster)])
    try:
        demo.show(nodes=options.nodes)
    except BaseException:
        if not options.keep:
            # What went wrong first is what the person should hear of.
            with contextlib.suppress(DemoError):
                demo.remove()
        raise
    if options.keep:
        demo.say_how_to_go_on()
    else:
        demo.remove()


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo, and return the exit status."""
    signal.signal(signal.SIGTERM, _terminate)
    options = _parser().parse_args(argv)
    try:
        _run(options, settings=Settings.from_environ(os.environ))
    except (DemoError, ControlPlaneError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
