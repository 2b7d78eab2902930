"""A real Kubernetes control plane on this machine, for rehearsals, tests, measurements and the
demo.

etcd, the API server, its controllers and scheduler, and kwok run as processes, which kwokctl
starts; tools.py finds their binaries. Other packages use only what is exported here; there is also
a command line, `python3 -m kwok_operator.controlplane`.
"""

from kwok_operator.controlplane.cluster import Cluster
from kwok_operator.controlplane.errors import (
    BuildError,
    ClusterError,
    ControlPlaneError,
    DownloadError,
    ToolchainError,
    UnknownVersion,
)
from kwok_operator.controlplane.kwokctl import COMPONENTS, Flags
from kwok_operator.controlplane.lifecycle import (
    DEFAULT_NAME,
    create,
    delete,
    get,
    removal,
    restart,
    revive,
)
from kwok_operator.controlplane.ownership import (
    Choices,
    async_temporary,
    free_name,
    remove_unused,
    temporary,
)
from kwok_operator.controlplane.rewinding import CAN_REWIND, Rewinder
from kwok_operator.controlplane.settings import (
    DEFAULT_KUBERNETES_VERSION,
    PORTS_VARIABLE,
    Settings,
)
from kwok_operator.controlplane.stopping import in_thread
from kwok_operator.controlplane.tools import Tools, find_set, find_tools
from kwok_operator.controlplane.toolsets import known_versions
from kwok_operator.reporter import Reporter

__all__ = [
    "CAN_REWIND",
    "COMPONENTS",
    "DEFAULT_KUBERNETES_VERSION",
    "DEFAULT_NAME",
    "PORTS_VARIABLE",
    "BuildError",
    "Choices",
    "Cluster",
    "ClusterError",
    "ControlPlaneError",
    "DownloadError",
    "Flags",
    "Reporter",
    "Rewinder",
    "Settings",
    "ToolchainError",
    "Tools",
    "UnknownVersion",
    "async_temporary",
    "create",
    "delete",
    "find_set",
    "find_tools",
    "free_name",
    "get",
    "in_thread",
    "known_versions",
    "removal",
    "remove_unused",
    "restart",
    "revive",
    "temporary",
]
