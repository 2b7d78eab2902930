"""A real Kubernetes control plane on this machine, for tests, measurements and the demo.

etcd, the API server, its controllers and scheduler, and kwok run as processes under kwokctl; where
their binaries come from is for tools.py to find out. The public part is what is exported here, and
`python3 -m hack.controlplane` on the command line. Only the standard library is needed.
"""

from hack.controlplane.cluster import Cluster
from hack.controlplane.errors import (
    BuildError,
    ClusterError,
    ControlPlaneError,
    DownloadError,
    ToolchainError,
    UnknownVersion,
)
from hack.controlplane.lifecycle import DEFAULT_NAME, create, delete, get, revive
from hack.controlplane.settings import Settings
from hack.controlplane.tools import Tools, find_prometheus, find_tools

__all__ = [
    "DEFAULT_NAME",
    "BuildError",
    "Cluster",
    "ClusterError",
    "ControlPlaneError",
    "DownloadError",
    "Settings",
    "ToolchainError",
    "Tools",
    "UnknownVersion",
    "create",
    "delete",
    "find_prometheus",
    "find_tools",
    "get",
    "revive",
]
