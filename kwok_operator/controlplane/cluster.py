"""A cluster as its users see it: where it is, how to reach it, which processes it consists of.

A `Cluster` is a value; making and removing one is in lifecycle.py. A *borrowed* cluster is one that
somebody else made, and that KWOK_OPERATOR_TEST_KUBECONFIG names: it has no directory here, and its
processes aren't known.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from kwok_operator.controlplane import processes
from kwok_operator.controlplane.errors import ClusterError, TooSlowError, hint, tail
from kwok_operator.controlplane.kubectl import Kubectl, KubectlError
from kwok_operator.controlplane.stopping import go_on

_ASK_SECONDS = 15
_WAIT_SECONDS = 3
"""How long one kubectl waits, as components that have ended are only noticed afterwards."""
_USABLE_SECONDS = 300.0
"""Three clusters that started at once on a slow disk took 64 s. A long limit costs nothing, as a
component that ends is noticed before."""
_POLL_SECONDS = 0.1
_GAVE_UP = "failed to wait for apiserver being healthy"
"""What kube-controller-manager logs before it exits because kube-apiserver takes more than 20 s."""
_DEFAULT_ACCOUNT = ("wait", "serviceaccount/default", "--namespace=default", "--for=create")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that has been created, or borrowed."""

    name: str
    kubeconfig: Path
    kubectl: Path
    kwokctl: Path | None = None
    directory: Path | None = None
    kubernetes_version: str = ""

    @property
    def borrowed(self) -> bool:
        """Whether somebody else made this cluster, so that the ids of its processes aren't
        known."""
        return self.directory is None

    @property
    def kubectl_cache(self) -> Path:
        """The folder for kubectl's cache of this cluster. kubectl's default folder depends on host
        and port only, and an earlier cluster may have had the same."""
        return self.kubeconfig.with_name("kubectl-cache")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which kubectl uses this cluster."""
        return {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.kubectl_cache)}

    def exports(self, search_path: str) -> list[str]:
        """Return shell commands that set the environment for this cluster, and PATH for its
        kubectl."""
        lines = [f"  export KUBECONFIG={self.kubeconfig}"]
        if str(self.kubectl.parent) not in search_path.split(os.pathsep):
            lines.append(f'  export PATH="{self.kubectl.parent}:$PATH"')
        return lines

    def pid(self, component: str) -> int:
        """Return the process id of a component: etcd, kube-apiserver, kube-controller-manager,
        kube-scheduler or kwok-controller.
        """
        if self.directory is None:
            raise ClusterError(f"finding {component}: cluster {self.name} is not run by us")
        pid = processes.recorded(self.directory).get(component)
        if pid is None or pid not in processes.running(self.directory):
            raise ClusterError(f"finding {component}: it does not run in cluster {self.name}")
        return pid

    def log(self, component: str) -> Path:
        """Return the log file of a component."""
        if self.directory is None:
            raise ClusterError(f"finding the log of {component}: {self.name} is not run by us")
        return self.directory / "logs" / f"{component}.log"

    def answers(self, *question: str) -> bool:
        """Return whether kubectl with the arguments `question` succeeds; without arguments, whether
        the API server is ready."""
        return self._failure(*question) is None

    def _failure(self, *question: str) -> str | None:
        """Run kubectl as `answers` does. Return what it printed if it failed, else None."""
        arguments = question or ("get", "--raw", "/readyz")
        kubectl = Kubectl(program=self.kubectl, kubeconfig=self.kubeconfig)
        try:
            kubectl("--request-timeout=5s", *arguments, timeout=_ASK_SECONDS)
        except KubectlError as err:
            return err.stderr.strip() or str(err)
        return None

    def dead(self) -> list[str]:
        """Return the names of components that were started and don't run any more."""
        return processes.dead(self.directory) if self.directory else []

    def check(self) -> None:
        """Raise an error, with the end of the log, if a component has ended."""
        if dead := self.dead():
            log = self.log(dead[0])
            said = tail(log, lines=300)
            kind = TooSlowError if _GAVE_UP in said else ClusterError
            ended = f"{' and '.join(dead)} ended{hint(said)}"
            raise kind(
                f"running cluster {self.name}: {ended}\n{tail(log)}\n  the logs: {log.parent}"
            )

    def wait_until_usable(self, manifests: Path | None = None) -> None:
        """Wait until the API server is ready, the default ServiceAccount exists, which every pod
        needs, and `manifests` have been applied, if any. kwokctl waits for none of these
        reliably."""
        # One kubectl waits for the account, which a controller makes a second after its start: one
        # for each look would take the CPU that the components need.
        steps: list[tuple[str, ...]] = [(*_DEFAULT_ACCOUNT, f"--timeout={_WAIT_SECONDS}s"), ()]
        if manifests is not None:
            # To validate, kubectl would have the API server build its whole OpenAPI document.
            steps.insert(0, ("apply", "--validate=false", f"--filename={manifests}"))
        deadline = time.monotonic() + _USABLE_SECONDS
        failure: str | None = None
        while time.monotonic() < deadline:
            go_on()
            self.check()
            while steps and (failure := self._failure(*steps[0])) is None:
                steps.pop(0)
            if not steps:
                return
            time.sleep(_POLL_SECONDS)
        raise ClusterError(
            f"starting cluster {self.name}: it is not ready after {_USABLE_SECONDS:.0f} s, as if "
            f"the machine were too busy: {failure}; the logs: {self.log('etcd').parent}"
        )
