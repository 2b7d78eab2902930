"""The command line of this package: tools, up, down, kubeconfig. Results go to standard output,
messages to stderr.

A ControlPlaneError is printed as one message, with exit status 1. An interrupt has status 130.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from kwok_operator.controlplane import lifecycle
from kwok_operator.controlplane.cluster import Cluster
from kwok_operator.controlplane.errors import ClusterError, ControlPlaneError
from kwok_operator.controlplane.settings import DEFAULT_KUBERNETES_VERSION, Settings
from kwok_operator.controlplane.tools import find_kubectl, find_set, find_tools
from kwok_operator.reporter import Reporter

_EPILOG = f"""\
environment variables:
  KUBERNETES_VERSION            which minor version to run (default {DEFAULT_KUBERNETES_VERSION})
  KWOK_OPERATOR_CACHE           where tools and clusters are kept
                                (default ${{XDG_CACHE_HOME:-~/.cache}}/kwok-operator)
  KWOK_OPERATOR_TEST_KUBECONFIG a cluster to use instead: nothing is built, created or deleted
  KUBEBUILDER_ASSETS            a directory to look for tools in, before PATH
  KWOK_BINARY_PREFIX, KWOK_KUBE_BINARY_PREFIX, KWOK_ETCD_BINARY_PREFIX
                                other places to download releases from, as kwokctl understands them
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python3 -m {__package__}",
        description="A real Kubernetes control plane with fake nodes, on this machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    tools = commands.add_parser(
        "tools",
        help="find, download or build etcd, Kubernetes and kwok, and print their paths",
    )
    tools.add_argument(
        "--set",
        type=Path,
        metavar="DIRECTORY",
        help="the tools that the go.mod in DIRECTORY names, instead of those of a cluster",
    )
    up = commands.add_parser(
        "up",
        help="create a cluster, or use an existing one",
        description="Create a cluster, or use the cluster of that name if it answers and has the "
        "same options.",
    )
    up.add_argument("--fresh", action="store_true", help="replace an existing cluster of that name")
    up.add_argument(
        "--manage-all-nodes",
        action="store_true",
        help="kwok manages all nodes, not only those annotated kwok.x-k8s.io/node=fake",
    )
    up.add_argument(
        "--built-in-stages",
        action="store_true",
        help="without kwok's CRDs: kwok has only its own Stages, and nobody can add any",
    )
    down = commands.add_parser("down", help="delete a cluster")
    down.add_argument(
        "--all", action="store_true", help="delete all clusters, also those of killed test runs"
    )
    kubeconfig = commands.add_parser("kubeconfig", help="print the path of a cluster's kubeconfig")
    for command in (up, down, kubeconfig):
        command.add_argument(
            "--name", default=lifecycle.DEFAULT_NAME, help="which cluster (default: %(default)s)"
        )
    return parser


def _tools(arguments: argparse.Namespace, *, settings: Settings) -> None:
    reporter = Reporter(sys.stderr)
    if arguments.set is not None:
        tools = find_set(arguments.set, settings=settings, reporter=reporter)
    elif settings.borrowed_kubeconfig is not None:
        print(f"{'kubectl':<24} {find_kubectl(settings)}")
        return
    else:
        tools = find_tools(settings, reporter=reporter)
    for name, path in tools.paths.items():
        print(f"{name:<24} {path}")


def _up(arguments: argparse.Namespace, *, settings: Settings) -> None:
    cluster = lifecycle.create(
        arguments.name,
        reuse=not arguments.fresh,
        manage_all_nodes=arguments.manage_all_nodes,
        stages=not arguments.built_in_stages,
        settings=settings,
    )
    print(_usage(cluster, search_path=settings.environ.get("PATH", "")))


def _usage(cluster: Cluster, *, search_path: str) -> str:
    lines = [f"cluster {cluster.name} is ready"]
    if cluster.kubernetes_version:
        lines[0] += f", Kubernetes {cluster.kubernetes_version}"
    lines += ["", *cluster.exports(search_path), "  kubectl get nodes", ""]
    if not cluster.borrowed:
        lines.append(f"to delete it: {lifecycle.removal(cluster.name)}")
    return "\n".join(lines)


def _kubeconfig(arguments: argparse.Namespace, *, settings: Settings) -> None:
    cluster = lifecycle.get(arguments.name, settings=settings)
    if not cluster.answers():
        raise ClusterError(
            f"reaching cluster {cluster.name}: it does not answer; `up --fresh` replaces it"
        )
    print(cluster.kubeconfig)


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit status."""
    # SIGTERM raises an exception, so that a build that is interrupted ends its compilers, too.
    signal.signal(signal.SIGTERM, _terminate)
    arguments = _parser().parse_args(argv)
    try:
        settings = Settings.from_environ(os.environ)
        match arguments.command:
            case "tools":
                _tools(arguments, settings=settings)
            case "up":
                _up(arguments, settings=settings)
            case "down":
                every = lifecycle.names(settings=settings)
                for name in every if arguments.all else [arguments.name]:
                    lifecycle.delete(name, settings=settings)
            case "kubeconfig":
                _kubeconfig(arguments, settings=settings)
    except ControlPlaneError as err:
        print(f"error: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
