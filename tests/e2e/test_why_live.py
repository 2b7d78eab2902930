"""`kwok-operator why` of a live cluster, and what it computes."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.causes.fit import Fit, FitClaim, fit
from kwok_operator.causes.nodematch import FitNode
from kwok_operator.causes.podsonnodes import PodNeeds, PodsOnNodes
from kwok_operator.formats.schedulertexts import TAINTS, SchedulerText, parse_scheduler_text
from tests.e2e.api import NODES, Api
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.placements import nodes, random_pod, zonal_volume
from tests.e2e.rights import kubeconfig_of

PODS = "/api/v1/namespaces/default/pods"
NUMBER_OF_NODES = 12
NUMBER_OF_PODS = 120
DOCS = Path(__file__).parents[2] / "docs" / "why.md"
ROLES = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A cluster with nodes that are ready, and claims of volumes in two zones."""
    with bare_cluster("why", directory=tmp_path_factory.mktemp("why")) as (_, kubectl):
        for node in nodes(NUMBER_OF_NODES):
            kubectl.api.create(NODES, node)
        for zone in "ab":
            for each in zonal_volume(f"in-{zone}", zone):
                kubectl.apply(each)
        eventually(lambda: all(map(is_usable, kubectl.api.list(NODES)[0])), describe="nodes")
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        eventually(
            lambda: {each["status"]["phase"] for each in kubectl.api.list(claims)[0]},
            {"Bound"}.__eq__,
            describe="claims are bound",
        )
        eventually(
            lambda: kubectl.api.get("/api/v1/namespaces/default/serviceaccounts/default"),
            describe="pods can be made",
        )
        yield kubectl


def is_usable(node: dict[str, Any]) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return "node.kubernetes.io/not-ready" not in taints


def outcome(api: Api, name: str) -> dict[str, Any]:
    """The condition PodScheduled, once there is one."""
    pod = api.get(f"{PODS}/{name}")
    return next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")


def computed(api: Api, name: str) -> Fit:
    """What we say about a pod, as if it had no node."""
    pods, _ = api.list("/api/v1/pods")
    pod = next(each for each in pods if each["metadata"]["name"] == name)
    spaces, _ = api.list("/api/v1/namespaces")
    on_nodes = PodsOnNodes(
        PodNeeds.of(pod),
        {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in spaces},
    )
    for each in pods:
        if each["metadata"]["name"] != name:
            on_nodes.add(each)
    claims = []
    for volume in pod["spec"].get("volumes", ()):
        if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
            body = api.get(f"/api/v1/persistentvolumes/{claim}")
            claims.append(FitClaim(claim, affinity=body["spec"]["nodeAffinity"]["required"]))
    return fit(on_nodes, [FitNode.of(each) for each in api.list(NODES)[0]], claims)


def counts(said: SchedulerText) -> dict[str, int]:
    """The scheduler's reasons; earlier versions name the taint."""
    found: dict[str, int] = {}
    for each in said.reasons:
        reason = re.sub(r"node\(s\) had untolerated taint \{.*", TAINTS, each.text)
        found[reason] = found.get(reason, 0) + each.count
    return found


def test_the_scheduler_gives_the_same_reasons(kubectl: Kubectl) -> None:
    api, draw, refused = kubectl.api, random.Random(5), 0
    seen: set[str] = set()
    for number in range(NUMBER_OF_PODS):
        pod = random_pod(f"p{number}", draw, claims=["in-a", "in-b"])
        name = pod["metadata"]["name"]
        api.create(PODS, pod)
        said = eventually(partial(outcome, api, name), describe=f"{name} is decided")
        found = computed(api, name)
        if said["status"] == "True":
            assert found.takes > 0, (pod["spec"], found)
            continue
        refused += 1
        message = parse_scheduler_text(said["message"])
        assert message is not None and message.nodes == NUMBER_OF_NODES
        assert (found.takes, found.reasons()) == (0, counts(message)), (pod["spec"], said)
        seen |= found.reasons().keys()
    # The draws must reach most of the filters, else the test says little.
    assert refused >= 20 and len(seen) >= 9, (refused, seen)


def account(kubectl: Kubectl, directory: Path, role: dict[str, Any]) -> Path:
    """A kubeconfig of a new account with the rights of a role."""
    kind, name = role["kind"], role["metadata"]["name"]
    kubectl.apply(role)
    kubectl("create", "serviceaccount", name)
    binding, of = f"{kind.lower()}binding", f"--{kind.lower()}={name}"
    kubectl("create", binding, name, of, f"--serviceaccount=default:{name}")
    user = f"--as=system:serviceaccount:default:{name}"
    eventually(partial(kubectl, "auth", "can-i", "get", "pods", user), describe="the rights")
    path = directory / f"{name}.kubeconfig"
    path.write_text(kubeconfig_of(kubectl, name, namespace="default"))
    return path


def why(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kwok_operator", "why", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def waiting(kubectl: Kubectl) -> str:
    """A pod that no node takes, and that the scheduler has seen."""
    container = {
        "name": "c",
        "image": "none",
        "env": [{"name": "TOKEN", "value": "confidential"}],
        "resources": {"requests": {"cpu": "16"}},
    }
    spec = {"containers": [container], "nodeSelector": {"disk": "ssd"}}
    name = "too-large"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl.api.create(PODS, body)
    eventually(partial(outcome, kubectl.api, name), describe="the scheduler has seen it")
    return name


def test_the_rights_in_the_docs_are_enough(kubectl: Kubectl, waiting: str, tmp_path: Path) -> None:
    (role,) = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    kubeconfig = account(kubectl, tmp_path, yaml.safe_load(role))
    done = why(waiting, "--kubeconfig", kubeconfig)
    assert done.returncode == 0, done.stderr
    assert "16 CPUs" in done.stdout and "nodeSelector disk=ssd" in done.stdout
    assert "12 nodes: 0 would take the pod now" in done.stdout
    assert "needs the right" not in done.stdout, done.stdout
    assert "confidential" not in done.stdout
    as_reader = f"--kubeconfig={kubeconfig}"
    for verb, what in (("list", "secrets"), ("list", "configmaps"), ("delete", "pods")):
        kubectl.fails("auth", "can-i", verb, what, "--all-namespaces", as_reader)


def test_a_missing_right_is_named(kubectl: Kubectl, waiting: str, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]}]
    role = {
        "apiVersion": f"{ROLES}/v1",
        "kind": "Role",
        "metadata": {"name": "few"},
        "rules": rules,
    }
    done = why(waiting, "--kubeconfig", account(kubectl, tmp_path, role))
    assert done.returncode == 0, done.stderr
    assert f"{waiting} of" in done.stdout and "0/12 nodes are available" in done.stdout
    for right in ("list nodes", "list poddisruptionbudgets.policy in namespace default"):
        assert f"needs the right to {right}" in done.stdout, done.stdout


def test_what_is_not_there_is_said_in_a_sentence(
    kubectl: Kubectl, waiting: str, tmp_path: Path
) -> None:
    known = ("--kubeconfig", kubectl.kubeconfig)
    gone = tmp_path / "gone"
    config = kubectl.json("config", "view", "--raw", "--minify", "--flatten")
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    gone.write_text(json.dumps(config))
    for arguments, code, says in (
        (("too-larg", *known), 1, "there is no pod default/too-larg; did you mean too-large?"),
        ((waiting, "-n", "kube-system", *known), 1, "of that name is in namespace default"),
        ((f"default/{waiting}", "-n", "other", *known), 2, "another namespace"),
        ((waiting, "--context", "nowhere", *known), 2, "nowhere"),
        ((waiting, "--kubeconfig", gone), 2, "connection refused"),
        (("No Pod", *known), 2, "is no pod"),
        ((waiting,), 2, "for a pod of a live cluster add --context"),
    ):
        done = why(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), (arguments, done)
        assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr
