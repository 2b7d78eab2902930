"""Machines that the operator emulates: its flags and rights, and waiting until they run."""

from pathlib import Path
from typing import Any

from tests.e2e import capi
from tests.e2e.capi import Provider
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import ACCOUNT
from tests.e2e.rights import user_name

EMULATE = "--clusterapi=emulate"
RIGHTS = Path(__file__).parents[2] / "deploy/components/clusterapi-emulate/rbac.yaml"


def allowed(kubectl: Kubectl, group: str) -> None:
    """Returns when the rights are in force."""
    user = f"--as={user_name(ACCOUNT)}"
    eventually(
        lambda: kubectl("auth", "can-i", "patch", f"machines.{group}/status", user),
        describe="the rights are in force",
    )


def group_of(name: str) -> str:
    return f"default.{name}"


def running(provider: Provider, name: str, **where: Any) -> list[str]:
    """The names of the Machines that run; raises while others are there."""
    machines = provider.machines(name, **where)
    assert all(m.get("status", {}).get("phase") == "Running" for m in machines), machines
    return sorted(m["metadata"]["name"] for m in machines)


def wait_running(
    kubectl: Kubectl, provider: Provider, name: str, count: int, **where: Any
) -> list[str]:
    """Their names, once all run and each has its Node."""

    def both() -> list[str]:
        machines = running(provider, name, **where)
        assert machines == sorted(capi.nodes_of(kubectl, group_of(name)))
        return machines

    return eventually(both, lambda m: len(m) == count, describe=f"{count} machines run")
