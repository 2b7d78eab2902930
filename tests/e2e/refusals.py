"""Nodes that the API server refuses for a while, by an admission policy."""

from collections.abc import Iterator
from contextlib import contextmanager

from kwok_operator.controlplane.kubectl import KubectlError
from tests.e2e.api import NODES
from tests.e2e.kubectl import Kubectl, as_text, eventually

REFUSAL = "no such node in this test"
_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@contextmanager
def refused_nodes(
    kubectl: Kubectl, group: str, *, ending_in: tuple[str, ...] = ("",), dry_runs: bool = True
) -> Iterator[None]:
    """New nodes of the group whose names end like this, within the block and not after it."""
    ends = " || ".join(f"object.metadata.name.endsWith('{end}')" for end in ending_in)
    refused = f"object.metadata.name.startsWith('{group}-') && ({ends})"
    spared = "false" if dry_runs else "request.dryRun"
    nodes = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}
    specs = (
        {
            "matchConstraints": {"resourceRules": [{**nodes, "operations": ["CREATE"]}]},
            "validations": [{"expression": f"{spared} || !({refused})", "message": REFUSAL}],
        },
        {"policyName": group, "validationActions": ["Deny"]},
    )
    name = f"{group}-probe{ending_in[0]}"
    probe = as_text({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    tried = ("create", "--filename=-", *(("--dry-run=server",) if dry_runs else ()))

    def in_force() -> bool:
        try:
            kubectl(*tried, stdin=probe)
        except KubectlError as error:
            return REFUSAL in error.stderr
        kubectl.api.delete(f"{NODES}/{name}")
        return False

    try:
        for kind, spec in zip(_KINDS, specs, strict=True):
            kubectl.apply(
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": group},
                    "spec": spec,
                }
            )
        eventually(in_force, describe="it is in force")
        yield
    finally:
        kubectl("delete", ",".join(reversed(_KINDS)), group, "--ignore-not-found")
    eventually(lambda: not in_force(), describe="it is in force no longer")
